"""Loader and device over time: the gaps close until something else is the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_lab import units
from gpu_lab.plot.lanes import DEVICE, HOST, LOOKS
from gpu_lab.plot.picture import HATCH, Picture, finish, new_axes
from gpu_lab.timing import Stages

THICK, GAP = 0.4, 0.15  # of a lane; between two epochs


def loader_lanes(epochs: Sequence[Stages]) -> Picture:
    """One pair of lanes for each epoch, from the top: its loader above its device.

    Args:
        epochs: from `timing.stages` or `timing.simulated_stages`, of equal batches.
    """
    figure, axes = new_axes()
    for top, epoch in zip(range(len(epochs), 0, -1), epochs, strict=True):
        for number, spans in enumerate(epoch.loader_s):
            height = THICK / len(epoch.loader_s)
            low = top - GAP - (number + 1) * height
            _lane(axes, spans, (low, height), HOST, epoch)
        _lane(axes, epoch.device_s, (top - 1, THICK), DEVICE, epoch)
    places = [len(epochs) - i - GAP - THICK for i in range(len(epochs))]
    axes.set_yticks(places, [epoch.name for epoch in epochs])
    title = f"the device waits: {_waits(epochs)}"
    end_s = max(epoch.device_s[-1][1] for epoch in epochs)
    axes.set(ylim=(-GAP, len(epochs)), xlim=(0, 1e3 * end_s), title=title)
    sources = ", ".join(sorted({str(epoch.source) for epoch in epochs}))
    axes.set_xlabel(f"time since the start (ms), {sources}; red: loader, blue: device")
    return finish(figure, alt=_alt(epochs), caption=f"{title}. {sources}.")


def _lane(
    axes: Any, spans: Any, place: tuple[float, float], lane: int, epoch: Stages
) -> None:
    pieces = [(1e3 * start, 1e3 * (stop - start)) for start, stop in spans]
    looks = {"facecolor": LOOKS[lane], "hatch": HATCH[epoch.source]}
    axes.broken_barh(pieces, place, edgecolor="white", linewidth=0.5, **looks)


def _waits(epochs: Sequence[Stages]) -> str:
    """The first and the best epoch."""
    best = min(epochs, key=lambda epoch: epoch.waiting)
    shown = [epochs[0]] if best is epochs[0] else [epochs[0], best]
    return ", ".join(f"{e.name} {units.percent(e.waiting)}" for e in shown)


def _alt(epochs: Sequence[Stages]) -> str:
    told = (
        f"{e.name}: {len(e.device_s)} steps in {units.seconds(e.device_s[-1][1])}, "
        f"the device waits {units.percent(e.waiting)} of it"
        for e in epochs
    )
    return f"Lanes of loader and device over time. {'; '.join(told)}."
