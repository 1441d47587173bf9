"""Copies over the link between host and device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_lab.bench import rows
from gpu_lab.hardware import nvidia
from gpu_lab.records import Device, Link, Measurement, Settings
from gpu_lab.timing import QUICK, Arm, Plan, clock_for, completed

METHOD_VERSION = 2
KIB = 2**10
SIZES = tuple(4 * KIB * 4**i for i in range(9))  # 4 KiB to 256 MiB
LOAD_BYTES, LOAD_COPIES = 64 * 2**20, 8
ITERATIONS, HUBER = 50, 1.345  # Huber's constant: 95 % efficient on normal noise


def host_to_device(
    size_bytes: int,
    *,
    device: Device,
    pinned: bool = True,
    plan: Plan = QUICK,
    seed: int = 0,
) -> Measurement:
    """Time of one host-to-device copy (H2D), in seconds.

    Args:
        size_bytes: bytes copied per call (buffers allocated once, outside the clock).
        pinned: page-locked host memory; pageable if False.
        plan: warm-up and repeats, see `timing.Plan`.

    Returns:
        Measurement with `work` = size_bytes; `.gb_per_s` counts each byte once.
        On a CPU device nothing is timed and `reason` says why.

    Raises:
        ValueError: size_bytes < 1.
        WrongResult: the copy is not bit-equal.
        DeviceLost: the device vanished during the run (typical: a pulled cable).

    Same quantity elsewhere: nvbandwidth `host_to_device_memcpy_ce`.
    """
    arm = transfer_arm("h2d", size_bytes, device=device, pinned=pinned, seed=seed)
    return rows.measured(arm, device=device, plan=plan)


def device_to_host(
    size_bytes: int,
    *,
    device: Device,
    pinned: bool = True,
    plan: Plan = QUICK,
    seed: int = 0,
) -> Measurement:
    """Time of one device-to-host copy (D2H), in seconds; as `host_to_device`.

    Same quantity elsewhere: nvbandwidth `device_to_host_memcpy_ce`.
    """
    arm = transfer_arm("d2h", size_bytes, device=device, pinned=pinned, seed=seed)
    return rows.measured(arm, device=device, plan=plan)


def transfer_arm(
    direction: str,
    size_bytes: int,
    *,
    device: Device,
    pinned: bool = True,
    seed: int = 0,
) -> Arm:
    """The prepared copy of `host_to_device` ("h2d") or `device_to_host` ("d2h")."""
    if not device.is_gpu:
        return Arm(name=direction, reason=rows.ONLY_GPU)
    import torch

    buffer = rows.random_bytes(size_bytes, seed=seed)
    rows.require_random(buffer, what=direction)
    if pinned and not device.simulated:  # pin_memory() raises without a driver
        buffer = buffer.pin_memory()
    there = torch.empty_like(buffer, device=device.torch_name).copy_(buffer)
    rows.require_equal(there, buffer, what=direction)
    target, source = (there, buffer) if direction == "h2d" else (buffer, there)
    return Arm(
        name=direction,
        calls=(functools.partial(target.copy_, source, non_blocking=pinned),),
        queued=pinned,  # a copy from pageable memory waits for the device itself
        work=float(size_bytes),
        work_unit="byte",
        version=METHOD_VERSION,
        settings={"size_bytes": size_bytes, "pinned": pinned, "seed": seed},
    )


def link_curve(
    direction: str = "h2d",
    *,
    device: Device,
    pinned: bool = True,
    plan: Plan = QUICK,
    seed: int = 0,
    sizes: Sequence[int] = SIZES,
) -> list[Measurement]:
    """Rows of one direction over sizes, each with its size in its name."""
    found = []
    for size_bytes in sizes:
        arm = transfer_arm(
            direction, size_bytes, device=device, pinned=pinned, seed=seed
        )
        kind = "pinned" if pinned else "pageable"
        named = replace(arm, name=f"{direction}_{kind}_{size_bytes}")
        found.append(rows.measured(named, device=device, plan=plan))
    return found


@dataclass(frozen=True)
class LinkFit:
    """t = t0 + n / B: seconds to start, bytes a second, size that reaches half of B."""

    start_s: float
    bytes_per_s: float

    @property
    def half_size_bytes(self) -> float:
        """Size n at which half of B is reached: t0 x B (Hockney's n 1/2)."""
        return self.start_s * self.bytes_per_s

    def time_s(self, size_bytes: float) -> float:
        """Seconds that a copy of that size takes."""
        return self.start_s + size_bytes / self.bytes_per_s


def fit_link(sizes_bytes: Sequence[float], times_s: Sequence[float]) -> LinkFit:
    """Robust fit of t = t0 + n / B to copies of several sizes, some of them often.

    Gauss-Newton on log(t), so that each size counts alike, with Huber's weights, so
    that an odd sample does not pull the line.

    Raises:
        ValueError: fewer than two sizes, or times that do not grow with the size.
    """
    import numpy as np

    n, t = np.asarray(sizes_bytes, dtype=float), np.asarray(times_s, dtype=float)
    if len(set(sizes_bytes)) < 2 or len(n) != len(t):
        raise ValueError("wanted times of at least two sizes, one time for each size")
    columns = np.stack([np.ones(len(n)), n], axis=1)
    small, large = np.median(t[n == n.min()]), np.median(t[n == n.max()])
    if large <= small:
        raise ValueError("the times do not grow with the size: no bandwidth to fit")
    found = np.array([small, (large - small) / (n.max() - n.min())])
    for _ in range(ITERATIONS):
        line = columns @ found
        off = np.log(t / line)
        scale = 1.4826 * np.median(np.abs(off)) or 1e-12
        weights = np.sqrt(np.minimum(1, HUBER * scale / np.maximum(np.abs(off), 1e-15)))
        slopes = columns / line[:, None] * weights[:, None]
        step, *_ = np.linalg.lstsq(slopes, off * weights, rcond=None)
        found = np.maximum(found + step, found / 2)  # both stay above zero
    return LinkFit(float(found[0]), 1 / float(found[1]))


def link_under_load(*, device: Device, seed: int = 0) -> tuple[Link, Link] | None:
    """The link's state before copies and while they run; None where not told.

    An idle card may show generation 1: only the second reading says what it can do.
    """
    index = nvidia.index_of(device.bus_id) if device.backend == "cuda" else None
    if index is None or device.link is None:
        return None
    arm = transfer_arm("h2d", LOAD_BYTES, device=device, seed=seed)
    before = nvidia.link(index)
    for _ in range(LOAD_COPIES):
        arm.calls[0]()
    during = nvidia.link(index)
    completed([], clock_for(device))()
    return before, during


def overlap_share(copy_s: float, compute_s: float, both_s: float) -> float:
    """Share of the shorter of two works that is hidden behind the other one.

    (t_copy + t_compute - t_both) / min(t_copy, t_compute): 1 hidden, 0 one by one.
    """
    return (copy_s + compute_s - both_s) / min(copy_s, compute_s)


def overlap_arms(
    size_bytes: int, n: int, *, device: Device, seed: int = 0
) -> list[Arm]:
    """Three arms: a pinned H2D copy, a product of n rows, and both on two streams."""
    names = ("overlap_copy", "overlap_compute", "overlap_both")
    if device.backend not in ("cuda", "rocm") or device.simulated:
        reason = "needs a CUDA or ROCm device: two streams on a real link"
        return [Arm(name=name, reason=reason) for name in names]
    import torch

    from gpu_lab.bench.matmul import matmul_arm

    copy = transfer_arm("h2d", size_bytes, device=device, seed=seed).calls[0]
    compute = matmul_arm(n, device=device, seed=seed).calls[0]
    side = torch.cuda.Stream(device.torch_name)

    def both() -> Any:
        current = torch.cuda.current_stream(device.torch_name)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            copy()
        compute()
        current.wait_stream(side)

    calls = (copy, compute, both)
    settings: Settings = {"size_bytes": size_bytes, "n": n, "seed": seed}
    return [
        Arm(name=name, calls=(call,), settings=settings)
        for name, call in zip(names, calls, strict=True)
    ]
