"""Verdict on two rows of one machine that were taken in the same rounds."""

from __future__ import annotations

import math

from gpu_lab.records import Comparison, Measurement, Source, Verdict
from gpu_lab.timing import interval, log_ratios
from gpu_lab.timing.core import FEWEST_ROUNDS

MARGIN_CPU, MARGIN_GPU = 0.05, 0.02
# From the half-width of a 95 % interval (1.96 errors) to the effect that would be
# found in four of five repetitions: 1.96 + 0.84 errors.
POWER = (1.96 + 0.84) / 1.96


def paired(
    reference: Measurement, candidate: Measurement, *, margin: float | None = None
) -> Comparison:
    """How much faster the candidate is, round by round, and how surely.

    Args:
        reference, candidate: rows of one group (`bench.together`).
        margin: differences below it do not matter; by default 5 % on a CPU, 2 % on a
            device that times itself.

    Returns:
        Comparison with `speedup` = reference time / candidate time (Hodges-Lehmann of
        the rounds) and its 95 % interval. Rows that were not taken together are not
        comparable: their difference would be the machine's mood.
    """
    reason = _not_comparable(reference, candidate)
    if reason:
        return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=reason)
    if margin is None:
        margin = MARGIN_GPU if reference.decided_by == "events" else MARGIN_CPU
    found = interval(log_ratios(reference.deciding_s, candidate.deciding_s))
    if not math.isfinite(found.half_width):
        reason = "too few independent rounds: give it more time"
        return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=reason)
    verdict = _verdict(found.estimate, found.low, found.high, margin)
    return Comparison(
        verdict=verdict,
        speedup=math.exp(found.estimate),
        low=math.exp(found.low),
        high=math.exp(found.high),
        smallest=max(math.expm1(POWER * found.half_width), margin / 2),
        margin=margin,
    )


def _not_comparable(reference: Measurement, candidate: Measurement) -> str:
    """The first reason why these two may not be judged; empty when they may."""
    for row in (reference, candidate):
        if row.source is Source.NOT_MEASURABLE:
            return f"{row.name}: {row.reason}"
    rounds = len(reference.times_s)
    same_rounds = reference.group and reference.group == candidate.group
    throttled = [row.name for row in (reference, candidate) if "throttled" in row.flags]
    reasons = {
        "not taken in the same rounds": not same_rounds,
        f"{reference.source} against {candidate.source}": (
            reference.source is not candidate.source
        ),
        f"only {''.join(throttled)} was throttled": len(throttled) == 1,
        f"{rounds} rounds, wanted at least {FEWEST_ROUNDS}: give it more time": (
            rounds < FEWEST_ROUNDS
        ),
    }
    return next((reason for reason, true in reasons.items() if true), "")


def _verdict(estimate: float, low: float, high: float, margin: float) -> Verdict:
    """Asked in this order: faster or slower, equivalent, otherwise nothing shown."""
    if low > 0 and estimate > math.log1p(margin / 2):
        return Verdict.FASTER
    if high < 0 and estimate < -math.log1p(margin / 2):
        return Verdict.SLOWER
    limit = math.log1p(margin)
    inside = -limit < low and high < limit
    return Verdict.EQUIVALENT if inside else Verdict.NO_DIFFERENCE
