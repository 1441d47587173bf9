"""Builds both editions of each notebook: convert, execute on the CPU, write.

An edition that agrees with its source and holds outputs is left alone, so that its
stored numbers change only when it does. `force` runs it again, which is wanted after
a change of functions that it calls.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from authoring import convert
from gpu_lab import hardware, show, store, units
from gpu_lab.course import engine, notebooks
from gpu_lab.course.notebooks import Cell, Notebook
from gpu_lab.records import GpuLabError

PROFILE = "quick"


def build(
    selection: tuple[str, ...] = (), *, force: bool = False, folder: Path | None = None
) -> list[Path]:
    """Build what is not up to date; the paths of the notebooks that were written.

    Args:
        selection: numbers or names of notebooks; () = all.
        force: execute also what is up to date.
        folder: of the notebooks; by default the course's own.

    Raises:
        GpuLabError: a fault in a source, or a notebook that fails; what was built
            before it stays, its own old file too.
    """
    home = folder or notebooks.home()
    written = []
    for name in notebooks.names(selection, folder=home):
        fresh = convert.editions(notebooks.source_path(name, home))
        for edition, notebook in fresh.items():
            path = notebooks.built_path(name, edition, home)
            if force or not is_current(notebook, path):
                written.append(_build_one(notebook, path, home))
    return written


def is_current(fresh: Notebook, path: Path) -> bool:
    """Whether the built notebook has these cells, all of them run, and outputs."""
    if not path.is_file():
        return False
    built = notebooks.read(path)
    code = notebooks.code_cells(built)
    return (
        convert.shape(built) == convert.shape(fresh)
        and built.metadata == fresh.metadata
        and [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
        and any(cell.outputs for cell in code)
    )


def execute(fresh: Notebook, *, name: str, home: Path) -> Notebook:
    """The notebook with the outputs and counts of a run of its own on the CPU.

    Only outputs are taken over: no time stamps, no widget state, no parameters.

    Raises:
        GpuLabError: a cell failed; names it.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-lab-") as text:
        empty, done = Path(text) / f"{name}.ipynb", Path(text) / "done.ipynb"
        notebooks.write(fresh, empty)
        with _surroundings(Path(text), home):
            outcome = engine.execute(
                empty,
                done,
                parameters={},  # none: papermill adds a cell for any that it is given
                limits=engine.LIMITS[PROFILE],
                on_cell=lambda _cell, _cells: None,
            )
        if outcome.cause:
            where = f"cell {outcome.cell} of {outcome.cells}"
            raise GpuLabError(f"{name}: {where}: {outcome.cause}; nothing was written")
        return _with_outputs(fresh, notebooks.read(done))


def _build_one(fresh: Notebook, path: Path, home: Path) -> Path:
    start = time.monotonic()
    notebooks.write(execute(fresh, name=path.stem, home=home), path)
    took = units.duration(time.monotonic() - start)
    print(f"built {path.relative_to(home)} ({took})")
    return path


def _with_outputs(fresh: Notebook, done: Notebook) -> Notebook:
    pairs = zip(notebooks.code_cells(fresh), notebooks.code_cells(done), strict=True)
    for count, (cell, ran) in enumerate(pairs, 1):
        cell.execution_count = count
        cell.outputs = [_counted(output, count) for output in ran.outputs]
    return fresh


def _counted(output: Cell, count: int) -> Cell:
    if "execution_count" in output:
        output.execution_count = count
    return output


@contextlib.contextmanager
def _surroundings(run: Path, home: Path) -> Iterator[None]:
    """Folder and environment of a build: the CPU, no bars, nothing left behind."""
    changed = {
        store.ROOT_VARIABLE: str(run / "runs"),
        store.OUT_VARIABLE: str(run / "runs" / "lab"),  # these names are shown
        store.SKIP_VARIABLE: "",
        show.PROGRESS_VARIABLE: "0",
        hardware.DEVICE_VARIABLE: "cpu",
    }
    with engine.environment(changed), contextlib.chdir(home):
        yield
