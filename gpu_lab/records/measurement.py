"""One experiment, its ceiling, and how two of them compare."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from enum import StrEnum

from gpu_lab.records.base import NOISY, Settings, Source
from gpu_lab.records.machine import Device, DeviceState

SHORTEST_S, LONGEST_S = 1e-12, 1e9  # outside no experiment was


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
        both = (*self.times_s, *self.anchor_s)
        if any(not SHORTEST_S <= t <= LONGEST_S for t in both):
            raise ValueError(f"{self.name}: times must be finite and above zero")
        if any(not (math.isfinite(t) and t >= 0) for t in self.cpu_times_s):
            raise ValueError(f"{self.name}: CPU times must be finite, not below zero")
        if self.work is not None and not (math.isfinite(self.work) and self.work > 0):
            raise ValueError(f"{self.name}: work must be finite and above zero")
        others = {"CPU time": self.cpu_times_s, "anchor": self.anchor_s}
        for what, values in others.items():
            if values and len(values) != len(self.times_s):
                raise ValueError(f"{self.name}: one {what} for each time, or none")

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
    repetitions, `margin` the one below which differences do not matter; `sessions`
    how many of each side count, 0 where the rounds of one session do.
    """

    verdict: Verdict
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    smallest: float | None = None
    margin: float = 0.0
    reason: str = ""
    sessions: tuple[int, int] = (0, 0)
    note: str = ""
