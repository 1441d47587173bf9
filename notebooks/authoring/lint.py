"""Says what is wrong with the notebooks, sources and both editions, without running.

It catches what papermill and nbval let pass: cleared outputs, a cell that was not run,
a misspelt parameter, a forbidden line, a built notebook that is not its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from authoring import built_rules, convert, source_rules
from authoring.source_rules import Found
from gpu_lab import units
from gpu_lab.course import notebooks
from gpu_lab.course.notebooks import EDITIONS, Notebook
from gpu_lab.records import GpuLabError

LARGEST_BYTES = 2**20
# Names of notebooks that need not follow the rules. Empty, and a test says so.
EXEMPT: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One fault: cell is its number from 1, or 0 for the whole file."""

    file: str
    cell: int
    text: str

    def __str__(self) -> str:
        where = f"cell {self.cell}: " if self.cell else ""
        return f"{self.file}: {where}{self.text}"


def lint(
    selection: tuple[str, ...] = (), *, folder: Path | None = None
) -> list[Finding]:
    """All faults of the notebooks wanted; () = the whole course.

    Raises:
        GpuLabError: no such notebook.
    """
    home = folder or notebooks.home()
    names = notebooks.names(selection, folder=home)
    found = [] if selection else _strays(home, names)
    for name in names:
        if name not in EXEMPT:
            found += _one(name, home)
    return found


def _one(name: str, home: Path) -> list[Finding]:
    path = notebooks.source_path(name, home)
    whole = convert.source(path)
    file = str(path.relative_to(home))
    found = [f for rule in source_rules.RULES for f in _findings(file, rule(whole))]
    for edition in EDITIONS:
        fresh = convert.edition(whole, edition)
        found += _built(fresh, notebooks.built_path(name, edition, home), home)
    return found


def _built(fresh: Notebook, path: Path, home: Path) -> list[Finding]:
    file = str(path.relative_to(home))
    try:
        built = notebooks.read(path)
    except GpuLabError:
        return [Finding(file, 0, "not built, or not a notebook; try make notebooks")]
    found = _findings(file, built_rules.drift(fresh, built))
    for rule in built_rules.RULES:
        found += _findings(file, rule(built))
    return found + _findings(file, _size(path))


def _size(path: Path) -> Found:
    size, most = path.stat().st_size, units.size(LARGEST_BYTES)
    if size > LARGEST_BYTES:
        yield 0, f"{units.size(size)}, wanted at most {most}: fewer or smaller pictures"


def _strays(home: Path, names: list[str]) -> list[Finding]:
    """Built notebooks that have no source."""
    return [
        Finding(str(path.relative_to(home)), 0, "no source, wanted one in src or none")
        for edition in EDITIONS.values()
        for path in sorted((home / edition).glob("*.ipynb"))
        if path.stem not in names
    ]


def _findings(file: str, found: Found) -> list[Finding]:
    return [Finding(file, cell, text) for cell, text in found]
