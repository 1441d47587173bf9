"""The roofline picture: what memory and arithmetic allow, and what was reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpu_lab import fit, units
from gpu_lab.bench import ceiling
from gpu_lab.plot.picture import Picture, finish, literal, new_axes
from gpu_lab.records import Ceiling, Measurement

LEFT, RIGHT = 1 / 16, 4096  # FLOP per byte
LABEL: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
TOP: dict[str, Any] = {"va": "top", "fontsize": 9}


def roofline(rows: Sequence[Measurement], *, memory: Ceiling, peak: Ceiling) -> Picture:
    """Points under two ceilings, both axes logarithmic; rows without FLOP are left out.

    Args:
        memory: in bytes a second, peak: in FLOP a second; see `bench.ceiling`.
    """
    figure, axes = new_axes()
    known = [
        (x, y, r) for r in rows if (x := fit.intensity(r)) and (y := fit.flop_per_s(r))
    ]
    for x, y, row in known:
        axes.plot(x, y / 1e12, "o", color="#3f90da", markersize=8)
        beside = str(row.settings.get("n", row.name))  # "n = 1024" has no room
        axes.annotate(beside, (x, y / 1e12), (0, -15), **LABEL)
    if memory.value and peak.value:
        _draw_roof(axes, memory.value, peak.value)
    axes.set(xscale="log", yscale="log", xlim=(LEFT, RIGHT))
    low, high = axes.get_ylim()
    axes.set_ylim(low / 2, 4 * high)  # room for the words
    left = f"memory {units.bandwidth(memory.value)}, {memory.kind}"
    right = f"arithmetic {units.flops(peak.value)}, {peak.kind}"
    axes.text(0.02, 0.97, left, transform=axes.transAxes, **TOP)
    axes.text(0.98, 0.97, right, transform=axes.transAxes, ha="right", **TOP)
    title = roofline_title(memory, peak)
    axes.set(xlabel="FLOP per byte of memory", ylabel="rate (TFLOPS)", title=title)
    reached = "; ".join(_reached(x, y, r, memory, peak) for x, y, r in known)
    sources = ", ".join(sorted({str(row.source) for *_, row in known})) or "none"
    caption = f"{title}. Ceilings: {left}; {right}. Points: {sources}, products by n."
    return finish(figure, alt=f"Roofline. {caption} {reached}.", caption=caption)


def roofline_title(memory: Ceiling, peak: Ceiling) -> str:
    """The finding: up to where memory is the limit."""
    if not memory.value or not peak.value:
        return "no ceiling is known"
    ridge = units.number(peak.value / memory.value, 2)
    return f"below {ridge} FLOP per byte the memory is the limit"


def _draw_roof(axes: Any, memory: float, peak: float, color: str = "#bd1f01") -> None:
    ridge = peak / memory
    heights = [memory * LEFT / 1e12, peak / 1e12, peak / 1e12]
    axes.plot([LEFT, ridge, RIGHT], heights, color=color)


def _reached(
    at: float, rate: float, row: Measurement, memory: Ceiling, peak: Ceiling
) -> str:
    share = ceiling.share(rate, fit.bound(at, memory=memory, peak=peak))
    return f"{_short(row)}: {units.flops(rate)}, {share} of its bound"


def _short(row: Measurement) -> str:
    """Name of a point in words: "n = 512" or "triad"."""
    return f"n = {row.settings['n']}" if "n" in row.settings else row.name


def rooflines(runs: Mapping[str, Sequence[Measurement]]) -> Picture:
    """Rooflines of several machines in one picture, each from its own best rates.

    Args:
        runs: name -> rows of copies, triads and products; their highest rates are the
            roof of that machine, of kind measured.
    """
    figure, axes = new_axes()
    found = []
    for number, (name, marker) in enumerate(zip(runs, "osD^vP*X", strict=False)):
        rows = runs[name]
        memory, peak = _best(rows, "byte"), _best(rows, "FLOP")
        points = [
            (x, y) for r in rows if (x := fit.intensity(r)) and (y := fit.flop_per_s(r))
        ]
        axes.plot(
            [x for x, _y in points],
            [y / 1e12 for _x, y in points],
            f"C{number}{marker}",
            label=literal(name),
        )
        if memory.value and peak.value:
            _draw_roof(axes, memory.value, peak.value, color=f"C{number}")
            found.append(f"{name}: {roofline_title(memory, peak)}")
    axes.set(xscale="log", yscale="log", xlim=(LEFT, RIGHT))
    axes.legend(fontsize=8, loc="lower right")
    title = f"{len(found)} rooflines, from each machine's own best rates"
    axes.set(xlabel="FLOP per byte of memory", ylabel="rate (TFLOPS)", title=title)
    caption = f"{title}, measured. {'; '.join(found)}."
    return finish(figure, alt=f"Rooflines over each other. {caption}", caption=caption)


def _best(rows: Sequence[Measurement], unit: str) -> Ceiling:
    rates = [row.rate for row in rows if row.work_unit == unit and row.rate]
    return ceiling.measured_best(max(rates, default=None), how="highest rate shown")
