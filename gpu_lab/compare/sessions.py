"""What several sessions, fresh processes, say together.

The session is the unit: within one process times agree with each other far better
than with the next process (Kalibera and Jones 2013).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_lab.timing import Interval
from gpu_lab.timing.stats import CONFIDENCE

DRAWS, SEED = 2000, 0
POWER = 0.80  # an effect counts as "could have shown" when found that often


@dataclass(frozen=True)
class Side:
    """Logarithms of times, in log seconds: all rounds of each session."""

    rounds: tuple[tuple[float, ...], ...]

    @property
    def medians(self) -> list[float]:
        """One value a session: the logarithm of its median time."""
        return [statistics.median(times) for times in self.rounds]

    def __len__(self) -> int:
        """Number of sessions."""
        return len(self.rounds)


def sessions_interval(
    medians_s: Sequence[float], *, confidence: float = CONFIDENCE
) -> Interval:
    """Geometric mean of the medians of sessions, in seconds, with Student's interval.

    Raises:
        ValueError: fewer than two sessions.
    """
    if len(medians_s) < 2:
        raise ValueError(f"wanted at least two sessions, found {len(medians_s)}")
    logs = [math.log(m) for m in medians_s]
    middle, k = statistics.fmean(logs), len(logs)
    half = _t((1 + confidence) / 2, k - 1) * statistics.stdev(logs) / math.sqrt(k)
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Interval(math.exp(middle), low, high)


def p_value(reference: Side, candidate: Side) -> float:
    """Welch's p of "both have the same mean of session medians"; 1 for no spread."""
    from scipy import special

    if min(len(reference), len(candidate)) < 2:
        return 1.0
    estimate, error, free = _welch(reference, candidate)
    if not error:
        return float(estimate == 0)
    return float(2 * special.stdtr(free, -abs(estimate) / error))


def _welch(reference: Side, candidate: Side) -> tuple[float, float, float]:
    """Difference of the means, its standard error, degrees of freedom (Welch 1947)."""
    first, second = reference.medians, candidate.medians
    a, b = (statistics.variance(m) / len(m) for m in (first, second))
    estimate = statistics.fmean(first) - statistics.fmean(second)
    parts = a**2 / (len(first) - 1) + b**2 / (len(second) - 1)
    free = (a + b) ** 2 / parts if parts else math.inf
    return estimate, math.sqrt(a + b), free


def _t(probability: float, free: float) -> float:
    """Quantile of Student's t; `scipy.stats` has it too, and takes longer to load."""
    from scipy import special

    return float(special.stdtrit(free, probability))


def difference(
    reference: Side, candidate: Side, *, confidence: float = CONFIDENCE
) -> Interval:
    """Logarithm of the speedup, reference over candidate, with its interval.

    The wider one of Welch's t on the medians of sessions and a bootstrap of two levels
    (sessions, then rounds). Infinite ends with fewer than two sessions a side.
    """
    if min(len(reference), len(candidate)) < 2:
        first, second = reference.medians, candidate.medians
        estimate = statistics.fmean(first) - statistics.fmean(second)
        return Interval(estimate, -math.inf, math.inf)
    estimate, error, free = _welch(reference, candidate)
    half = _t((1 + confidence) / 2, free) * error if error else 0.0
    ends = _bootstrap_ends(reference, candidate, confidence)
    low, high = min(estimate - half, ends[0]), max(estimate + half, ends[1])
    return Interval(estimate, low, high)


def smallest_shown(
    reference: Side,
    candidate: Side,
    *,
    sessions: tuple[int, int] | None = None,
    error: float = 1 - CONFIDENCE,
) -> float | None:
    """Relative effect that such sessions would show in four of five repetitions.

    (t(1 - error/2) + t(0.80)) x s x sqrt(1/k + 1/k'), s = pooled spread of sessions.

    Args:
        sessions: how many a side; by default as many as there are.
    """
    sides = [side.medians for side in (reference, candidate) if len(side) > 1]
    if not sides:
        return None
    free = sum(len(m) - 1 for m in sides)
    spread = math.sqrt(sum((len(m) - 1) * statistics.variance(m) for m in sides) / free)
    k, other = sessions or (len(reference), len(candidate))
    if k + other <= 2:
        return None
    t = _t(1 - error / 2, k + other - 2) + _t(POWER, k + other - 2)
    return math.expm1(t * spread * math.sqrt(1 / k + 1 / other))


def _bootstrap_ends(
    reference: Side, candidate: Side, confidence: float
) -> tuple[float, float]:
    import numpy as np

    random = np.random.default_rng(SEED)
    draws = _draws(reference, random) - _draws(candidate, random)
    ends = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(ends[0]), float(ends[1])


def _draws(side: Side, random: Any) -> Any:
    """Means of medians of rounds drawn again, of sessions drawn again.

    The median of n = 2m + 1 values drawn with replacement from n sorted ones is the
    one at place floor(n U) with U from Beta(m + 1, m + 1).
    """
    import numpy as np

    k = len(side)
    chosen = random.integers(k, size=(DRAWS, k))
    found = np.empty((DRAWS, k))
    for number, rounds in enumerate(side.rounds):
        ordered, where = np.sort(rounds), chosen == number
        half = (len(ordered) + 1) / 2
        places = (random.beta(half, half, size=int(where.sum())) * len(ordered)).astype(
            int
        )
        found[where] = ordered[np.minimum(places, len(ordered) - 1)]
    return found.mean(axis=1)
