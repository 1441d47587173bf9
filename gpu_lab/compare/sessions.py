"""What several sessions, fresh processes, say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from gpu_lab.timing import Interval
from gpu_lab.timing.stats import CONFIDENCE


def sessions_interval(
    medians_s: Sequence[float], *, confidence: float = CONFIDENCE
) -> Interval:
    """Geometric mean of the medians of sessions, in seconds, with Student's interval.

    The session is the unit: within one process times agree with each other far
    better than with the next process (Kalibera and Jones 2013).

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
