"""What a run folder says of itself: settings and the state of each step (run.json)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from gpu_lab import records, redact, store

NAME = "run.json"
FORMAT = "gpu_lab.run"
SCHEMA = "1.0"
OK, FAILED, WAITING, INTERRUPTED = "ok", "failed", "waiting", "interrupted"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: a session of the core suite or a notebook."""

    name: str
    kind: str
    state: str = WAITING
    seconds: float = 0.0
    cell: int = 0
    cells: int = 0
    line: str = ""
    cause: str = ""

    @property
    def where(self) -> str:
        """Cell in which a notebook ended badly; empty for all else."""
        if not (self.cell and self.cause):
            return ""
        return f"cell {self.cell} of {self.cells} ({self.line}): "


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Settings and steps of one run; pid and time of the process that writes it."""

    device: str
    profile: str
    seed: int
    created: str
    steps: tuple[Step, ...] = ()
    edition: str = "student"
    format: str = FORMAT
    schema: str = SCHEMA
    lost: tuple[str, ...] = field(default_factory=tuple)
    pid: int | None = None
    time: str = ""

    def with_step(self, step: Step) -> Manifest:
        """The same run with one step changed or added at the end."""
        names = [s.name for s in self.steps]
        if step.name not in names:
            return replace(self, steps=(*self.steps, step))
        steps = tuple(step if s.name == step.name else s for s in self.steps)
        return replace(self, steps=steps)

    @property
    def failed(self) -> tuple[Step, ...]:
        """Steps that ended badly or were not reached."""
        return tuple(s for s in self.steps if s.state != OK)


def save(manifest: Manifest, folder: Path) -> None:
    """Write run.json atomically and redacted."""
    store.write_json(redact.tree(records.plain(manifest)), folder / NAME)


def load(folder: Path) -> Manifest:
    """Manifest of a run folder.

    Raises:
        StoreError: no run.json, or one that is not ours; names what was wanted.
    """
    path = folder / NAME
    return store.load_record(path, Manifest, form=FORMAT, schema=SCHEMA)
