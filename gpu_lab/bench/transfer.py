"""Copies over the link between host and device."""

from __future__ import annotations

from typing import Any

from gpu_lab.bench import rows
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Plan, measure

METHOD_VERSION = 1


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
    return _transfer("h2d", size_bytes, device, pinned=pinned, plan=plan, seed=seed)


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
    return _transfer("d2h", size_bytes, device, pinned=pinned, plan=plan, seed=seed)


def _transfer(
    name: str, size_bytes: int, device: Device, *, pinned: bool, plan: Plan, seed: int
) -> Measurement:
    if not device.is_gpu:
        return Measurement.not_measurable(name, device=device, reason=rows.ONLY_GPU)
    import torch

    host = _host_buffer(size_bytes, device, pinned=pinned, seed=seed)
    there = torch.empty_like(host, device=device.torch_name).copy_(host)
    rows.require_equal(there, host, what=name)
    target, source = (there, host) if name == "h2d" else (host, there)
    timing = measure(
        lambda: target.copy_(source, non_blocking=pinned), device=device, plan=plan
    )
    return rows.row(
        name,
        timing,
        device=device,
        work=float(size_bytes),
        unit="byte",
        version=METHOD_VERSION,
        settings={"size_bytes": size_bytes, "pinned": pinned, "seed": seed},
    )


def _host_buffer(size_bytes: int, device: Device, *, pinned: bool, seed: int) -> Any:
    buffer = rows.random_bytes(size_bytes, seed=seed)
    if not pinned or device.simulated:  # pin_memory() raises without a driver
        return buffer
    return buffer.pin_memory()
