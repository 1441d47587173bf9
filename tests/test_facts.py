from __future__ import annotations

from pathlib import Path

import pytest

from gpu_lab import facts
from gpu_lab.records import GpuLabError

SOURCES = sorted((Path(__file__).parent.parent / "notebooks/src").glob("*.py"))


@pytest.mark.parametrize("name", ["gpus", "links", "claims"])
def test_tables_are_whole(name: str) -> None:
    rows = facts.table(name)
    assert len(rows) > 10
    columns = set(rows[0])
    for row in rows:
        assert set(row) == columns, row  # None as key: more cells than columns
        assert None not in row.values(), row  # fewer cells than columns
        assert row["source"].strip(), row


def test_claims_are_numbered_without_a_gap() -> None:
    ids = [row["id"] for row in facts.table("claims")]
    assert ids == [f"C{number:03d}" for number in range(1, len(ids) + 1)]
    verdicts = {row["verdict"] for row in facts.table("claims")}
    assert all(verdicts)


def test_claim_by_id() -> None:
    assert facts.claim("C024")["id"] == "C024"
    last = len(facts.table("claims"))
    with pytest.raises(GpuLabError, match=rf"no claim 'C999'; .* C001 to C{last:03d}"):
        facts.claim("C999")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_answers_each_claim_that_names_it(path: Path) -> None:
    wanted = [r["id"] for r in facts.table("claims") if r["notebook"] == path.stem]
    text = path.read_text(encoding="utf-8")
    assert [claim for claim in wanted if f'"{claim}"' not in text] == []


def test_settings_are_read_once_and_typed() -> None:
    ladder = facts.settings("ladder")
    assert set(ladder) == {"os", "driver", "torch", "wheel", "kernel", "copy"}
    for texts in ladder.values():
        assert set(texts) == {"name", "question", "remedy"}
        assert all(isinstance(text, str) and text for text in texts.values())
    assert facts.settings("ladder") is ladder


def test_files_come_in_the_order_of_their_names() -> None:
    found = facts.files("ladders", suffix=".json")
    assert [path.name[0] for path in found] == ["a", "b", "c"]
    assert facts.files("ladders", suffix=".nothing") == ()


def test_what_is_missing_is_named() -> None:
    with pytest.raises(GpuLabError, match=r"data file 'no\.txt' is missing: reinstall"):
        facts.text("no.txt")
    with pytest.raises(GpuLabError, match="data folder 'no' is missing: reinstall"):
        facts.files("no", suffix=".json")
    with pytest.raises(GpuLabError, match=r"'no\.csv'"):
        facts.table("no")


def test_folders_inside_the_package_come_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "gpu_lab"
    (package / "_data").mkdir(parents=True)
    monkeypatch.setattr("importlib.resources.files", lambda _name: package)
    assert facts.folder("data") == package / "_data"
    assert facts.folder("notebooks") == tmp_path / "notebooks"
