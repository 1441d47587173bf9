"""Copies get their parameters and keep their outputs; a misspelt name is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from authoring import prepare
from lessons import ROOT, SAMPLE, TEXT, VERDICT, built_course, course, tagged

from gpu_lab.course import notebooks
from gpu_lab.records import GpuLabError


def prepared(folder: Path, out: Path, **changes: Any) -> Any:
    given: dict[str, Any] = {"device": "cpu", "profile": "quick", "seed": 0}
    given.update(changes)
    paths = prepare.prepare(**given, out=out, folder=folder)
    return notebooks.read(paths[0])


def test_parameters_are_injected_after_their_cell(tmp_path: Path) -> None:
    folder = built_course(tmp_path / "notebooks")
    copy = prepared(folder, tmp_path / "out", device="cuda:1", profile="class", seed=7)
    places = [notebooks.tags(cell) for cell in copy.cells]
    at = places.index(["parameters"])
    assert places[at + 1] == ["injected-parameters"]
    given: dict[str, Any] = {}
    exec(copy.cells[at + 1].source, given)
    assert [given[k] for k in ("device", "profile", "seed")] == ["cuda:1", "class", 7]


def test_everything_else_is_as_committed(tmp_path: Path) -> None:
    folder = built_course(tmp_path / "notebooks")
    copy = prepared(folder, tmp_path / "out")
    injected = copy.cells.pop(2)
    assert (injected.execution_count, injected.outputs) == (None, [])
    assert copy == notebooks.read(folder / f"{SAMPLE}.ipynb")
    assert tagged(copy, "verdict").outputs[0].text == VERDICT


def test_no_path_of_this_machine_is_in_the_copy(tmp_path: Path) -> None:
    prepared(built_course(tmp_path / "notebooks"), tmp_path / "out")
    text = (tmp_path / "out" / f"{SAMPLE}.ipynb").read_text(encoding="utf-8")
    assert "papermill" not in text
    assert str(tmp_path) not in text
    assert str(ROOT) not in text


def test_two_copies_are_equal(tmp_path: Path) -> None:
    folder = built_course(tmp_path / "notebooks")
    assert prepared(folder, tmp_path / "a") == prepared(folder, tmp_path / "b")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("profile: str", "profil: str"),
        ("seed: int = 0  # of the random numbers\n", ""),
        ('tags=["parameters"]', ""),
    ],
)
def test_other_parameters_are_an_error_and_nothing_is_written(
    old: str, new: str, tmp_path: Path
) -> None:
    assert old in TEXT
    folder = built_course(tmp_path / "notebooks", text=TEXT.replace(old, new))
    with pytest.raises(
        GpuLabError, match="wanted a cell tagged parameters with device"
    ):
        prepared(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_profile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GpuLabError, match="unknown profile 'slow'; wanted quick"):
        prepared(built_course(tmp_path), tmp_path / "out", profile="slow")


def test_a_notebook_that_is_not_built_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GpuLabError, match="wanted a notebook"):
        prepared(course(tmp_path), tmp_path / "out")
