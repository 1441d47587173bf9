"""Speedups of many rows with their intervals: the forest plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpu_lab import units
from gpu_lab.compare import Row
from gpu_lab.plot.picture import Picture, finish, literal, new_axes
from gpu_lab.records import Verdict

# Colour and marker say the same.
LOOKS = {
    Verdict.FASTER: {"color": "#3f90da", "marker": ">"},
    Verdict.SLOWER: {"color": "#bd1f01", "marker": "<"},
    Verdict.EQUIVALENT: {"color": "#2b2b2b", "marker": "s"},
    Verdict.NO_DIFFERENCE: {"color": "#717581", "marker": "o", "mfc": "white"},
}
WIDEST = 100.0  # an interval beyond is drawn to the edge


def forest(rows: Sequence[Row]) -> Picture:
    """Speedup of each row, dot and 95 % interval; grey: differences that do not matter.

    Rows that cannot be compared keep their place, with the words in it.
    """
    figure, axes = new_axes()
    for height, row in enumerate(reversed(rows)):
        _draw(axes, height, row)
    axes.axvline(1.0, color="#717581", linewidth=1)
    axes.set_yticks(range(len(rows)), [literal(row.name) for row in reversed(rows)])
    axes.set(xscale="log", ylim=(-0.6, len(rows) - 0.4))
    low, high = axes.get_xlim()
    low, high = max(min(low, 0.8), 1 / WIDEST), min(max(high, 1.25), WIDEST)
    axes.set_xlim(low, high)
    ticks = [
        t
        for t in (0.01, 0.1, 0.25, 0.5, 0.8, 1, 1.25, 2, 4, 10, 100)
        if low <= t <= high
    ]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    title = forest_title(rows)
    axes.set(xlabel="speedup (reference time / candidate time)", title=title)
    alt = f"Speedup of each row. {title}. {'; '.join(map(_words, rows))}."
    return finish(
        figure, alt=alt, caption=f"{title}. Right of 1: the candidate is faster."
    )


def forest_title(rows: Sequence[Row]) -> str:
    """The finding: how many rows of each verdict."""
    count = Counter(row.comparison.verdict for row in rows)
    named = (Verdict.FASTER, Verdict.SLOWER, Verdict.EQUIVALENT)
    silent = len(rows) - sum(count[verdict] for verdict in named)
    words = [f"{count[verdict]} {verdict}" for verdict in named]
    return ", ".join([*words, f"{silent} say nothing"])


def _draw(axes: Any, height: int, row: Row) -> None:
    found = row.comparison
    if found.speedup is None or found.low is None or found.high is None:
        axes.text(1.0, height, f" {found.verdict}", va="center", color="#717581")
        return
    margin = 1 + found.margin
    axes.fill_betweenx(
        [height - 0.4, height + 0.4], 1 / margin, margin, color="#e4e4e4"
    )
    ends = [max(found.low, 1 / WIDEST), min(found.high, WIDEST)]
    look = LOOKS[found.verdict]
    axes.plot(ends, [height, height], color=look["color"], linewidth=2)
    axes.plot(found.speedup, height, linestyle="none", markersize=8, **look)


def _words(row: Row) -> str:
    found = row.comparison
    if found.speedup is None:
        return f"{row.name} {found.verdict}"
    ends = f"{units.ratio(found.low, 3)} to {units.ratio(found.high, 3)}"
    return f"{row.name} {found.verdict} {units.ratio(found.speedup, 3)} ({ends})"
