"""Gradients in powers of two, and the window that float16 holds of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpu_lab import units
from gpu_lab.plot.picture import Picture, finish, new_axes

# Powers of two that float16 holds; below 2**-14 with ever fewer bits.
LOWEST, HIGHEST = -24, 15


def gradients(counts: Mapping[int, int], *, scale: float) -> Picture:
    """Histogram of gradients as they are and times `scale`, over float16's window.

    Args:
        counts: how many numbers lie from 2**e to 2**(e + 1), by e.
        scale: a power of two, as of a GradScaler.
    """
    figure, axes = new_axes()
    shift = round(math.log2(scale))
    axes.axvspan(LOWEST, HIGHEST + 1, color="#bbbbbb", alpha=0.4, label="float16")
    for moved, hatch in ((0, "//"), (shift, "")):
        places = [e + moved + 0.5 for e in counts]
        label = f"times 2**{moved}" if moved else "as they are"
        style = {"hatch": hatch, "alpha": 0.8, "edgecolor": "white", "label": label}
        axes.bar(places, list(counts.values()), width=1.0, **style)
    title = gradients_title(counts, scale=scale)
    words = {"xlabel": "size of a gradient (power of two)", "ylabel": "how many"}
    axes.set(title=title, **words)
    axes.legend(fontsize=8)
    lowest, highest = min(counts, default=0), max(counts, default=0)
    spans = f"from 2**{lowest} to 2**{highest + 1}, float16 from 2**{LOWEST}"
    alt = f"Two histograms of gradients in powers of two, {spans}. {title}."
    return finish(figure, alt=alt, caption=f"{title}. Gradients of float32.")


def gradients_title(counts: Mapping[int, int], *, scale: float) -> str:
    """The finding: how much lies outside of the window, before and after scaling."""
    before, after = (units.percent(outside(counts, scale=s)) for s in (1.0, scale))
    return f"outside of float16: {before}, scaled: {after}"


def outside(counts: Mapping[int, int], *, scale: float = 1.0) -> float:
    """Share of the numbers that float16 cannot hold, times a power of two."""
    shift = round(math.log2(scale))
    lost = [n for e, n in counts.items() if not LOWEST <= e + shift <= HIGHEST]
    return sum(lost) / max(1, sum(counts.values()))
