"""Sources become two editions, executed on the CPU, the same each time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from authoring import build, convert
from lessons import SAMPLE, TEXT, built_course, change, course, pretend

from gpu_lab.course import notebooks
from gpu_lab.records import GpuLabError

# What the kernel of a build finds, and a widget, whose state must not be kept.
SURROUNDINGS = """\
# %% tags=["parameters"]
device: str = "auto"

# %%
import os
from pathlib import Path

import ipywidgets

for name in ("DEVICE", "PROGRESS", "SKIP"):
    print(name, repr(os.environ["GPU_LAB_" + name]))
print(Path(os.environ["GPU_LAB_OUT"]).name, "agg" in os.environ["MPLBACKEND"], device)
print(Path(os.environ["GPU_LAB_OUT"]).parent == Path(os.environ["GPU_LAB_RUNS"]))
print(Path.cwd().name)

# %%
ipywidgets.IntSlider()
"""


def code(notebook: Any, tag: str = "") -> list[Any]:
    cells = notebooks.code_cells(notebook)
    return [cell for cell in cells if not tag or tag in notebooks.tags(cell)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, really executed; read only."""
    folder = course(tmp_path_factory.mktemp("course"))
    build.build(folder=folder)
    return folder


@pytest.mark.parametrize("edition", ["student", "solutions"])
def test_a_built_notebook_holds_its_own_cells_run_in_order(
    built: Path, edition: str
) -> None:
    notebook = notebooks.read(notebooks.built_path(SAMPLE, edition, built))
    assert notebook.metadata == convert.METADATA
    assert [c.execution_count for c in code(notebook)] == list(range(1, 11))
    assert {key for cell in notebook.cells for key in cell.metadata} == {"tags"}
    assert (
        "90_sample: 3 checks\nok  the table"
        in code(notebook, "verdict")[0].outputs[0].text
    )


def test_the_editions_differ_in_exercise_and_solution(built: Path) -> None:
    student = notebooks.read(notebooks.built_path(SAMPLE, "student", built))
    solutions = notebooks.read(notebooks.built_path(SAMPLE, "solutions", built))
    assert [c.outputs[0].text for c in code(student, "exercise")] == ["TODO\n"]
    assert [c.outputs[0].text for c in code(solutions, "solution")] == ["PASS\n"]
    assert not code(student, "solution")
    assert not code(solutions, "exercise")


def test_what_is_up_to_date_is_left_alone(built: Path) -> None:
    assert build.build(folder=built) == []


def test_the_kernel_of_a_build_finds_the_cpu_and_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("GPU_LAB_SKIP", "matmul_256")
    folder = course(tmp_path / "notebooks", text=SURROUNDINGS)
    fresh = convert.editions(notebooks.source_path(SAMPLE, folder))["student"]
    notebook = build.execute(fresh, name=SAMPLE, home=folder)
    _, told, slider = code(notebook)
    assert told.outputs[0].text.splitlines() == [
        "DEVICE 'cpu'",
        "PROGRESS '0'",
        "SKIP ''",
        "lab False auto",
        "True",
        "notebooks",
    ]
    assert slider.outputs
    assert notebook.metadata == convert.METADATA


def test_a_notebook_that_fails_is_named_and_the_old_one_stays(tmp_path: Path) -> None:
    folder = built_course(tmp_path)
    path = notebooks.built_path(SAMPLE, "student", folder)
    before = path.read_bytes()
    course(folder, text=TEXT.replace("import time\n", "import time\n1 / 0\n"))
    with pytest.raises(GpuLabError, match=r"90_sample: cell 3 of \d+: ZeroDivision"):
        build.build(folder=folder)
    assert path.read_bytes() == before


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "execute", lambda fresh, **_more: pretend(fresh))


@pytest.mark.usefixtures("without_kernels")
class TestWhatIsBuilt:
    def test_all_of_it_when_nothing_is_there(self, tmp_path: Path) -> None:
        course(tmp_path)
        course(tmp_path, name="10_first")
        made = [str(p.relative_to(tmp_path)) for p in build.build(folder=tmp_path)]
        assert made == [
            "10_first.ipynb",
            "solutions/10_first.ipynb",
            "90_sample.ipynb",
            "solutions/90_sample.ipynb",
        ]

    def test_only_the_one_wanted(self, tmp_path: Path) -> None:
        course(tmp_path)
        course(tmp_path, name="10_first")
        made = build.build(("10",), folder=tmp_path)
        assert {path.name for path in made} == {"10_first.ipynb"}

    def test_only_the_edition_whose_cells_changed(self, tmp_path: Path) -> None:
        built_course(tmp_path)
        course(tmp_path, text=TEXT.replace("answer = len(", "answer = 0 + len("))
        made = build.build(folder=tmp_path)
        assert made == [notebooks.built_path(SAMPLE, "solutions", tmp_path)]

    def test_again_when_only_a_tag_changed(self, tmp_path: Path) -> None:
        built_course(tmp_path)
        course(tmp_path, text=TEXT.replace('# %% tags=["slide"]', "# %%"))
        assert len(build.build(folder=tmp_path)) == 2

    def test_again_when_forced(self, tmp_path: Path) -> None:
        assert len(build.build(folder=built_course(tmp_path), force=True)) == 2

    def test_again_when_the_outputs_are_gone(self, tmp_path: Path) -> None:
        built_course(tmp_path)

        def clear(notebook: Any) -> None:
            for cell in code(notebook):
                cell.outputs = []

        change(tmp_path, clear)
        assert build.build(folder=tmp_path) == [tmp_path / f"{SAMPLE}.ipynb"]

    def test_the_same_bytes_each_time(self, tmp_path: Path) -> None:
        paths = build.build(folder=course(tmp_path))
        before = [path.read_bytes() for path in paths]
        build.build(folder=tmp_path, force=True)
        assert [path.read_bytes() for path in paths] == before


def test_ids_are_unique_and_outlive_a_new_cell_before_them(tmp_path: Path) -> None:
    twin = TEXT + "\n# %%\nx = 1\n\n# %%\nx = 1\n"
    path = notebooks.source_path(SAMPLE, course(tmp_path, text=twin))
    ids = [cell.id for cell in convert.editions(path)["student"].cells]
    assert len(set(ids)) == len(ids)
    course(
        tmp_path,
        text=twin.replace(
            "# %% [markdown]\n# ## S", "# %%\ny = 1\n\n# %% [markdown]\n# ## S", 1
        ),
    )
    more = [cell.id for cell in convert.editions(path)["student"].cells]
    assert len(more) == len(ids) + 1
    assert set(ids) < set(more)


@pytest.mark.parametrize(
    ("tag", "wanted"),
    [
        ("solution", "cell 13: exercise, wanted its solution cell directly after it"),
        ("exercise", "cell 14: solution, wanted its exercise cell directly before it"),
    ],
)
def test_an_exercise_alone_is_an_error_that_names_its_cell(
    tag: str, wanted: str, tmp_path: Path
) -> None:
    course(tmp_path, text=TEXT.replace(f'tags=["{tag}"]', ""))
    with pytest.raises(GpuLabError, match=rf"90_sample.py: {wanted}"):
        build.build(folder=tmp_path)


def test_without_jupytext_the_pip_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jupytext", None)
    with pytest.raises(ImportError, match=r"pip install 'gpu-lab\[dev\]'"):
        build.build(folder=course(tmp_path))
