"""Source text -> the two editions, without running anything.

The student edition lacks the cells tagged `solution`, the solution edition those
tagged `exercise`. The same source always gives the same notebooks, ids included.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_lab.course.notebooks import Cell, Notebook, tags
from gpu_lab.records import GpuLabError

LEFT_OUT = {"student": "solution", "solutions": "exercise"}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def source(path: Path) -> Notebook:
    """All cells of a source file (jupytext percent), exercises and solutions.

    Raises:
        GpuLabError: the file cannot be read.
    """
    try:
        import jupytext
    except ImportError as error:
        raise ImportError(f"{error}; try: pip install 'gpu-lab[dev]'") from error
    try:
        return jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    except (OSError, ValueError) as error:
        raise GpuLabError(f"{path}: wanted a notebook source, found {error}") from error


def editions(path: Path) -> dict[str, Notebook]:
    """Edition -> notebook without outputs, from a source file.

    Raises:
        GpuLabError: an exercise without its solution; names the cell.
    """
    whole = source(path)
    for number, text in unpaired(whole):
        raise GpuLabError(f"{path.name}: cell {number}: {text}")
    return {name: edition(whole, name) for name in LEFT_OUT}


def edition(whole: Notebook, name: str) -> Notebook:
    """One edition of a source notebook."""
    from nbformat import v4

    kept = [cell for cell in whole.cells if LEFT_OUT[name] not in tags(cell)]
    notebook: Any = v4.new_notebook()
    notebook.metadata.update(METADATA)
    notebook.nbformat_minor = 5  # the first with cell ids; later ones add nothing here
    notebook.cells = [
        _cell(cell, id_) for cell, id_ in zip(kept, _ids(kept), strict=True)
    ]
    return notebook


def unpaired(whole: Notebook) -> Iterator[tuple[int, str]]:
    """Number and fault of each exercise without solution, or solution without one."""
    kinds = [_kind(cell) for cell in whole.cells]
    for number, kind in enumerate(kinds, 1):
        after = kinds[number] if number < len(kinds) else ""
        before = kinds[number - 2] if number > 1 else ""
        if kind == "exercise" and after != "solution":
            yield number, "exercise, wanted its solution cell directly after it"
        if kind == "solution" and before != "exercise":
            yield number, "solution, wanted its exercise cell directly before it"


def shape(notebook: Notebook) -> list[tuple[str, str, dict[str, Any], str]]:
    """What must agree between source and built notebook, cell by cell."""
    return [
        (cell.cell_type, cell.source, dict(cell.metadata), cell.get("id", ""))
        for cell in notebook.cells
    ]


def _cell(cell: Cell, id_: str) -> Cell:
    """The cell with all that its marker said, and a fixed id."""
    from nbformat import v4

    made: Any
    if cell.cell_type == "code":
        made = v4.new_code_cell(cell.source)
    else:
        made = v4.new_markdown_cell(cell.source)
    made.id = id_
    made.metadata = cell.metadata
    return made


def _ids(cells: list[Cell]) -> Iterator[str]:
    """An id from each cell's text, so that a new cell leaves those of others alone."""
    seen: Counter[str] = Counter()
    for cell in cells:
        text = f"{cell.cell_type}\n{cell.source}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        seen[digest] += 1
        yield digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def _kind(cell: Cell) -> str:
    return next((tag for tag in tags(cell) if tag in LEFT_OUT.values()), "")
