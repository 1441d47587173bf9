"""Curves over size: the link, and where a GPU behind it breaks even with the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpu_lab import facts, fit, units
from gpu_lab.plot.picture import HATCH, Picture, finish, literal, new_axes
from gpu_lab.records import Measurement

# What was not measured here is never drawn as a solid line.
LINES = {"MEASURED": "-", "RECORDED": "-.", "CITED": "--", "SIMULATED": ":"}
MARKERS = "osD^vP*X"
RING: dict[str, Any] = {"color": "black", "fillstyle": "none", "markersize": 11}
FEWEST_ROWS, MOST_ROWS, POINTS, EVERY = 32, 4096, 100, 14
Curves = Mapping[str, Sequence[Measurement]]


def link_curves(curves: Curves, *, cited: Sequence[str] = ()) -> Picture:
    """GB/s over the size of a copy; hatched bands: published rates of links, H2D.

    Args:
        curves: name -> rows of several sizes; rows without a time are left out.
        cited: names of links in `data/links.csv`.
    """
    figure, axes = new_axes()
    bands = {k: _published(k) for k in cited}
    for number, (name, (low, high)) in enumerate(bands.items(), len(curves)):
        look = {"edgecolor": f"C{number}", "hatch": HATCH["CITED"], "facecolor": "none"}
        axes.axhspan(low, max(high, 1.04 * low), label=f"{name}, CITED", **look)
    timed = {k: [row for row in v if row.rate] for k, v in curves.items()}
    known = {k: v for k, v in timed.items() if v}
    for (name, rows), marker in zip(known.items(), MARKERS, strict=False):
        x, y = [r.settings["size_bytes"] for r in rows], [r.gb_per_s for r in rows]
        source = rows[0].source
        axes.plot(
            x, y, LINES[source], marker=marker, label=f"{literal(name)}, {source}"
        )
    ticks = {2**i: units.size(2**i) for i in range(12, 29, 4)}
    words = {"xlabel": "size of one copy", "ylabel": "rate (GB/s)"}
    title = link_title(known)
    _finish_axes(axes, ticks, title=title, legend="lower right", **words)
    found = [f"{k} {v[0].source}: {_rates(v)}" for k, v in known.items()]
    found += [
        f"{k} CITED: {low:g} to {high:g} GB/s" for k, (low, high) in bands.items()
    ]
    alt = f"Rate of copies over their size. {title}. {'; '.join(found)}."
    caption = f"{title}. Bands CITED (data/links.csv)."
    return finish(figure, alt=alt, caption=caption)


def link_title(curves: Curves) -> str:
    """The finding: how little of the best rate a small copy reaches."""
    for name, rows in curves.items():
        size = units.size(int(rows[0].settings["size_bytes"]))
        share = units.percent((rows[0].rate or 0) / max(r.rate or 0 for r in rows))
        return f"{name}: a copy of {size} reaches {share} of the best rate"
    return "no copy could be timed here"


def break_even(cpu: fit.Curve, offloads: Sequence[fit.Offload]) -> Picture:
    """Time over rows: the CPU's line, a GPU line for each link, rings where they meet.

    Nothing but the CPU's line is drawn solid: the other ones are calculated.
    """
    import numpy as np

    figure, axes = new_axes()
    n = np.geomspace(FEWEST_ROWS, MOST_ROWS, POINTS)
    line = LINES[cpu.source]
    axes.plot(n, 1e3 * cpu.time_s(n), line, color="black", label=f"CPU, {cpu.source}")
    crossings = {offload.name: fit.break_even(cpu, offload) for offload in offloads}
    for marker, offload in zip(MARKERS, offloads, strict=False):
        at = crossings[offload.name]
        look = {"marker": marker, "markevery": EVERY, "linestyle": LINES["CITED"]}
        label = f"{offload.name}, {offload.source}: {_from(at)}"
        axes.plot(n, 1e3 * offload.time_s(n), label=label, **look)
        if at and FEWEST_ROWS <= at <= MOST_ROWS:
            axes.plot(at, 1e3 * cpu.time_s(at), marker, **RING)
    ticks = {2**i: str(2**i) for i in range(5, 13)}
    words = {"xlabel": "rows and columns n", "ylabel": "time (ms)"}
    title = break_even_title(crossings)
    _finish_axes(axes, ticks, title=title, legend="upper left", **words)
    found = "; ".join(f"{name}: {_from(at)}" for name, at in crossings.items())
    product = ", ".join(sorted({str(o.product.source) for o in offloads}))
    caption = f"{title}. CPU {cpu.source}; GPU: product {product}, link as named."
    return finish(figure, alt=f"Time over size. {found}. {caption}", caption=caption)


def break_even_title(crossings: Mapping[str, int | None]) -> str:
    """The finding: how far the crossing moves from the first link to the last."""
    found = [at for at in crossings.values() if at]
    if not found:
        return "no GPU line crosses the CPU's"
    if found[0] == found[-1]:
        return f"the GPU wins from n = {found[0]}"
    return f"narrower link: the crossing moves from n = {found[0]} to {found[-1]}"


def _finish_axes(
    axes: Any, ticks: Mapping[int, str], *, title: str, legend: str, **words: str
) -> None:
    axes.set(xscale="log", yscale="log", title=literal(title, 120), **words)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.legend(fontsize=8, loc=legend)


def _published(name: str) -> tuple[float, float]:
    """Lowest and highest published H2D rate of a link, in GB/s."""
    row = next(r for r in facts.table("links") if r["link"] == name)
    return float(row["h2d_gb_s_min"]), float(row["h2d_gb_s_max"])


def _rates(rows: Sequence[Measurement]) -> str:
    return f"{units.bandwidth(rows[0].rate)} to {units.bandwidth(rows[-1].rate)}"


def _from(at: int | None) -> str:
    if at and at <= FEWEST_ROWS:
        return "wins at all n shown"
    return f"wins from n = {at}" if at else "never wins"
