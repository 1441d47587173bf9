"""When pyperf and asv call two lists of samples different, and Wilson's interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

PYPERF_P, ASV_P = 0.05, 0.002


def pyperf(a: Sequence[float], b: Sequence[float]) -> bool:
    """pyperf `compare_to`: Student's two-sample t test at 95 % (is_significant)."""
    return bool(stats.ttest_ind(a, b).pvalue < PYPERF_P)


def asv(a: Sequence[float], b: Sequence[float]) -> bool:
    """asv `compare`: Mann-Whitney U at p < 0.002 (statistics.is_different)."""
    return bool(stats.mannwhitneyu(a, b).pvalue < ASV_P)


def share(hits: int, trials: int) -> str:
    """Hits of trials in percent, with Wilson's 95 % interval."""
    low, high = wilson(hits, trials)
    return (
        f"{100 * hits / trials:.1f} % of {trials} ({100 * low:.0f} to {100 * high:.0f})"
    )


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z, p = 1.96, hits / trials
    middle = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    root = math.sqrt(p * (1 - p) / trials + z * z / (4 * trials**2))
    half = z * root / (1 + z * z / trials)
    return max(0.0, middle - half), min(1.0, middle + half)
