"""The scaling fan: what more devices give, by the link between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_lab import fit, units
from gpu_lab.bench import LinkFit
from gpu_lab.plot.picture import Picture, finish, literal, new_axes
from gpu_lab.records import Comparison

MOST = 8
MARKERS = "osD^vP*X"


def scaling_fan(
    step: fit.Step, links: Mapping[str, LinkFit], *, here: Comparison, ranks: int = 2
) -> Picture:
    """Speedup over the number of devices: an ideal line, a line per link, one's point.

    Args:
        step: what each device does in a step, whatever their number.
        links: name with its source -> the link; the lines are calculated.
        here: the step under DDP against the step of one rank, from the same rounds.
    """
    figure, axes = new_axes()
    devices = range(1, MOST + 1)
    axes.plot(devices, devices, color="black", label="ideal")
    ends = {name: step.speedup(link, MOST) for name, link in links.items()}
    for marker, (name, link) in zip(MARKERS, links.items(), strict=False):
        speedups = [step.speedup(link, n) for n in devices]
        label = f"{literal(name)}: {units.ratio(ends[name])}"
        axes.plot(devices, speedups, "--", marker=marker, markersize=4, label=label)
    point = _point(axes, here, ranks)
    axes.axhline(1, color="#717581", linewidth=1)
    title = f"{ranks} devices give {point} here, MEASURED"
    axes.set(xlabel="devices", ylabel="speedup over one (ratio)", title=title)
    axes.legend(fontsize=8, loc="upper left", title=f"{MOST} devices give")
    found = "; ".join(f"{name}: {units.ratio(end)}" for name, end in ends.items())
    lost = [name for name, link in links.items() if step.speedup(link, 2) < 1]
    loses = f"Two devices lose against one with: {', '.join(lost) or 'none of these'}."
    alt = f"Speedup over devices. {title}. {MOST} devices: {found}. {loses}"
    return finish(figure, alt=alt, caption=f"{title}. Lines calculated. {loses}")


def _point(axes: Any, here: Comparison, ranks: int) -> str:
    """Draw the measured speedup with its interval; its text."""
    if here.speedup is None or here.low is None or here.high is None:
        return units.NOT_AVAILABLE
    at, low, high = (ranks * share for share in (here.speedup, here.low, here.high))
    look: dict[str, Any] = {"fmt": "*", "color": "#bd1f01", "markersize": 13}
    axes.errorbar(ranks, at, [[at - low], [high - at]], label="measured here", **look)
    return units.ratio(at)
