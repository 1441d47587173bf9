"""The sample lesson of the tests, and courses made of it without running a kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from authoring import convert
from nbformat import v4

from gpu_lab.course import notebooks

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = "90_sample"
TEXT = (ROOT / f"tests/fixtures/lessons/{SAMPLE}.py").read_text(encoding="utf-8")
VERDICT = f"{SAMPLE}: 2 checks\nok  one\nok  two\n"
Notebook = Any


def course(folder: Path, *, text: str = TEXT, name: str = SAMPLE) -> Path:
    """A folder of notebooks with one source and nothing built."""
    path = notebooks.source_path(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


def built_course(folder: Path, *, text: str = TEXT, name: str = SAMPLE) -> Path:
    """The same with both editions, as if they had run."""
    course(folder, text=text, name=name)
    whole = convert.source(notebooks.source_path(name, folder))
    for edition in convert.LEFT_OUT:
        made = pretend(convert.edition(whole, edition))
        notebooks.write(made, notebooks.built_path(name, edition, folder))
    return folder


def pretend(notebook: Notebook) -> Notebook:
    """Counts and short outputs, as a run would leave them."""
    for count, cell in enumerate(notebooks.code_cells(notebook), 1):
        cell.execution_count = count
        verdict = "verdict" in notebooks.tags(cell)
        cell.outputs = [stream(VERDICT if verdict else f"cell {count}\n")]
    return notebook


def stream(text: str, name: str = "stdout") -> Any:
    return v4.new_output("stream", name=name, text=text)


def shown(**data: Any) -> Any:
    return v4.new_output("display_data", data=data)


def change(
    folder: Path, alter: Callable[[Notebook], Any], *, edition: str = "student"
) -> None:
    """Alter a built notebook of the sample by hand."""
    path = notebooks.built_path(SAMPLE, edition, folder)
    notebook = notebooks.read(path)
    alter(notebook)
    notebooks.write(notebook, path)


def tagged(notebook: Notebook, tag: str) -> Any:
    """The first cell with that tag."""
    return next(cell for cell in notebook.cells if tag in notebooks.tags(cell))
