"""What a link costs a step: bytes that cross it, beside the card's own time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_lab import facts, units
from gpu_lab.fit.memory import Prediction
from gpu_lab.records import GpuLabError

SLOT = "PCIe 4.0 x16"
NO_LOSS = 1.05
UNPUBLISHED = 0.6, 0.9  # of the theoretical rate, where nobody has published a copy
OVER = {"train": 2, "infer": 1, "decode": 1}  # crossings of what has no room


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Bytes a second of a link, host to device: lowest and highest published."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Loss:
    """How many times longer a step takes than in an x16 slot, at best and at worst.

    Best: copies behind the computation. Worst: one after the other, on the slowest
    published link and the fastest card that the estimate allows.
    """

    rate: Rate
    size_bytes: float
    best: float
    worst: float


def link_rate(name: str) -> Rate:
    """A link of `data/links.csv` by its name or a part of it: "thunderbolt4".

    Raises:
        GpuLabError: no link or several are named so.
    """
    wanted = _plain(name)
    rows = [r for r in facts.table("links") if wanted in _plain(r["link"])]
    rows = [r for r in rows if _plain(r["link"]) == wanted] or rows
    rows = [r for r in rows if r["theoretical_gb_s_per_direction"]]
    if len(rows) != 1:
        known = rows or facts.table("links")
        names = ", ".join(r["link"] for r in known[:6])
        what = "several links" if rows else "no link"
        raise GpuLabError(f"{what} {name!r} in data/links.csv: {names}; name one")
    row = rows[0]
    most = float(row["theoretical_gb_s_per_direction"])
    low = float(row["h2d_gb_s_min"] or UNPUBLISHED[0] * most)
    high = float(row["h2d_gb_s_max"] or UNPUBLISHED[1] * most)
    return Rate(name=row["link"], low=1e9 * low, high=1e9 * high)


def _plain(name: str) -> str:
    return re.sub(r"\.0(?!\d)|[^a-z0-9]", "", name.lower())


def crossing_bytes(
    found: Prediction, *, task: str, memory_bytes: float | None
) -> float:
    """Bytes over the link for one step: inputs, results, and what has no room."""
    over = max(0.0, found.high - memory_bytes) if memory_bytes else 0.0
    return found.input_bytes + found.output_bytes + OVER[task] * over


def slowdown(
    size_bytes: float, *, step_s: float, factor: float, rate: Rate, slot: Rate
) -> Loss:
    """Time behind this link over time in the slot, for a step that takes `step_s`.

    Args:
        factor: the step takes between step_s / factor and step_s x factor.
    """
    slow_s, fast_s = step_s * factor, step_s / factor
    hidden = [max(slow_s, size_bytes / r) for r in (rate.high, slot.high)]
    waiting = [fast_s + size_bytes / r for r in (rate.low, slot.high)]
    return Loss(
        rate=rate,
        size_bytes=size_bytes,
        best=hidden[0] / hidden[1],
        worst=waiting[0] / waiting[1],
    )


def loss_lines(found: Loss) -> list[str]:
    """The loss in one sentence, no digit more than best and worst agree on."""
    moved = units.memory(found.size_bytes)
    rates = f"{units.bandwidth(found.rate.low)} to {units.bandwidth(found.rate.high)}"
    if found.worst < NO_LOSS:
        said = "no loss to be seen: less than 5 % even with copies that wait"
    else:
        said = (
            f"{units.ratio(found.best)} (copies hidden) to {units.ratio(found.worst)}"
        )
    return [
        f"{found.rate.name} against {SLOT}: {said}",
        f"  {moved} a step cross it at {rates}",
    ]
