"""Seconds of a step on a device that is not here, and what a link adds to them.

    t(operator) = max(FLOP / rate, bytes / bandwidth) + start

RuntimeEstimator of torch (torch.distributed._tools) has the same roofline without the
start, and needs an accelerator.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpu_lab import facts, units
from gpu_lab.bench import ceiling
from gpu_lab.fit.work import ATTENTION, CONV, DEPTHWISE, MATMUL, MOVE, Op
from gpu_lab.records import GpuLabError, Measurement, Run

Rates = dict[tuple[str, str], list[tuple[float, float]]]
PASSES = (MOVE, "host_", "device_")  # names of rows that pass over memory


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a device does.

    Attributes:
        rates: (kind, dtype) -> (FLOP of a call, FLOP a second), ordered; (MOVE, "") is
            the same for bytes.
        start_s: seconds of an operator that does nothing.
        queues: the host runs ahead: starts and work overlap, as on a GPU.
        factor: the true time lies within a factor of that, either way.
    """

    name: str
    rates: Rates
    start_s: float
    queues: bool
    factor: float

    def step_s(self, work: Counter[Op]) -> float | None:
        """Seconds of all operators; None where the rate of one dtype is not known."""
        known = {dtype for kind, dtype in self.rates if kind == MATMUL}
        if not {op.dtype for op in work if op.flop} <= known:
            return None
        busy_s = sum(times * self._busy_s(op) for op, times in work.items())
        starts_s = work.total() * self.start_s
        return max(busy_s, starts_s) if self.queues else busy_s + starts_s

    def _busy_s(self, op: Op) -> float:
        moving_s = op.size_bytes / _at(self.rates[MOVE, ""], op.size_bytes)
        if not op.flop:
            return moving_s
        points = self.rates.get((op.kind, op.dtype)) or self.rates[MATMUL, op.dtype]
        return max(moving_s, op.flop / _at(points, op.flop))

    def sentence(self, step_s: float | None) -> str:
        """The estimate with its interval, no digit more than the method has."""
        if step_s is None:
            return f"step: n/a, no rate for one of its dtypes is known of {self.name}"
        scales = (1.0, 1 / self.factor, self.factor)
        about = [units.about(step_s * f, factor=self.factor) for f in scales]
        how = f"each operator on the roofline of {self.name}"
        return f"step: about {about[0]}, within {about[1]} to {about[2]} ({how})"


