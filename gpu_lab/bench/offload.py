"""Copy, compute, copy back: what a product costs when its data lives on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gpu_lab.bench import rows
from gpu_lab.bench.matmul import matmul_arm
from gpu_lab.bench.transfer import transfer_arm
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import (
    SIMULATED,
    Arm,
    Model,
    Plan,
    SimulatedGpu,
    clock_for,
    completed,
)

METHOD_VERSION = 1
ITEM_BYTES = 4  # float32
SIMULATED_PLAN = Plan(rounds=12)


def offload_arm(n: int, *, device: Device, seed: int = 0) -> Arm:
    """Copy two n x n float32 matrices there, multiply, copy one back, and wait.

    Inside the clock: one pinned copy of both matrices, the product, one pinned copy of
    the result, the wait for it. On a CPU device there is no link, and `reason` says so.
    """
    if not device.is_gpu:
        return Arm(name=f"offload_{n}", reason=rows.ONLY_GPU)
    size_bytes = ITEM_BYTES * n * n
    there = transfer_arm("h2d", 2 * size_bytes, device=device, seed=seed)
    product = matmul_arm(n, device=device, seed=seed)
    back = transfer_arm("d2h", size_bytes, device=device, seed=seed)
    steps = [arm.calls[0] for arm in (there, product, back)]
    call = completed(steps, clock_for(device))
    return _product(f"offload_{n}", n, call, queued=False)


def simulated_curve(
    kind: str, sizes: Sequence[int], *, model: Model | None = None, seed: int = 0
) -> list[Measurement]:
    """Rows of the simulated device over sizes, on virtual time: SIMULATED, seeded.

    Args:
        kind: "link" copies of `sizes` bytes, "matmul" products of n rows, or
            "offload" as `offload_arm`.
    """
    gpu = SimulatedGpu(model, seed=seed)
    make = {"link": _link, "matmul": _matmul, "offload": _offload}[kind]
    # The last arm first: it is the one that warm-up repeats, and large work is quick.
    arms = [make(gpu, size) for size in reversed(sizes)]
    plan = SIMULATED_PLAN
    return rows.together(arms, device=SIMULATED, plan=plan, clock=gpu, seed=seed)[::-1]


def _link(gpu: SimulatedGpu, size_bytes: int) -> Arm:
    return Arm(
        name=f"simulated_link_{size_bytes}",
        calls=(partial(gpu.copy, size_bytes),),
        work=float(size_bytes),
        work_unit="byte",
        settings={"size_bytes": size_bytes},
    )


def _matmul(gpu: SimulatedGpu, n: int) -> Arm:
    return _product(f"simulated_matmul_{n}", n, partial(gpu.matmul, n), queued=True)


def _offload(gpu: SimulatedGpu, n: int) -> Arm:
    size_bytes = ITEM_BYTES * n * n
    there, back = partial(gpu.copy, 2 * size_bytes), partial(gpu.copy, size_bytes)
    call = completed([there, partial(gpu.matmul, n), back], gpu)
    return _product(f"simulated_offload_{n}", n, call, queued=False)


def _product(name: str, n: int, call: Callable[[], Any], *, queued: bool) -> Arm:
    return Arm(
        name=name,
        calls=(call,),
        queued=queued,
        work=2.0 * n**3,
        work_unit="FLOP",
        version=METHOD_VERSION,
        settings={"n": n},
    )
