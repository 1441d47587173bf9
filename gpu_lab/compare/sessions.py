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
    from scipy import stats

    if len(medians_s) < 2:
        raise ValueError(f"wanted at least two sessions, found {len(medians_s)}")
    logs = [math.log(m) for m in medians_s]
    middle, k = statistics.fmean(logs), len(logs)
    t = float(stats.t.ppf((1 + confidence) / 2, k - 1))
    half = t * statistics.stdev(logs) / math.sqrt(k)
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Interval(math.exp(middle), low, high)


def p_value(reference: Side, candidate: Side) -> float:
    """Welch's p of "both have the same mean of session medians"; 1 for no spread."""
    from scipy import stats

    first, second = reference.medians, candidate.medians
    if max(map(len, (first, second))) < 2 or first == second:
        return 1.0
    if len(set(first)) == len(set(second)) == 1:
        return 0.0
    return float(stats.ttest_ind(first, second, equal_var=False).pvalue)


def difference(
    reference: Side, candidate: Side, *, confidence: float = CONFIDENCE
) -> Interval:
    """Logarithm of the speedup, reference over candidate, with its interval.

    The wider one of Welch's t on the medians of sessions and a bootstrap of two levels
    (sessions, then rounds). Infinite ends with fewer than two sessions a side.
    """
    first, second = reference.medians, candidate.medians
    estimate = statistics.fmean(first) - statistics.fmean(second)
    if min(len(first), len(second)) < 2:
        return Interval(estimate, -math.inf, math.inf)
    low, high = estimate, estimate
    if len({*first}) > 1 or len({*second}) > 1:
        from scipy import stats

        test = stats.ttest_ind(first, second, equal_var=False)
        low, high = map(float, test.confidence_interval(confidence))
    ends = _bootstrap_ends(reference, candidate, confidence)
    return Interval(estimate, min(low, ends[0]), max(high, ends[1]))


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
    from scipy import stats

    sides = [side.medians for side in (reference, candidate) if len(side) > 1]
    if not sides:
        return None
    free = sum(len(m) - 1 for m in sides)
    spread = math.sqrt(sum((len(m) - 1) * statistics.variance(m) for m in sides) / free)
    k, other = sessions or (len(reference), len(candidate))
    if k + other <= 2:
        return None
    t = stats.t.ppf([1 - error / 2, POWER], k + other - 2).sum()
    return math.expm1(float(t) * spread * math.sqrt(1 / k + 1 / other))


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
