"""The core suite: the same eight rows on every machine, in about fifteen seconds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpu_lab.bench.launch import launch
from gpu_lab.bench.matmul import matmul
from gpu_lab.bench.memory import device_copy, host_copy
from gpu_lab.bench.transfer import device_to_host, host_to_device
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import Plan

MIB = 2**20
CPU_MATMUL_N = 1024
# A CPU without units for them emulates half types some thousand times slower.
CPU_HALF_N = 256
GPU_MATMUL_N = 4096
# At least four times the caches of common processors and GPUs (measuring.md 1.6).
COPY_BYTES = 256 * MIB
TRANSFER_BYTES = 64 * MIB
# The whole budget, not only until this process agrees with itself: a processor whose
# speed wanders within seconds would else give each session another moment.
MOST: dict[str, Any] = {"precision": 0, "max_rounds": 200}
CPU_PLAN = Plan(budget_s=2.0, sample_s=0.005, **MOST)
GPU_PLAN = Plan(budget_s=1.0, sample_s=0.004, **MOST)

CORE = (
    "matmul_fp32",
    "matmul_fp16",
    "matmul_bf16",
    "device_copy",
    "host_copy",
    "h2d",
    "d2h",
    "launch",
)


def core_suite(
    *, device: Device, seed: int = 0
) -> tuple[tuple[str, Callable[[], Measurement]], ...]:
    """Rows of the core suite as (name, call that measures it), in fixed order.

    Times are budgets of the timing core: 2 s a row on a CPU, 1 s on a GPU.
    """
    plan = GPU_PLAN if device.is_gpu else CPU_PLAN
    whole, half = _matmul_sizes(device)
    same: dict[str, Any] = {"device": device, "plan": plan, "seed": seed}
    calls: tuple[Callable[[], Measurement], ...] = (
        functools.partial(matmul, whole, dtype="float32", **same),
        functools.partial(matmul, half, dtype="float16", **same),
        functools.partial(matmul, half, dtype="bfloat16", **same),
        functools.partial(device_copy, COPY_BYTES, **same),
        functools.partial(host_copy, COPY_BYTES, **same),
        functools.partial(host_to_device, TRANSFER_BYTES, **same),
        functools.partial(device_to_host, TRANSFER_BYTES, **same),
        functools.partial(launch, device=device, plan=plan),
    )
    return tuple(zip(CORE, calls, strict=True))


def _matmul_sizes(device: Device) -> tuple[int, int]:
    """Rows of the fp32 and of the half-precision products."""
    if device.is_real_gpu:
        return GPU_MATMUL_N, GPU_MATMUL_N
    return CPU_MATMUL_N, CPU_HALF_N
