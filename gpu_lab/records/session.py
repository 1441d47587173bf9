"""One process that measured, with its answers and its ladder."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_lab.records.base import FORMAT, SCHEMA, GpuLabError, Source
from gpu_lab.records.machine import Machine
from gpu_lab.records.measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came out of one exercise; `detail` is the hint or the distance."""

    exercise: str
    kind: str
    verdict: str
    detail: str = ""
    value: float | None = None

    def __repr__(self) -> str:
        """One line for the learner: verdict, exercise, hint."""
        return f"{self.verdict}  {self.exercise}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung of the ladder: answer is "yes", "no" or "cannot tell"."""

    name: str
    question: str
    answer: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """The rungs from "the OS lists it" to "a copy is bit-equal", bottom first.

    `note` says where the findings come from when not from this machine.
    """

    rungs: tuple[Rung, ...]
    device: str = "cpu"
    remedy: str = ""
    note: str = ""

    @property
    def owner(self) -> str:
        """Whose ladder it is, in words: a CPU has none of its own."""
        return "This machine" if self.device == "cpu" else self.device

    @property
    def first_failed(self) -> Rung | None:
        """Lowest rung whose answer is "no"; None when there is none."""
        return next((r for r in self.rungs if r.answer == "no"), None)

    @property
    def height(self) -> int:
        """How many rungs from the bottom are "yes" without a gap."""
        answers = [r.answer == "yes" for r in self.rungs]
        return answers.index(False) if False in answers else len(answers)


@dataclass(frozen=True, kw_only=True)
class Session:
    """One process that measured: the machine, its settings and all raw samples."""

    suite: str
    created: str
    profile: str
    device: str
    seed: int
    machine: Machine
    measurements: tuple[Measurement, ...] = ()
    answers: tuple[Answer, ...] = ()
    ladder: Ladder | None = None
    stated: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    gpu_lab: str = ""
    format: str = FORMAT
    schema: str = SCHEMA

    def measurement(self, name: str) -> Measurement:
        """The row of that name; raises GpuLabError naming those present."""
        for row in self.measurements:
            if row.name == name:
                return row
        names = ", ".join(m.name for m in self.measurements) or "none"
        raise GpuLabError(f"no measurement {name!r} in {self.suite}; found: {names}")

    def mislabelled(self) -> list[str]:
        """Rows that call themselves MEASURED although the device is the stand-in."""
        faked = {d.label for d in self.machine.devices if d.simulated}
        return [
            m.name
            for m in self.measurements
            if m.device in faked and m.source in (Source.MEASURED, Source.RECORDED)
        ]
