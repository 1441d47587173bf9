"""Intervals and estimates beside scipy, exact enumeration and seeded series."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, binomtest, wilcoxon

from gpu_lab.timing import Interval, interval, log_interval, log_ratios, stats

ALPHA = 1 - stats.CONFIDENCE
TINY = 1e-9


def normal(seed: int, n: int) -> Any:
    """A seeded normal series around zero whose neighbours are not correlated."""
    for values in (np.random.default_rng((seed, k)).normal(size=n) for k in range(99)):
        if stats.lag_one(values) <= stats.LAG:
            return values
    raise AssertionError("no such series")


def autoregressive(share: float, seed: int, n: int) -> Any:
    """Each value keeps that share of the one before it."""
    steps = np.random.default_rng(seed).normal(size=n + 50)
    for i in range(1, len(steps)):
        steps[i] += share * steps[i - 1]
    return steps[50:]


def signed_rank_p(values: Any, centre: float) -> float:
    """Exact two-sided p of Wilcoxon's test that the values lie around `centre`."""
    return float(wilcoxon(values - centre, method="exact").pvalue)


def sign_p(values: Any, centre: float) -> float:
    """Exact two-sided p of the sign test."""
    return float(binomtest(int(np.sum(values > centre)), len(values)).pvalue)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("n", "p"),
    [(6, sign_p), (9, sign_p), (12, sign_p), (14, sign_p)]
    + [(n, signed_rank_p) for n in (15, 18, 27, 40)],
)
def test_the_ends_lie_where_the_exact_test_changes_its_mind(
    n: int, p: Callable[[Any, float], float], seed: int
) -> None:
    values = normal(seed, n)
    found = interval(values)
    assert p(values, found.low + TINY) > ALPHA
    assert p(values, found.high - TINY) > ALPHA
    assert p(values, found.low - TINY) <= ALPHA
    assert p(values, found.high + TINY) <= ALPHA


def test_hodges_and_lehmann_is_the_median_of_all_pairwise_means() -> None:
    values = normal(3, 21)
    pairs = itertools.combinations_with_replacement(values, 2)
    right = np.median([(a + b) / 2 for a, b in pairs])
    assert interval(values).estimate == pytest.approx(right, abs=TINY)