def _at(points: list[tuple[float, float]], size: float) -> float:
    """Rate at a size: power laws between the points, constant outside them."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if size <= x1:
            share = max(0.0, math.log(max(size, 1) / x0) / math.log(x1 / x0))
            return float(y0 * (y1 / y0) ** share)
    return points[-1][1]


def of_card(row: facts.Row) -> Speed | None:
    """Speed of a card of `data/gpus.csv`; None where its numbers are not known."""
    given = facts.settings("fit")["card"]
    rates: Rates = {}
    for dtype, column in facts.settings("fit")["peaks"].items():
        derived = ceiling.peak(row["name"], dtype=dtype).value
        if peak := derived or 1e12 * float(row[column] or 0):
            rates[MATMUL, dtype] = [(1.0, given["arithmetic"] * peak)]
    if not ((MATMUL, "float32") in rates and row["memory_bandwidth_gb_s"]):
        return None
    moved = given["memory"] * 1e9 * float(row["memory_bandwidth_gb_s"])
    # TF32 is cuDNN's default for float32, not that of products.
    convolved = rates.get((MATMUL, "tf32"), rates[MATMUL, "float32"])
    rates |= {(MOVE, ""): [(1.0, moved)], (CONV, "float32"): convolved}
    start_s, factor = given["start_s"], given["factor"]
    return Speed(
        name=row["name"], rates=rates, start_s=start_s, queues=True, factor=factor
    )


def of_run(run: Run) -> Speed:
    """Speed of the device of a run, from all rows of its sessions."""
    on = run.first.device
    rows = [m for s in run.sessions for m in s.measurements if m.device == on]
    return of_rows(run.name, rows, queues=run.first.machine.device(on).is_gpu)


def of_rows(name: str, rows: Iterable[Measurement], *, queues: bool) -> Speed:
    """Speed that timed rows show: products, convolutions, passes, "launch".

    Raises:
        GpuLabError: no timed product, or no pass over memory.
    """
    rates: Rates = {}
    start_s = facts.settings("fit")["card"]["start_s"]
    for row in rows:
        kind = row.name.split("_")[0]
        kind = kind if kind in (CONV, DEPTHWISE, ATTENTION) else MATMUL
        key = (kind, str(row.settings.get("dtype", "float32")))
        if row.work_unit == "byte":
            key = (MOVE, "") if row.name.startswith(PASSES) else ("link", "")
        if row.available and row.work:
            taken_s = statistics.median(row.deciding_s)
            one = row.work / float(row.settings.get("operators", 1))
            rates.setdefault(key, []).append((one, row.work / taken_s))
        elif row.available and row.name == "launch":
            start_s = statistics.median(row.deciding_s)
    if not {(MOVE, ""), (MATMUL, "float32")} <= set(rates):
        raise GpuLabError(f"{name}: wanted timed rows of products and of copies")
    ordered = {key: sorted(points) for key, points in rates.items()}
    factor = facts.settings("fit")["run"]["factor"]
    return Speed(
        name=name, rates=ordered, start_s=start_s, queues=queues, factor=factor
    )


class Link(NamedTuple):
    """Bytes a second of a link, host to device: lowest and highest published."""

    name: str
    low: float
    high: float


def link_of(name: str) -> Link:
    """A link of `data/links.csv` by its name or a part of it: "thunderbolt4".

    Raises:
        GpuLabError: no link or several are named so.
    """
    known = [r for r in facts.table("links") if r["theoretical_gb_s_per_direction"]]
    near = [r for r in known if _plain(name) in _plain(r["link"])]
    rows = [r for r in near if _plain(name) == _plain(r["link"])] or near
    if len(rows) != 1:
        number = "several links" if rows else "no link"
        names = ", ".join(r["link"] for r in rows or known)
        raise GpuLabError(f"{number} {name!r} in data/links.csv: {names}")
    low, high = facts.settings("fit")["link"]["unpublished"]
    most = float(rows[0]["theoretical_gb_s_per_direction"])
    low = float(rows[0]["h2d_gb_s_min"] or low * most)
    return Link(
        rows[0]["link"], 1e9 * low, 1e9 * float(rows[0]["h2d_gb_s_max"] or high * most)
    )


def _plain(name: str) -> str:
    return re.sub(r"\.0(?!\d)|[^a-z0-9]", "", name.lower())


def slowdown(
    size_bytes: float, step_s: float, *, factor: float, link: Link, slot: Link
) -> tuple[float, float]:
    """Time behind a link over time in a slot: least and most.

    Least: copies behind the computation, the card as slow and the link as fast as may
    be. Most: one after the other, the card fast and the link slow.
    """
    slow_s, fast_s = step_s * factor, step_s / factor
    least = [max(slow_s, size_bytes / r.high) for r in (link, slot)]
    most = [fast_s + size_bytes / r for r in (link.low, slot.high)]
    return least[0] / least[1], most[0] / most[1]


def link_line(size_bytes: float, step_s: float, *, factor: float, link: Link) -> str:
    """The loss in one sentence, with both ends of what is known."""
    given = facts.settings("fit")["link"]
    slot = link_of(given["slot"])
    least, most = slowdown(size_bytes, step_s, factor=factor, link=link, slot=slot)
    said = f"{units.ratio(least)} to {units.ratio(most)} the time"
    if most < given["no_loss"]:
        said = "no loss to be seen, also with copies that wait"
    moved = f"{units.memory(size_bytes)} a step at {units.bandwidth(link.low)}"
    return f"{link.name} against {slot.name}: {said} ({moved})"
