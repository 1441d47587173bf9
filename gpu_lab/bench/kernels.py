"""Kernels of known length on the simulated device, for lessons and exercises."""

from __future__ import annotations

import functools

from gpu_lab.bench.rows import together
from gpu_lab.records import Measurement
from gpu_lab.timing import QUICK, SIMULATED, Arm, Plan, SimulatedGpu


def simulated_kernels(
    kernels_s: dict[str, float], *, gpu: SimulatedGpu, plan: Plan = QUICK, seed: int = 0
) -> list[Measurement]:
    """Rows of kernels of known length in the same rounds, SIMULATED.

    Args:
        kernels_s: name of the row -> seconds of its kernel on the cold device.
        gpu: goes on where it stands: a second call finds it warmer.
    """
    arms = [
        Arm(name=name, calls=(functools.partial(gpu.kernel, kernel_s),))
        for name, kernel_s in kernels_s.items()
    ]
    return together(arms, device=SIMULATED, plan=plan, clock=gpu, seed=seed)
