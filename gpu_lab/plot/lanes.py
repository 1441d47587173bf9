"""The clock that stops early: host lane, device lane, and two stop marks."""

from __future__ import annotations

from typing import Any

from gpu_lab import units
from gpu_lab.plot.picture import HATCH, Picture, finish, new_axes
from gpu_lab.timing import Lanes

HOST, DEVICE, WORDS = 1, 0, 1.85
LOOKS = {HOST: "#bd1f01", DEVICE: "#3f90da"}


def lanes(found: Lanes) -> Picture:
    """Host above, device below; where a clock stops that waits, and one that does not.

    Args:
        found: from `timing.lanes`.
    """
    figure, axes = new_axes()
    for lane, spans in ((HOST, found.host_s), (DEVICE, found.device_s)):
        pieces = [(1e3 * start, 1e3 * (stop - start)) for start, stop in spans]
        looks = {"facecolor": LOOKS[lane], "hatch": HATCH[found.source]}
        edge = {"edgecolor": "white", "linewidth": 0.5 * (lane == DEVICE)}
        axes.broken_barh(pieces, (lane - 0.35, 0.7), **looks, **edge)
    _stop(axes, found.early_s, "stop without waiting", "left")
    _stop(axes, found.waited_s, "stop after waiting", "right")
    early = units.ratio(found.too_fast)
    title = f"without waiting, the timer is {early} too fast"
    axes.set(ylim=(-0.6, 2.3), xlim=(0, 1.04e3 * found.waited_s), title=title)
    axes.set_yticks(list(LOOKS), ["host", "device"])
    axes.set_xlabel(f"time since the start (ms), {found.source}")
    return finish(figure, alt=_alt(found), caption=f"{title}. {found.source}.")


def _stop(axes: Any, at_s: float, name: str, side: str) -> None:
    """A line through both lanes, with what the clock says there."""
    axes.axvline(1e3 * at_s, color="#2b2b2b", linestyle="--", linewidth=1.5)
    text = f" {name}: \n {units.seconds(at_s)} "
    axes.text(1e3 * at_s, WORDS, text, ha=side, va="center")


def _alt(found: Lanes) -> str:
    return (
        f"Two lanes over time. The host has queued {len(found.host_s)} calls after "
        f"{units.seconds(found.early_s)}; the device works until "
        f"{units.seconds(found.waited_s)}. {found.source}."
    )
