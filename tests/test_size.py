"""Only code is counted, and the package keeps to its cap."""

from __future__ import annotations

from pathlib import Path

import pytest
from authoring import __main__ as program
from authoring import size

TEXT = '''\
"""Docstring
of two lines."""

import os  # counted


def f():
    """Not counted."""
    # not counted
    text = """counted,

    all three lines"""
    return (
        text
    )
'''


def test_only_code_is_counted() -> None:
    assert size.code_lines(TEXT) == 8


def test_rooms_are_files_and_folders_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "a.py").write_text("x = 1\n")
    (tmp_path / "bench" / "b.py").write_text("x = 1\n")
    (tmp_path / "units.py").write_text("x = 1\n")
    assert size.by_room(tmp_path) == {"bench": 2, "units": 1}


def test_the_cap_is_11000_lines(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "units.py").write_text("x = 1\n" * 11_000)
    assert size.main(tmp_path) == 0
    (tmp_path / "units.py").write_text("x = 1\n" * 11_001)
    assert size.main(tmp_path) == 1
    assert "11001 of at most 11000" in capsys.readouterr().out


def test_the_package_is_below_its_cap(capsys: pytest.CaptureFixture) -> None:
    assert program.main(["size"]) == 0
    assert "course" in capsys.readouterr().out


@pytest.mark.parametrize("command", [[], ["lint"], ["build"], ["prepare"], ["size"]])
def test_help_of_each_command(command: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        program.main([*command, "--help"])
    assert end.value.code == 0


@pytest.mark.parametrize("command", ["lint", "build"])
def test_an_unknown_notebook_is_one_line_and_exit_2(
    command: str, capsys: pytest.CaptureFixture
) -> None:
    assert program.main([command, "77"]) == 2
    assert capsys.readouterr().err.startswith("no notebook '77'; wanted one of")


def test_abbreviated_options_are_refused() -> None:
    with pytest.raises(SystemExit) as end:
        program.main(["prepare", "--prof", "quick", "--out", "x"])
    assert end.value.code == 2
