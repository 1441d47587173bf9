"""Executes one notebook with papermill, with time limits and a call at each cell."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_lab import redact
from gpu_lab.course import notebooks
from gpu_lab.records import GpuLabError, first_line

ENGINE = "gpu_lab"
START_LIMIT_S = 120
SMALLEST_LIMIT_S = 1
LONGEST_TEXT = 100_000  # characters of one output in the executed copy
LONGEST_CAUSE = 300
IMAGE = re.compile(r"(data:image/png;base64,[A-Za-z0-9+/=]+)")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Most seconds that one cell and one notebook may take."""

    cell_s: float
    notebook_s: float


LIMITS = {
    "quick": Limits(cell_s=120, notebook_s=300),
    "class": Limits(cell_s=300, notebook_s=1200),
    "full": Limits(cell_s=1800, notebook_s=7200),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a notebook ended: cause is empty when it went well.

    `line` is the first line of the last cell that was started.
    """

    cell: int
    cells: int
    line: str = ""
    cause: str = ""


def execute(
    source: Path,
    target: Path,
    *,
    parameters: dict[str, Any],
    limits: Limits,
    on_cell: Callable[[int, int], None],
) -> Outcome:
    """Run a notebook and put the executed copy, redacted, at `target`.

    The copy appears whatever happens, as far as the notebook came. A cell or notebook
    over its limit is stopped; a dead kernel is an outcome, not an exception.

    Args:
        on_cell: called with the number of the cell about to run and of all cells.

    Raises:
        KeyboardInterrupt: after the partial copy was kept.
        OSError: the copy could not be written.
    """
    position = _Position(on_cell)
    with tempfile.TemporaryDirectory(prefix="gpu-lab-") as folder:
        partial = Path(folder) / target.name
        try:
            cause = _papermill(source, partial, parameters, limits, position)
        finally:
            if partial.is_file():
                keep(partial, target)
    return Outcome(
        cell=position.cell, cells=position.cells, line=position.line, cause=cause
    )


@contextlib.contextmanager
def environment(changed: dict[str, str]) -> Iterator[None]:
    """Variables that kernels and children inherit, put back afterwards.

    MPLBACKEND is always taken out: agg in it would leave notebooks without pictures.
    """
    before = dict(os.environ)
    os.environ.update(changed)
    os.environ.pop("MPLBACKEND", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def keep(partial: Path, target: Path) -> None:
    """Redact an executed notebook and write it in one step."""
    try:
        notebook = notebooks.read(partial)
    except GpuLabError:  # cut off by a full disk: nothing to keep
        return
    notebook.metadata.pop("papermill", None)  # holds absolute paths
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.source = redact.text(cell.source)  # people write into cells
        if "outputs" in cell:
            cell.outputs = [_redacted(output) for output in cell.outputs]
    notebooks.write(notebook, target)


class _Position:
    """Where the run is; papermill's own status calls every cell "completed"."""

    def __init__(self, on_cell: Callable[[int, int], None]) -> None:
        self.cell, self.cells, self.line = 0, 0, ""
        self._on_cell = on_cell

    def __call__(self, cell: int, cells: int, source: str) -> None:
        self.cell, self.cells = cell, cells
        self.line = (source.strip().splitlines() or [""])[0]
        self._on_cell(cell, cells)


def _papermill(
    source: Path,
    partial: Path,
    parameters: dict[str, Any],
    limits: Limits,
    position: _Position,
) -> str:
    """Cause of failure, in one line; empty when every cell ran."""
    import papermill

    deadline = time.monotonic() + limits.notebook_s
    _register_engine()
    try:
        with _quiet():
            papermill.execute_notebook(
                source,
                partial,
                parameters=parameters,
                engine_name=ENGINE,
                kernel_name="python3",
                progress_bar=False,
                start_timeout=START_LIMIT_S,
                extra_arguments=["--log-level=CRITICAL"],  # not "running over TCP"
                timeout_func=lambda _cell: _limit(limits, deadline),
                on_cell=position,
            )
    except KeyboardInterrupt:
        raise
    except Exception as error:  # papermill, nbclient and zmq each have their own
        return cause_of(error)
    return ""


def cause_of(error: Exception) -> str:
    """One line for the report from what papermill or nbclient raised."""
    kind = type(error).__name__
    if kind == "PapermillExecutionError":
        said = f"{getattr(error, 'ename', '')}: {getattr(error, 'evalue', '')}"
        return first_line(said)[:LONGEST_CAUSE]
    if kind == "DeadKernelError":
        return "the kernel died (killed, out of memory, or a crash in native code)"
    if kind == "CellTimeoutError":
        return "the cell or the notebook took longer than its time limit"
    return f"{kind}: {first_line(error)}"[:LONGEST_CAUSE]


def _limit(limits: Limits, deadline: float) -> float:
    left = deadline - time.monotonic()
    return max(SMALLEST_LIMIT_S, min(limits.cell_s, left))


def _register_engine() -> None:
    """Papermill's own engine, plus a call at the start of each cell."""
    from papermill.engines import NBClientEngine, papermill_engines

    class Engine(NBClientEngine):  # type: ignore[misc]  # papermill has no types
        @classmethod
        def execute_managed_notebook(
            cls, nb_man: Any, kernel_name: str, on_cell: Any = None, **options: Any
        ) -> Any:
            start, cells = nb_man.cell_start, len(nb_man.nb.cells)

            def cell_start(
                cell: Any, cell_index: int | None = None, **more: Any
            ) -> Any:
                on_cell((cell_index or 0) + 1, cells, cell.source)
                return start(cell, cell_index, **more)

            nb_man.cell_start = cell_start
            return super().execute_managed_notebook(nb_man, kernel_name, **options)

    papermill_engines.register(ENGINE, Engine)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep papermill's log and jupyter_client's remark on loopback TCP off stderr."""
    # Said when a stopped run is cleaned away, long after this block.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loggers = [logging.getLogger(n) for n in ("papermill", "traitlets")]
    before = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(loggers, before, strict=True):
            log.setLevel(level)


def _redacted(output: Any) -> Any:
    if "traceback" in output:
        output.traceback = [redact.text(_short(line)) for line in output.traceback]
    for key in ("text", "evalue"):
        if key in output:
            output[key] = redact.text(_short(output[key]))
    for kind, data in output.get("data", {}).items():
        if kind.startswith("text/"):
            output["data"][kind] = _outside_images(data)
    return output


def _outside_images(text: str) -> str:
    """Redact a text but not the pictures in it, which a chance match would break."""
    parts = IMAGE.split(text)  # odd places are the pictures themselves
    return "".join(p if i % 2 else redact.text(_short(p)) for i, p in enumerate(parts))


def _short(text: str) -> str:
    """The text without its middle when a loop has printed megabytes."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    cut = f"\n[{len(text) - 2 * half} characters left out]\n"
    return text[:half] + cut + text[-half:]
