"""Copies inside one memory: the host's and the device's."""

from __future__ import annotations

from gpu_lab.bench import rows
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Plan, measure

METHOD_VERSION = 1
CONVENTION = "bytes read + bytes written"


def host_copy(
    size_bytes: int, *, device: Device, plan: Plan = QUICK, seed: int = 0
) -> Measurement:
    """Time of one copy inside the host's memory, in seconds.

    Counted are bytes read and bytes written, so `work` = 2 x size. A processor that
    first reads the line it writes to (write-allocate) really moves half as much again.

    Args:
        size_bytes: bytes copied per call, into a buffer allocated once.
        device: the CPU, or the stand-in; a GPU does not take part in this one.

    Raises:
        ValueError: size_bytes < 1.

    Same quantity elsewhere: STREAM copy (which counts in the same way).
    """
    return _copy("host_copy", size_bytes, device, where="cpu", plan=plan, seed=seed)


def device_copy(
    size_bytes: int, *, device: Device, plan: Plan = QUICK, seed: int = 0
) -> Measurement:
    """Time of one copy inside the GPU's memory (D2D), in seconds.

    Counted as in `host_copy`. On a CPU device nothing is timed and `reason` says why.

    Raises:
        ValueError: size_bytes < 1.
        DeviceLost: the device vanished during the run.

    Same quantity elsewhere: nvbandwidth `device_local_copy`.
    """
    if not device.is_gpu:
        return Measurement.not_measurable(
            "device_copy", device=device, reason=rows.ONLY_GPU
        )
    where = device.torch_name
    return _copy("device_copy", size_bytes, device, where=where, plan=plan, seed=seed)


def _copy(
    name: str, size_bytes: int, device: Device, *, where: str, plan: Plan, seed: int
) -> Measurement:
    import torch

    source = rows.random_bytes(size_bytes, seed=seed).to(where)
    target = torch.empty_like(source)
    target.copy_(source)
    rows.require_equal(target, source, what=name)
    timing = measure(lambda: target.copy_(source), device=device, plan=plan)
    return rows.row(
        name,
        timing,
        device=device,
        work=2.0 * size_bytes,
        unit="byte",
        version=METHOD_VERSION,
        settings={"size_bytes": size_bytes, "counted": CONVENTION, "seed": seed},
    )
