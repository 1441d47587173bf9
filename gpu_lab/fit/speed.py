"""Seconds of a step on a device that is not here: a roofline for each operator.

    t(op) = max(FLOP / rate, bytes / bandwidth) + start

RuntimeEstimator of torch (torch.distributed._tools) has the same model, but needs an
accelerator; there the sum is also never below what the host needs to launch.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpu_lab import facts, units
from gpu_lab.bench import ceiling
from gpu_lab.fit.work import CONV, MATMUL, MOVE, Op
from gpu_lab.records import GpuLabError, Measurement

Points = tuple[tuple[float, float], ...]  # (FLOP or bytes of a call, rate of a call)
# Shares of a data sheet's peak that PyTorch reaches, from and to. Products: 70 to 90 %
# of the peak at their best shape, less at the shapes of a model; memory 85 to 93 %.
ARITHMETIC_SHARE, MEMORY_SHARE = 0.6, 0.85
CARD_FACTOR = 2.0  # of the estimate from a data sheet; nobody has checked it closer
RUN_FACTOR = 1.6  # of an estimate from measured curves: F2 of `make bench`
CARD_START_S = 6e-6  # host seconds to launch one operator of eager PyTorch
SHEET = {
    "float32": "fp32_tflops",
    "tf32": "tf32_dense_tflops",
    "float16": "tensor_fp16_bf16_fp32acc_dense_tflops",
    "bfloat16": "tensor_fp16_bf16_fp32acc_dense_tflops",
}


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What a device does, as curves over the size of one call.

    Attributes:
        rates: (kind, dtype) -> FLOP a second over FLOP.
        memory: bytes a second over bytes.
        start_s: seconds of an operator that does nothing.
        queues: the host runs ahead: starts and work overlap, as on a GPU.
        factor: the true time lies within a factor of that, either way.
    """

    name: str
    rates: Mapping[tuple[str, str], Points] = field(default_factory=dict)
    memory: Points
    start_s: float
    queues: bool = True
    factor: float = CARD_FACTOR

    def step_s(self, work: Counter[Op]) -> float | None:
        """Seconds of all operators; None where the rate of one dtype is not known."""
        busy_s = starts_s = 0.0
        for op, times in work.items():
            one_s = self._busy_s(op)
            if one_s is None:
                return None
            busy_s += times * one_s
            starts_s += times * self.start_s
        return max(busy_s, starts_s) if self.queues else busy_s + starts_s

    def _busy_s(self, op: Op) -> float | None:
        moving_s = op.size_bytes / _at(self.memory, op.size_bytes)
        if not op.flop:
            return moving_s
        points = self.rates.get((op.kind, op.dtype))
        points = points or self.rates.get((MATMUL, op.dtype))
        return max(moving_s, op.flop / _at(points, op.flop)) if points else None


def _at(points: Points, size: float) -> float:
    """Rate at a size: power laws between the points, constant outside them."""
    if size <= points[0][0] or len(points) == 1:
        return points[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if size <= x1:
            share = math.log(size / x0) / math.log(x1 / x0)
            return y0 * (y1 / y0) ** share
    return points[-1][1]


def of_card(row: facts.Row) -> Speed | None:
    """Speed of a card of `data/gpus.csv`; None where its numbers are not known."""
    bandwidth = float(row["memory_bandwidth_gb_s"] or 0) * 1e9
    peaks = {dtype: _peak(row, dtype) for dtype in SHEET}
    if not (bandwidth and peaks["float32"]):
        return None
    rates = {(MATMUL, d): ((1.0, p * ARITHMETIC_SHARE),) for d, p in peaks.items() if p}
    if peaks["tf32"]:  # cuDNN's default for float32, not that of products
        rates[CONV, "float32"] = rates[MATMUL, "tf32"]
    memory = ((1.0, bandwidth * MEMORY_SHARE),)
    return Speed(name=row["name"], rates=rates, memory=memory, start_s=CARD_START_S)


def _peak(row: facts.Row, dtype: str) -> float:
    derived = ceiling.peak(row["name"], dtype=dtype).value
    return derived or float(row[SHEET[dtype]] or 0) * 1e12


def of_rows(name: str, rows: Iterable[Measurement], *, queues: bool) -> Speed:
    """Speed of the machine on which these rows were taken.

    Used are products ("matmul…", "product…", "conv…"), passes over memory ("…copy",
    "…triad", "add…") and "launch".

    Raises:
        GpuLabError: no timed product, or no pass over memory.
    """
    rates: dict[tuple[str, str], dict[float, float]] = {}
    memory: dict[float, float] = {}
    start_s = CARD_START_S
    for row in rows:
        if not (row.available and row.median_s):
            continue
        if row.name == "launch":
            start_s = row.median_s
        elif row.work_unit == "FLOP" and row.work and row.rate:
            kind = CONV if row.name.startswith(CONV) else MATMUL
            dtype = str(row.settings.get("dtype", "float32"))
            rates.setdefault((kind, dtype), {})[row.work] = row.rate
        elif row.work_unit == "byte" and row.work and row.rate and _is_memory(row):
            memory[row.work] = row.rate
    if not (rates and memory):
        raise GpuLabError(f"{name}: wanted timed rows of products and of copies")
    return Speed(
        name=name,
        rates={k: tuple(sorted(v.items())) for k, v in rates.items()},
        memory=tuple(sorted(memory.items())),
        start_s=start_s,
        queues=queues,
        factor=RUN_FACTOR,
    )


def _is_memory(row: Measurement) -> bool:
    return row.name.startswith((MOVE, "host_", "device_"))


def sentence(there: Speed, step_s: float | None) -> str:
    """The estimate with its interval, no digit more than the method has."""
    if step_s is None:
        return f"step: {units.NOT_AVAILABLE} (no rate for a dtype on {there.name})"
    low, middle, high = (
        units.about(step_s * f, factor=there.factor)
        for f in (1 / there.factor, 1.0, there.factor)
    )
    return (
        f"step: about {middle}, {low} to {high} (roofline of each operator on "
        f"{there.name}, good to a factor of {there.factor:g})"
    )