@pytest.mark.parametrize("n", range(1, 13))
@pytest.mark.parametrize("probability", [0.001, 0.006, 0.025, 0.1, 0.5])
def test_the_tail_of_the_signed_ranks_is_that_of_all_signs(
    n: int, probability: float
) -> None:
    signs = np.array(list(itertools.product((0, 1), repeat=n)))
    sums = np.bincount(signs @ np.arange(1, n + 1), minlength=n * (n + 1) // 2 + 1)
    below = np.cumsum(sums) / 2**n
    right = int(np.sum(below <= probability))
    assert stats.signed_rank_tail(n, probability) == right


@pytest.mark.parametrize("probability", [0.0005, 0.0055, 0.025])
def test_many_values_have_the_normal_tail_on_the_safe_side(
    monkeypatch: pytest.MonkeyPatch, probability: float
) -> None:
    n = stats.MANY + 1
    near = stats.signed_rank_tail(n, probability)
    monkeypatch.setattr(stats, "MANY", n)
    exact = stats.signed_rank_tail.__wrapped__(n, probability)
    assert 0 <= exact - near <= 0.01 * exact


@pytest.mark.parametrize("n", [*range(1, 40), 60, 200, 1000])
def test_the_tail_of_the_signs_is_binomial(n: int) -> None:
    for probability in (0.001, 0.006, 0.025, 0.2):
        k = stats.sign_tail(n, probability)
        assert binom.cdf(k - 1, n, 0.5) <= probability + TINY
        assert binom.cdf(k, n, 0.5) > probability - TINY


@pytest.mark.parametrize("n", range(1, 6))
def test_too_few_values_have_no_interval(n: int) -> None:
    found = interval(list(range(n)))
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert found.half_width == math.inf
    assert log_interval([1.0] * n) == Interval(1.0, 0.0, math.inf)


@pytest.mark.parametrize("n", [6, 7, 8, 11, 12, 13, 14, 15, 16, 19, 27, 60, 101])
def test_the_estimate_lies_between_the_ends(n: int) -> None:
    for seed in range(40):
        random = np.random.default_rng((seed, n))
        values = random.choice(
            [random.normal(size=n), random.standard_cauchy(n), random.integers(0, 3, n)]
        )
        for confidence in (0.8, 0.95, 0.989):
            found = interval(values, confidence=confidence)
            assert found.low <= found.estimate <= found.high


def test_a_wider_confidence_is_a_wider_interval() -> None:
    values = normal(1, 40)
    widths = [interval(values, confidence=c).half_width for c in (0.5, 0.95, 0.999)]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_logarithms_are_taken_and_given_back() -> None:
    values = np.exp(normal(2, 30))
    found, logs = log_interval(values), interval(np.log(values))
    assert found.estimate == pytest.approx(math.exp(logs.estimate))
    assert (found.low, found.high) == pytest.approx(
        (math.exp(logs.low), math.exp(logs.high))
    )
    assert log_ratios([2.0, 1.0], [1.0, 2.0]) == pytest.approx(
        [math.log(2), -math.log(2)]
    )
    with pytest.raises(ValueError, match="shorter"):
        log_ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ([1.0, 1.0, 1.0], 0.0),
        ([1.0, -1.0] * 50, -0.99),
        ([1.0] * 50 + [-1.0] * 50, 0.97),
        ([0.0, 1.0, 2.0], 0.0),
    ],
)
def test_correlation_of_neighbours(values: list[float], right: float) -> None:
    assert stats.lag_one(values) == pytest.approx(right)


@pytest.mark.parametrize(
    ("values", "batches"),
    [
        ([0.0, 1.0] * 20, 40),  # neighbours that differ
        ([0.0] * 6 + [1.0] * 6, 6),  # never fewer than six batches
        ([0.0] * 5 + [1.0] * 6, 11),  # too few for batches
        ([0.0] * 6 + [1.0] * 7, 6),  # an odd one is left out
        ([0.0, 0.0, 1.0, 1.0] * 10, 40),  # of pairs, but no trend between them
        ([0.0] * 24 + [1.0] * 24, 6),
    ],
)
def test_correlated_neighbours_are_averaged(values: list[float], batches: int) -> None:
    kept = stats._independent(np.array(values))
    assert len(kept) == batches
    even = values[: len(values) // batches * batches]
    assert np.mean(kept) == pytest.approx(np.mean(even))


def coverage(series: Callable[[int, int], Any], n: int, trials: int) -> float:
    """How often the interval of a seeded series around zero holds zero."""
    found = [interval(series(seed, n)) for seed in range(trials)]
    return sum(f.low <= 0 <= f.high for f in found) / trials


@pytest.mark.parametrize("n", [12, 18, 27, 60])
def test_intervals_of_normal_series_hold_the_truth(n: int) -> None:
    given = coverage(lambda s, n: np.random.default_rng(s).normal(size=n), n, 400)
    assert 0.93 <= given <= 0.99


@pytest.mark.parametrize(("n", "least"), [(12, 0.85), (27, 0.88), (60, 0.88)])
def test_intervals_of_correlated_series_hold_the_truth_better_by_batches(
    monkeypatch: pytest.MonkeyPatch, n: int, least: float
) -> None:
    """Short series cannot tell their correlation: 0.95 is out of their reach."""

    def series(seed: int, n: int) -> Any:
        return autoregressive(0.5, seed, n)

    given = coverage(series, n, 300)
    assert given >= least
    monkeypatch.setattr(stats, "LAG", 1.0)
    assert coverage(series, n, 300) < given - 0.02
