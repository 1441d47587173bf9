"""The way from the processor to a card, hop by hop; grey where nothing is told."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_lab.plot.picture import Picture, finish, literal, new_axes

KNOWN, UNKNOWN, TUNNEL = "#3f90da", "#b9b9b9", "#bd1f01"
MOST_NAME = 24
BOX: dict[str, Any] = {"boxstyle": "round", "facecolor": "white", "edgecolor": "black"}


def device_map(gpus: Sequence[Mapping[str, Any]], *, source: str) -> Picture:
    """One row a card: boxes are stations, lines the links between them.

    Args:
        gpus: rows of `hardware.snapshot.analyse`.
        source: where the texts come from: MEASURED words do not fit here, CITED do.
    """
    figure, axes = new_axes()
    for height, gpu in enumerate(reversed(gpus)):
        _draw(axes, height, gpu)
    longest = max((len(stations(gpu)) for gpu in gpus), default=1)
    axes.set(xlim=(-0.6, longest + 0.6), ylim=(-0.6, max(len(gpus), 1) - 0.3))
    axes.set_axis_off()
    title = map_title(gpus)
    axes.set_title(title)
    words = "; ".join(map(_words, gpus)) or "no GPU is listed"
    caption = (
        f"{title}. Grey: not told. Red: a tunnel, whose PCIe numbers mean nothing."
    )
    return finish(figure, alt=f"Device map. {words}.", caption=f"{caption} {source}.")


def map_title(gpus: Sequence[Mapping[str, Any]]) -> str:
    """The finding: how many cards, and how many of them are outside for sure."""
    words = {True: "external", False: "internal", None: "cannot tell"}
    kinds = [words[gpu["external"]] for gpu in gpus]
    found = ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds))
    return found or "no GPU is listed"


def hop_words(hop: Mapping[str, Any]) -> str:
    """The link above a station, such as "PCIe 4 x4 of 4 x16", or "not told"."""
    if hop["tunnel"]:
        return f"tunnel, {hop['tunnel']}"
    now = [hop.get(f"pcie_{what}_current") for what in ("gen", "width")]
    most = [hop.get(f"pcie_{what}_max") for what in ("gen", "width")]
    if not any(now):
        return "not told"
    text = f"PCIe {now[0] or '?'} x{now[1] or '?'}"
    return f"{text} of {most[0]} x{most[1]}" if all(most) and most != now else text


def stations(gpu: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The hops of a path; the bridges of one tunnel count as one."""
    found: list[Mapping[str, Any]] = []
    for tunnel, hops in itertools.groupby(gpu["path"], lambda hop: hop["tunnel"]):
        group = list(hops)
        name = {"name": f"{len(group)} bridges of the tunnel"}
        found += [group[0] | name] if tunnel else group
    return found


def _short(name: str) -> str:
    """The name in brackets that makers put behind a chip, else the name itself."""
    inside = re.search(r"\[([^][]{4,})\]", name)
    return literal(inside[1] if inside else name, MOST_NAME)


def _draw(axes: Any, height: int, gpu: Mapping[str, Any]) -> None:
    for place, station in enumerate([{"name": "processor"}, *stations(gpu)]):
        if place:
            words = hop_words(station)
            told = UNKNOWN if words == "not told" else KNOWN
            color = TUNNEL if station["tunnel"] else told
            width = 1 + (station.get("pcie_width_current") or 0) / 2
            style = "--" if color != KNOWN else "-"
            ends = [place - 1, place]
            axes.plot(ends, [height] * 2, style, color=color, linewidth=width, zorder=1)
            axes.text(place - 0.5, height + 0.17, words, ha="center", fontsize=8)
        box = {"bbox": BOX, "ha": "center", "va": "center", "fontsize": 8}
        axes.text(place, height, _short(station["name"]), zorder=2, **box)


def _words(gpu: Mapping[str, Any]) -> str:
    hops = ", ".join(f"{hop_words(hop)} to {hop['name']}" for hop in stations(gpu))
    return f"processor, {hops}"
