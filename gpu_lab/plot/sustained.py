"""Speed over time: what is left of it once the device is warm."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from gpu_lab import units
from gpu_lab.plot.picture import HATCH, Picture, finish, new_axes
from gpu_lab.records import Measurement

FEW = 3  # samples whose median is the start, or the end


def sustained(rows: Sequence[Measurement]) -> Picture:
    """Speed of each row over time, as a multiple of its own start."""
    figure, axes = new_axes()
    known = [row for row in rows if row.available]
    for row, marker in zip(known, "osD^", strict=False):
        _line(axes, row, marker)
    found = ", ".join(_finding(row) for row in known)
    title = f"speed at the end: {found or 'nothing was timed'}"
    axes.set(xlabel="time at work (s)", ylabel="speed / speed at the start (ratio)")
    axes.set(ylim=(0, max(1.35, 1.05 * axes.get_ylim()[1])), title=title)
    alt = f"Lines of speed over time, as a multiple of the start. {title}."
    return finish(figure, alt=alt, caption=f"{title}.")


def _finding(row: Measurement) -> str:
    first, last = row.times_s[:FEW], row.times_s[-FEW:]
    kept = statistics.median(first) / statistics.median(last)
    return f"{row.source} {units.ratio(kept)}"


def _line(axes: Any, row: Measurement, marker: str) -> None:
    start_s = statistics.median(row.times_s[:FEW])
    at_s = list(accumulate(t * row.number_per_run for t in row.times_s))
    speed = [start_s / t for t in row.times_s]
    axes.plot(at_s, speed, marker=marker, label=f"{row.name}, {row.source}")
    if HATCH[row.source]:
        looks = {"facecolor": "none", "edgecolor": "#717581", "alpha": 0.3}
        axes.fill_between(at_s, speed, hatch=HATCH[row.source], **looks)
    axes.legend(loc="lower left", framealpha=1.0)
