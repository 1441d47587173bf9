"""The notebooks of the course: names, sources and built files.

notebooks/src/NN_name.py            what people write
notebooks/NN_name.ipynb             student edition, built
notebooks/solutions/NN_name.ipynb   solution edition, built
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_lab import facts, store
from gpu_lab.records import GpuLabError

EDITIONS = {"student": "", "solutions": "solutions"}
# Name of each parameter -> its type and its default.
PARAMETERS: dict[str, tuple[str, Any]] = {
    "device": ("str", "auto"),
    "profile": ("str", "quick"),
    "seed": ("int", int),  # any whole number
}

# A tree of dicts and lists with attributes (nbformat.NotebookNode, which is untyped).
Notebook = Any
Cell = Any


def home() -> Path:
    """Folder `notebooks`, of the checkout or of the installed package."""
    return Path(str(facts.folder("notebooks")))


def names(selection: tuple[str, ...] = (), *, folder: Path | None = None) -> list[str]:
    """Names of the notebooks that have a source, in the order of the course.

    Args:
        selection: numbers ("00"), names ("00_start_here") or paths; () = all.

    Raises:
        GpuLabError: no such notebook; lists those that exist.
    """
    there = sorted(p.stem for p in (folder or home()).glob("src/[0-9]*.py"))
    if not selection:
        return there
    wanted = {_one(text, there) for text in selection}
    return [name for name in there if name in wanted]


def source_path(name: str, folder: Path | None = None) -> Path:
    """The file that people write."""
    return (folder or home()) / "src" / f"{name}.py"


def built_path(name: str, edition: str, folder: Path | None = None) -> Path:
    """The notebook of that edition."""
    return (folder or home()) / EDITIONS[edition] / f"{name}.ipynb"


def paths(wanted: tuple[str, ...], *, edition: str = "student") -> dict[str, Path]:
    """Name -> built file of the notebooks wanted, in order; () = the whole course.

    Args:
        wanted: numbers, names, or paths of .ipynb files of one's own.

    Raises:
        GpuLabError: no such notebook or edition; lists those that exist.
    """
    if edition not in EDITIONS:
        raise GpuLabError(f"unknown edition {edition!r}; wanted {', '.join(EDITIONS)}")
    files = dict.fromkeys(Path(w) for w in wanted if w.endswith(".ipynb"))
    own = {path.stem: path for path in files}
    if len(own) < len(files):
        raise GpuLabError("two notebooks of the same name; wanted one run folder each")
    named = tuple(w for w in wanted if not w.endswith(".ipynb"))
    course = names(named) if named or not own else []
    return {name: built_path(name, edition) for name in course} | own


def require_parameters(path: Path) -> None:
    """Raise GpuLabError unless the notebook takes exactly our parameters.

    papermill passes names that a notebook does not know without an error.
    """
    import papermill

    read(path)  # says in one line if it is not a notebook
    try:
        found = list(papermill.inspect_notebook(str(path)))
    except ValueError as error:  # no kernel or no language named in it
        raise GpuLabError(f"{path}: not a Python notebook: {error}") from error
    if set(found) != set(PARAMETERS):
        raise GpuLabError(
            f"{path.name}: wanted a cell tagged parameters with "
            f"{', '.join(PARAMETERS)}; found {', '.join(found) or 'none'}"
        )


def read(path: Path) -> Notebook:
    """One .ipynb file.

    Raises:
        GpuLabError: there is none, or it is not a notebook.
    """
    import nbformat
    from nbformat import NotebookNode

    try:
        notebook = nbformat.read(path, as_version=4)
        notebook.cells = [NotebookNode(cell) for cell in notebook.cells]
        return notebook
    except Exception as error:  # cells may be anything; nbformat has many kinds
        raise GpuLabError(
            f"{path}: wanted a notebook, found {type(error).__name__}; "
            "one of the course is built by make notebooks"
        ) from error


def write(notebook: Notebook, path: Path) -> Path:
    """Replace one .ipynb file in one step; raises OSError and keeps the old one."""
    import nbformat

    text = nbformat.writes(notebook)
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write_text(text.rstrip("\n") + "\n", path)
    return path


def tags(cell: Cell) -> list[str]:
    """Tags of a cell, in their order."""
    return list(cell.metadata.get("tags", []))


def code_cells(notebook: Notebook) -> list[Cell]:
    """The cells that a kernel runs, in their order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _one(text: str, there: list[str]) -> str:
    wanted = Path(text).stem
    for name in there:
        if wanted in (name, name.split("_")[0]):
            return name
    raise GpuLabError(
        f"no notebook {text!r}; wanted one of {', '.join(there) or 'none found'}"
    )
