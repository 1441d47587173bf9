"""Copies for validation: parameters injected, stored outputs kept, nothing run.

nbval runs each copy and compares. The injected cell has no count and no output, so it
is run and not compared; the committed notebooks never hold one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_lab.course import engine, notebooks
from gpu_lab.course.notebooks import Notebook
from gpu_lab.records import GpuLabError

INJECTED = "injected-parameters"


def prepare(
    names: tuple[str, ...] = (),
    *,
    device: str,
    profile: str,
    seed: int,
    out: Path,
    folder: Path | None = None,
) -> list[Path]:
    """Write copies of the student editions wanted into `out`; their paths.

    Raises:
        GpuLabError: no such notebook or profile, or a notebook with other parameters;
            nothing was written.
    """
    if profile not in engine.LIMITS:
        raise GpuLabError(
            f"unknown profile {profile!r}; wanted {', '.join(engine.LIMITS)}"
        )
    wanted = notebooks.names(names, folder=folder)
    sources = [notebooks.built_path(name, "student", folder) for name in wanted]
    for path in sources:
        notebooks.require_parameters(path)
    given = {"device": device, "profile": profile, "seed": seed}
    return [notebooks.write(_copy(p, given), out / p.name) for p in sources]


def _copy(path: Path, parameters: dict[str, Any]) -> Notebook:
    """The notebook with its parameters, without papermill's notes of paths."""
    import papermill

    notebook = papermill.execute_notebook(
        path,
        None,
        parameters=parameters,
        prepare_only=True,
        kernel_name="python3",
        progress_bar=False,
    )
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        if not notebooks.tags(cell):
            cell.metadata.pop("tags", None)  # papermill gives every cell a list
        if INJECTED in notebooks.tags(cell):
            cell.id = INJECTED  # papermill's is random
    return notebook
