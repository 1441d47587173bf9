"""The nouns: what a machine is and what was measured on it (frozen, no torch).

Fields end in their unit. Raw seconds and the amount of work are stored; rates and
statistics are properties, so that a reader can always recompute them.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = "1.1"
FORMAT = "gpu_lab.session"
NOISY = 0.10  # IQR / median above this: the measurement calls itself noisy


Settings = dict[str, str | int | float | bool]


class GpuLabError(Exception):
    """What was wanted, what was found, what to try: one line for the user."""


class DeviceLost(GpuLabError):
    """The device vanished while it was in use (typical: a pulled eGPU cable)."""


def first_line(error: object) -> str:
    """First line of what an error says: all that fits into one line for the user."""
    return (str(error).strip() or "no text").splitlines()[0]


class Source(StrEnum):
    """Where a number comes from. The words are never mixed."""

    MEASURED = "MEASURED"
    RECORDED = "RECORDED"
    CITED = "CITED"
    SIMULATED = "SIMULATED"
    NOT_MEASURABLE = "NOT MEASURABLE HERE"


@dataclass(frozen=True, kw_only=True)
class Link:
    """Path between host and GPU as negotiated; None where nobody can tell."""

    kind: str = "unknown"
    external: bool | None = None
    pcie_gen_current: int | None = None
    pcie_width_current: int | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    note: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeviceState:
    """Power, heat and clocks of a device at one moment; None where not told."""

    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    event_reasons: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Device:
    """One thing that computes: a GPU, or the CPU itself.

    `lost` holds the reason when the driver lists the device but it answers no more.
    `simulated` marks the stand-in: whatever is timed on it is SIMULATED.
    """

    backend: str
    name: str
    index: int = 0
    memory_bytes: int | None = None
    capability: str | None = None
    bus_id: str | None = None
    simulated: bool = False
    lost: str = ""
    link: Link | None = None
    state: DeviceState | None = None

    @property
    def label(self) -> str:
        """Name that the user types: cpu, cuda:0, xpu:1, mps."""
        single = self.backend in ("cpu", "mps")
        return self.backend if single else f"{self.backend}:{self.index}"

    @property
    def is_gpu(self) -> bool:
        """True for everything that is not the CPU itself."""
        return self.backend != "cpu"

    @property
    def torch_name(self) -> str:
        """Name that torch understands; ROCm is "cuda" there, the stand-in "cpu"."""
        if self.simulated:
            return "cpu"
        return self.label.replace("rocm", "cuda")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Passport of a machine: hardware, versions, nothing personal."""

    system: str
    python: str
    cpu_name: str
    cpu_cores: int | None
    cpu_threads: int
    memory_bytes: int
    torch_threads: int | None = None
    environment: str = ""
    power_source: str | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[Device, ...]:
        """Devices other than the CPU, lost ones included."""
        return tuple(d for d in self.devices if d.is_gpu)

    def device(self, label: str) -> Device:
        """The device with that label; raises GpuLabError naming those present."""
        for device in self.devices:
            if device.label == label:
                return device
        present = ", ".join(d.label for d in self.devices)
        raise GpuLabError(f"no device {label!r} here; found: {present}")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Repeated times of one experiment, in seconds for one call.

    Attributes:
        times_s: one entry per sample; each is the mean of `number_per_run` calls.
        cpu_times_s: CPU seconds of the measuring thread, same length as `times_s`.
        work: amount of work of one call in `work_unit` ("FLOP", "byte").
        settings: everything that must be equal for two rows to be comparable.
        decided_by: clock that decides comparisons: "wall", "cpu" or "events" (then
            `times_s` are seconds of the device).
        group: rows of one group were taken in the same rounds: entry i belongs to
            entry i. Empty for a row by itself.
        anchor_s: seconds of the fixed reference arm in the same rounds.
        flags: what is wrong with it, such as "busy" or "throttled".
        observed: what was seen during the run, such as shares of time lost.
        states: power, heat and clocks of the device, one entry a round.
        stopped: why no more samples were taken.
        reason: why nothing was timed, when `source` is NOT MEASURABLE HERE.
    """

    name: str
    device: str
    source: Source
    times_s: tuple[float, ...] = ()
    cpu_times_s: tuple[float, ...] = ()
    number_per_run: int = 1
    work: float | None = None
    work_unit: str = ""
    method_version: int = 1
    settings: Settings = field(default_factory=dict)
    decided_by: str = "wall"
    group: str = ""
    anchor_s: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()
    observed: Settings = field(default_factory=dict)
    states: tuple[DeviceState, ...] = ()
    stopped: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        """Reject what no experiment can give: empty, negative or infinite times."""
        if self.source is Source.NOT_MEASURABLE:
            if self.times_s or not self.reason:
                raise ValueError(
                    f"{self.name}: not measurable needs a reason, no times"
                )
        elif not self.times_s:
            raise ValueError(f"{self.name}: {self.source} without a time")
        if any(not (math.isfinite(t) and t > 0) for t in self.times_s):
            raise ValueError(f"{self.name}: times must be finite and above zero")
        if any(not (math.isfinite(t) and t >= 0) for t in self.cpu_times_s):
            raise ValueError(f"{self.name}: CPU times must be finite, not below zero")
        if self.cpu_times_s and len(self.cpu_times_s) != len(self.times_s):
            raise ValueError(f"{self.name}: one CPU time for each time, or none")

    @classmethod
    def not_measurable(cls, name: str, *, device: Device, reason: str) -> Measurement:
        """The row of an experiment that this device cannot do, with the reason."""
        return cls(
            name=name,
            device=device.label,
            source=Source.NOT_MEASURABLE,
            reason=reason,
        )

    @property
    def available(self) -> bool:
        """True when there is something to read."""
        return self.source is not Source.NOT_MEASURABLE

    @property
    def median_s(self) -> float | None:
        """Median time of one call, in seconds."""
        return statistics.median(self.times_s) if self.times_s else None

    @property
    def iqr_s(self) -> float | None:
        """Distance between the quartiles of the times, in seconds."""
        if len(self.times_s) < 2:
            return 0.0 if self.times_s else None
        low, _, high = statistics.quantiles(self.times_s, n=4, method="inclusive")
        return high - low

    @property
    def deciding_s(self) -> tuple[float, ...]:
        """Times by the clock that decides comparisons, in seconds."""
        cpu = self.decided_by == "cpu" and all(t > 0 for t in self.cpu_times_s)
        return self.cpu_times_s if cpu and self.cpu_times_s else self.times_s

    @property
    def noisy(self) -> bool:
        """True when IQR / median is above NOISY."""
        return bool(self.median_s and (self.iqr_s or 0.0) / self.median_s > NOISY)

    def time_ratio(self, other: Measurement) -> float | None:
        """This row's median time over that of the other; None without both."""
        if self.median_s and other.median_s:
            return self.median_s / other.median_s
        return None

    @property
    def rate(self) -> float | None:
        """Work a second (`work_unit` / s) at the median time."""
        return self.work / self.median_s if self.work and self.median_s else None

    @property
    def gb_per_s(self) -> float | None:
        """10**9 bytes a second at the median time; None for other work."""
        return self.rate / 1e9 if self.rate and self.work_unit == "byte" else None

    @property
    def tflops(self) -> float | None:
        """10**12 FLOP a second at the median time; None for other work."""
        return self.rate / 1e12 if self.rate and self.work_unit == "FLOP" else None


class CeilingKind(StrEnum):
    """How a ceiling is known."""

    DERIVED = "derived"
    DATASHEET = "datasheet"
    MEASURED = "measured"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The most that is possible, in FLOP or bytes a second, and how that is known."""

    value: float | None
    kind: CeilingKind
    how: str


class Verdict(StrEnum):
    """What a comparison can say."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    NO_DIFFERENCE = "no difference shown"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Speedup = reference time / candidate time, with its 95 % interval.

    `smallest` is the relative effect that these data could have shown in four of five
    repetitions, `margin` the one below which differences do not matter.
    """

    verdict: Verdict
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    smallest: float | None = None
    margin: float = 0.0
    reason: str = ""


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


def plain(value: Any) -> Any:
    """Records as plain dicts, lists and texts, ready for JSON."""
    if hasattr(value, "__dataclass_fields__"):
        return {
            name: plain(getattr(value, name)) for name in value.__dataclass_fields__
        }
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, StrEnum) else value
