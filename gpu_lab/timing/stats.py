"""Estimates and intervals of few, noisy, sometimes correlated values.

Used for stopping by `timing` and for verdicts by `compare`. Exact where that is cheap.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE = 0.95
FEW = 15  # below: order statistics of the median, which ask nothing of the shape
MANY = 100  # above: the normal distribution stands for the exact one
LAG = 0.2  # neighbours correlated more than this are averaged first
FEWEST_BATCHES = 6  # with fewer no interval has 95 %


@dataclass(frozen=True)
class Interval:
    """Estimate with its interval; infinite ends when there are too few values."""

    estimate: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the ends."""
        return (self.high - self.low) / 2


def interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval:
    """Hodges-Lehmann estimate of the centre of `values` with its interval.

    The estimate is the median of all pairwise means; the interval inverts Wilcoxon's
    signed-rank test (Hodges and Lehmann 1963), or, below FEW values, the sign test.
    Values whose neighbours are correlated are averaged in pairs before.

    Args:
        values: logarithms of times or of ratios, in the order of the rounds.
    """
    import numpy as np

    y = _independent(np.asarray(values, dtype=float))
    means = _pairwise_means(y)
    chosen, tail = (y, sign_tail) if len(y) < FEW else (means, signed_rank_tail)
    cut = tail(len(y), (1 - confidence) / 2)
    low, high = -math.inf, math.inf
    if cut:  # partition, not sort: a thousand rounds have half a million means
        ends = np.partition(chosen, (cut - 1, len(chosen) - cut))
        low, high = float(ends[cut - 1]), float(ends[-cut])
    return Interval(float(np.median(means)), low, high)


def log_interval(
    values: Sequence[float], *, confidence: float = CONFIDENCE
) -> Interval:
    """As `interval`, of logarithms of positive values, given back as values."""
    found = interval([math.log(v) for v in values], confidence=confidence)
    low = math.exp(found.low) if math.isfinite(found.low) else 0.0
    high = math.exp(found.high) if math.isfinite(found.high) else math.inf
    return Interval(math.exp(found.estimate), low, high)


def log_ratios(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Logarithm of first over second, pair by pair: above 0 where second is faster."""
    return [math.log(a / b) for a, b in zip(first, second, strict=True)]


@functools.cache
def signed_rank_tail(n: int, probability: float) -> int:
    """How many sums of the signed-rank statistic of n lie in a lower tail.

    The largest k with P(W <= k - 1) <= probability, from the exact distribution; above
    MANY values, where that would take a second, from the normal one: a hair wider.
    """
    import numpy as np

    if n > MANY:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        sums = statistics.NormalDist(n * (n + 1) / 4, spread)
        return int(sums.inv_cdf(probability) + 0.5)
    chances = np.zeros(n * (n + 1) // 2 + 1)
    chances[0] = 1.0
    for rank in range(1, n + 1):
        shifted = np.zeros_like(chances)
        shifted[rank:] = chances[:-rank]
        chances = (chances + shifted) / 2
    return int(np.searchsorted(np.cumsum(chances), probability, side="right"))


@functools.cache
def sign_tail(n: int, probability: float) -> int:
    """The largest k with P(Binomial(n, 1/2) <= k - 1) <= probability."""
    chance, k = 0.0, 0
    while (chance := chance + math.comb(n, k) / 2**n) <= probability:
        k += 1
    return k


def lag_one(values: Any) -> float:
    """Correlation of neighbours (lag 1); 0 for values that are all equal."""
    import numpy as np

    centred = np.asarray(values, dtype=float) - np.mean(values)
    total = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / total if total > 0 else 0.0


def _independent(y: Any) -> Any:
    """Average neighbours until they are no more correlated (method of batches)."""
    while len(y) >= 2 * FEWEST_BATCHES and lag_one(y) > LAG:
        y = y[: len(y) // 2 * 2].reshape(-1, 2).mean(axis=1)
    return y


def _pairwise_means(y: Any) -> Any:
    import numpy as np

    first, second = np.triu_indices(len(y))
    return (y[first] + y[second]) / 2
