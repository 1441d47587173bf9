"""What the samples themselves say: which clock decides, and what went wrong."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_lab.records import DeviceState
from gpu_lab.timing import noise
from gpu_lab.timing.samplers import Reading
from gpu_lab.timing.stats import log_interval

if TYPE_CHECKING:
    from gpu_lab.timing.core import Timing

LOST = 0.02  # share of wall without CPU time above which the clocks disagree
WAITS = 0.10  # share of wall that nothing explains: the call itself waits
OTHERS = 0.05  # CPU time of other threads over wall: the arm computes in parallel
DRIFT = 0.01
# Event reasons of NVML that slow a card down against its will: hardware slowdown,
# software thermal, hardware thermal, power brake (nvml.h, nvmlClocksEventReasons).
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80
# Two heaps: further apart than the best split of normal noise, whose 12 samples pass
# 6.5 scatters in 2 of 1,000 series; more samples hardly ever do.
HEAP_GAP, HEAP_SHARE, HEAP_RATIO = 6.5, 0.2, 0.03


def decides(readings: Sequence[Reading], shares: dict[str, float]) -> str:
    """Which clock decides a comparison on the host: "wall" or "cpu".

    CPU time decides when the thread lost time to others in the run queue. Not when it
    computes in parallel (threads that spin make CPU time misleading), nor when it
    waits by itself (then the waiting is what the user waits for).
    """
    lost = _lost(readings)
    if shares.get("others_share", 0.0) > OTHERS or lost <= LOST:
        return "wall"
    explained = shares.get("delay_share", 0.0) + shares.get("steal_share", 0.0)
    return "cpu" if explained >= lost / 2 else "wall"


def found(
    timing: Timing,
    readings: Sequence[Reading],
    *,
    hot: bool,
    on_cpu: bool,
) -> tuple[str, ...]:
    """Names of all flags that are raised, in a fixed order.

    Args:
        on_cpu: the host itself computes; waiting for a device is no finding.
    """
    on_host = timing.decided_by != "events"
    shares = {k: float(v) for k, v in timing.observed.items() if k in noise.SHARES}
    cpu = timing.decided_by == "cpu" and min(timing.cpu_times_s) > 0
    decisive = timing.cpu_times_s if cpu else timing.times_s
    raised = {
        "busy": on_host and noise.busy(shares),
        "throttled": throttled(timing.states),
        "launch-bound": sum(r.launch_bound for r in readings) * 2 > len(readings),
        "bimodal": bimodal(decisive),
        "hot-cache": hot,
        "drifting": drift(timing.anchor_s, decisive),
        "waits": on_cpu and waits(readings, shares),
    }
    return tuple(name for name, on in raised.items() if on)


def waits(readings: Sequence[Reading], shares: dict[str, float]) -> bool:
    """Whether the call itself waits: it sleeps, reads files, waits for others."""
    explained = shares.get("delay_share", 0.0) + shares.get("steal_share", 0.0)
    parallel = shares.get("others_share", 0.0) > OTHERS
    return not parallel and _lost(readings) - explained > WAITS


def bimodal(times_s: Sequence[float]) -> bool:
    """Whether the samples lie in two heaps far apart (best split of the logarithms)."""
    import numpy as np

    logs, n = np.sort(np.log(times_s)), len(times_s)
    if n < 12:
        return False
    logs -= logs.mean()
    fewest = max(2, round(HEAP_SHARE * n))
    k = np.arange(fewest, n - fewest + 1)
    below = np.cumsum(logs)[k - 1]  # the sum above is its opposite
    gap = -below / (n - k) - below / k
    squares = logs @ logs - below**2 / k - below**2 / (n - k)
    within = np.sqrt(np.maximum(squares, 0.0) / (n - 2))
    return bool(np.any((gap > HEAP_RATIO) & (gap > HEAP_GAP * within)))


def drift(anchor_s: Sequence[float], times_s: Sequence[float]) -> bool:
    """Whether the reference arm ran at another speed at the end than at the start.

    First against last third: further apart than the result's half-width, than DRIFT,
    and than three standard errors of the anchor's own scatter.
    """
    third = len(anchor_s) // 3
    if third < 4:
        return False
    logs = [math.log(t) for t in anchor_s]
    first, last = logs[:third], logs[-third:]
    moved = abs(statistics.median(last) - statistics.median(first))
    variance = statistics.variance(first) + statistics.variance(last)
    # A median scatters 1.25 times as much as a mean.
    scatter = 1.25 * math.sqrt(variance / third)
    result = log_interval(times_s)
    return moved > max(DRIFT, result.half_width / result.estimate, 3 * scatter)


def throttled(states: Sequence[DeviceState]) -> bool:
    """Whether the driver named heat or power as a brake in any round."""
    return any((s.event_reasons or 0) & THROTTLED for s in states)


def _lost(readings: Sequence[Reading]) -> float:
    """Share of the samples' wall time in which the thread had no CPU time."""
    wall_s = sum(r.wall_s for r in readings) or 1e-12
    return (wall_s - sum(r.cpu_s for r in readings)) / wall_s
