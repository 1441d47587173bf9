"""What all benchmarks share: seeded data, cold buffers, checks of content, rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import psutil

from gpu_lab.hardware import host
from gpu_lab.records import Device, GpuLabError, Measurement
from gpu_lab.timing import QUICK, Arm, Clock, Plan, Timing, interleave

ONLY_GPU = "needs a GPU: this run is on the CPU itself"
COLD = 4  # a working set of that many caches is cold by itself (STREAM's rule)
ROOM = 0.25  # of the free memory that cold copies may take


class WrongResult(GpuLabError):
    """The device computed or copied something wrong; its speed means nothing."""


def measured(arm: Arm, *, device: Device, plan: Plan = QUICK) -> Measurement:
    """The row of one arm; NOT MEASURABLE HERE when the arm has a reason."""
    return together([arm], device=device, plan=plan)[0]


def together(
    arms: Sequence[Arm],
    *,
    device: Device,
    plan: Plan = QUICK,
    clock: Clock | None = None,
    seed: int = 0,
) -> list[Measurement]:
    """Rows of several arms taken in the same rounds: comparable entry by entry.

    Args:
        arms: from the `…_arm` functions of this room, each with a name of its own.

    Raises:
        DeviceLost: the device vanished during the run.
    """
    ready = [arm for arm in arms if not arm.reason]
    group = "|".join(arm.name for arm in ready) if len(ready) > 1 else ""
    timings = interleave(ready, device=device, plan=plan, clock=clock, seed=seed)
    pairs = zip(ready, timings, strict=True)
    found = {arm.name: row(arm, timing, device, group) for arm, timing in pairs}
    return [
        found.get(arm.name)
        or Measurement.not_measurable(arm.name, device=device, reason=arm.reason)
        for arm in arms
    ]


def row(arm: Arm, timing: Timing, device: Device, group: str = "") -> Measurement:
    """Measurement from a timing."""
    return Measurement(
        name=arm.name,
        device=device.label,
        source=timing.source,
        times_s=timing.times_s,
        cpu_times_s=timing.cpu_times_s,
        number_per_run=timing.number_per_run,
        work=arm.work,
        work_unit=arm.work_unit,
        method_version=arm.version,
        settings=arm.settings,
        decided_by=timing.decided_by,
        group=group,
        anchor_s=timing.anchor_s,
        flags=timing.flags,
        observed=timing.observed,
        states=timing.states,
        stopped=timing.stopped,
    )


def random_bytes(size_bytes: int, *, seed: int = 0) -> Any:
    """Seeded uint8 tensor of that size on the host. Zeros can be faster than data.

    Raises:
        ValueError: size_bytes < 1.
    """
    import torch

    if size_bytes < 1:
        raise ValueError(f"wanted at least 1 byte, found {size_bytes}")
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (size_bytes,), dtype=torch.uint8, generator=generator)


def require_random(data: Any, *, what: str) -> None:
    """Raises WrongResult when all numbers are equal: such data can be faster."""
    if data.numel() > 1 and bool((data == data.flatten()[0]).all()):
        raise WrongResult(
            f"{what}: all inputs are {float(data.flatten()[0]):g}; wanted random "
            "numbers, because constant ones switch fewer transistors and run faster"
        )


def require_equal(copied: Any, given: Any, *, what: str) -> None:
    """Content before speed: raises WrongResult unless both are bit-equal."""
    import torch

    if not torch.equal(copied.cpu(), given.cpu()):
        raise WrongResult(f"{what}: the copy is not bit-equal; its speed is not shown")


def cache_bytes(device: Device) -> int:
    """Last cache before the memory: of the GPU (L2), or of the processor."""
    if not device.is_real_gpu:
        return host.cache_bytes()
    if device.backend not in ("cuda", "rocm"):
        return 0  # not told; sizes of the benchmarks are far above any of these
    import torch

    return int(torch.cuda.get_device_properties(device.torch_name).L2_cache_size)


def sets(touched_bytes: int, *, device: Device) -> tuple[int, bool]:
    """How many sets of buffers keep the cache cold, and whether it stays hot.

    Enough sets to touch twice the cache before the first one comes again; hot when
    the memory has no room for them (measuring by rotation, as nvbench's `cold`).
    """
    cache = cache_bytes(device)
    if touched_bytes >= COLD * cache:
        return 1, False
    wanted = math.ceil(2 * cache / touched_bytes) + 1
    room = max(1, int(ROOM * _free_bytes(device) / touched_bytes))
    return min(wanted, room), wanted > room


def _free_bytes(device: Device) -> int:
    if not device.is_real_gpu:
        return int(psutil.virtual_memory().available)
    if device.backend not in ("cuda", "rocm"):
        return device.memory_bytes or 2**32
    import torch

    return int(torch.cuda.mem_get_info(device.torch_name)[0])
