"""Seconds of a step on a device that is not here, and what a link adds to them.

    t(operator) = max(FLOP / rate, bytes / bandwidth) + start

RuntimeEstimator of torch (torch.distributed._tools) has the same roofline without the
start, and needs an accelerator.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_lab import facts
from gpu_lab.bench import ceiling
from gpu_lab.fit.work import CONV, KINDS, MATMUL, MOVE, Op
from gpu_lab.records import GpuLabError, Measurement, Run

Rates = dict[tuple[str, str], list[tuple[float, float]]]
PASSES = (MOVE, "host_", "device_")  # names of rows that pass over memory


@dataclass(frozen=True)
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
        if any(op.flop and (MATMUL, op.dtype) not in self.rates for op in work):
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


def _at(points: list[tuple[float, float]], size: float) -> float:
    """Rate at a size: power laws between the points, constant outside them."""
    import numpy as np

    return float(np.exp(np.interp(math.log(max(size, 1)), *np.log(points).T)))


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
    return Speed(row["name"], rates, given["start_s"], True, given["factor"])


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
    given, starts_s = facts.settings("fit"), []
    found: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(dict)
    for row in (r for r in rows if r.available):
        taken_s, kind = statistics.median(row.deciding_s), row.name.split("_")[0]
        key = (
            kind if kind in KINDS else MATMUL,
            str(row.settings.get("dtype", "float32")),
        )
        if row.work_unit == "byte":
            key = (MOVE, "") if row.name.startswith(PASSES) else ("link", "")
        if row.work:
            one = row.work / float(row.settings.get("operators", 1))
            found[key].setdefault(one, []).append(row.work / taken_s)
        starts_s += [taken_s] if row.name == "launch" else []
    if not {(MOVE, ""), (MATMUL, "float32")} <= set(found):
        raise GpuLabError(f"{name}: wanted timed rows of products and of copies")
    rates = {
        key: sorted((x, statistics.median(y)) for x, y in curve.items())
        for key, curve in found.items()
    }
    start_s = statistics.median(starts_s or [given["card"]["start_s"]])
    factor = given["run" if (CONV, "float32") in found else "card"]["factor"]
    return Speed(name, rates, start_s, queues, factor)


def link_rates(row: facts.Row) -> tuple[float, float]:
    """Bytes a second, host to device, over a link: lowest and highest published."""
    most = float(row["theoretical_gb_s_per_direction"])
    low, high = (most * share for share in facts.settings("fit")["link"]["unpublished"])
    low, high = float(row["h2d_gb_s_min"] or low), float(row["h2d_gb_s_max"] or high)
    return 1e9 * low, 1e9 * high


def slowdown(
    size_bytes: float, step_s: float, *, factor: float, link: facts.Row
) -> tuple[float, float]:
    """Time behind a link over time in an x16 slot: least and most.

    Least: copies behind the computation, the card as slow and the link as fast as may
    be. Most: one after the other, the card fast and the link slow.
    """
    low, high = link_rates(link)
    slot = link_rates(facts.link(facts.settings("fit")["link"]["slot"]))[1]
    slow_s, fast_s = step_s * factor, step_s / factor
    least = max(slow_s, size_bytes / high) / max(slow_s, size_bytes / slot)
    return least, (fast_s + size_bytes / low) / (fast_s + size_bytes / slot)
