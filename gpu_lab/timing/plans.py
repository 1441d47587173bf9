"""How long to measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to measure, in wall seconds of patience.

    Attributes:
        budget_s: hard limit; one sample of each arm more at most. On a device that
            keeps a queue it begins after the warm-up.
        precision: relative half-width at which to stop; by default 2 %, on a device
            that keeps a queue 0.5 %.
        sample_s: target of one sample; by default half a millisecond, or 1,200 times
            what a sample of nothing reads; on the device's queue 1 ms.
        rounds: fixed number of rounds, for CI; then nothing stops earlier.
        warmup: calls before anything is timed (a queue is warmed up by condition).
    """

    budget_s: float = 2.0
    precision: float | None = None
    sample_s: float | None = None
    rounds: int | None = None
    max_rounds: int = 1000
    warmup: int = 2


# An answer within a second, with all that belongs to it.
QUICK = Plan(budget_s=0.9)
CLASS = Plan(budget_s=2.0)
FULL = Plan(budget_s=5.0)
PLANS = {"quick": QUICK, "class": CLASS, "full": FULL}
