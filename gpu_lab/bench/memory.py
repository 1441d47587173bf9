"""Bandwidth inside one memory: the host's and the device's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpu_lab.bench import rows
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Arm, Plan

METHOD_VERSION = 2
SCALE = 3.0
ITEM_BYTES = 4  # float32
# What a call reads and writes, in units of its size; a write that first reads the
# line it writes to (write-allocate of a processor) is not counted, as in STREAM.
CONVENTION = {
    "copy": (2, "1 read + 1 written"),
    "triad": (3, "2 read + 1 written"),
    "read": (1, "1 read"),
    "write": (1, "1 written"),
}
TOLERANCE = 1e-3


def host_copy(
    size_bytes: int, *, device: Device, plan: Plan = QUICK, seed: int = 0
) -> Measurement:
    """Time of one copy inside the host's memory, in seconds; as `memory`."""
    arm = memory_arm("copy", size_bytes, device=device, on_host=True, seed=seed)
    return rows.measured(arm, device=device, plan=plan)


def device_copy(
    size_bytes: int, *, device: Device, plan: Plan = QUICK, seed: int = 0
) -> Measurement:
    """Time of one copy inside the GPU's memory (D2D), in seconds; as `memory`."""
    arm = memory_arm("copy", size_bytes, device=device, on_host=False, seed=seed)
    return rows.measured(arm, device=device, plan=plan)


def memory(
    kind: str,
    size_bytes: int,
    *,
    device: Device,
    on_host: bool = False,
    plan: Plan = QUICK,
    seed: int = 0,
) -> Measurement:
    """Time of one pass over memory, in seconds.

    Args:
        kind: "copy" a = b, "triad" a = b + s c, "read" sum(b) or "write" a = s, of
            float32 numbers.
        size_bytes: of each array.
        on_host: the computer's memory, also on a machine with a GPU.

    Returns:
        Measurement with `work` = bytes read and written as CONVENTION counts them.
        Rotates over so many arrays that the cache stays cold; where the memory has
        no room for them the row is flagged "hot-cache". On a CPU the device's memory
        is not measurable, and `reason` says so.

    Raises:
        ValueError: size_bytes < 4 or unknown kind.
        WrongResult: the result is not right; its speed means nothing.
        DeviceLost: the device vanished during the run.

    Same quantity elsewhere: STREAM (McCalpin), nvbandwidth `device_local_copy`.
    """
    arm = memory_arm(kind, size_bytes, device=device, on_host=on_host, seed=seed)
    return rows.measured(arm, device=device, plan=plan)


def memory_arm(
    kind: str,
    size_bytes: int,
    *,
    device: Device,
    on_host: bool = False,
    cold: bool = True,
    seed: int = 0,
) -> Arm:
    """The prepared pass of `memory`; `cold=False` leaves the rotation out."""
    if kind not in CONVENTION or size_bytes < ITEM_BYTES:
        raise ValueError(
            f"wanted kind of {', '.join(CONVENTION)} and at least {ITEM_BYTES} bytes, "
            f"found {kind!r} and {size_bytes}"
        )
    name = f"{'host' if on_host else 'device'}_{kind}"
    if not (on_host or device.is_gpu):
        return Arm(name=name, reason=rows.ONLY_GPU)
    where = "cpu" if on_host else device.torch_name
    arrays = 3 if kind == "triad" else 2 if kind == "copy" else 1
    number, hot = rows.sets(arrays * size_bytes, device=_owner(device, on_host))
    if not cold:
        number, hot = 1, number > 1 or hot
    counted, words = CONVENTION[kind]
    return Arm(
        name=name,
        calls=tuple(
            _pass(kind, size_bytes, where, seed=seed + i, name=name)
            for i in range(number)
        ),
        queued=not on_host,
        hot=hot,
        work=float(counted * size_bytes),
        work_unit="byte",
        version=METHOD_VERSION,
        settings={"size_bytes": size_bytes, "counted": words, "seed": seed},
        observed={"sets": number, "cache": "hot" if hot else "cold"},
    )


def _owner(device: Device, on_host: bool) -> Device:
    """The device whose cache is in the way."""
    return Device(backend="cpu", name="host") if on_host else device


def _pass(
    kind: str, size_bytes: int, where: str, *, seed: int, name: str
) -> Callable[[], Any]:
    """One call over arrays of its own, checked once before it is timed."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    items = size_bytes // ITEM_BYTES
    b = torch.randn(items, generator=generator)
    rows.require_random(b, what=name)
    b = b.to(where)
    a = torch.empty_like(b)
    if kind == "read":
        call = functools.partial(torch.sum, b)
        _require_near(call(), b.double().sum(), scale=b.abs().sum(), what=name)
        return call
    if kind == "write":
        call = functools.partial(a.fill_, SCALE)
        _require_near(call().sum(), SCALE * items, scale=SCALE * items, what=name)
        return call
    if kind == "copy":
        call = functools.partial(a.copy_, b)
        rows.require_equal(call(), b, what=name)
        return call
    c = b.flip(0)
    call = functools.partial(torch.add, b, c, alpha=SCALE, out=a)
    _require_near(call()[-1], b[-1] + SCALE * b[0], scale=10.0, what=name)
    return call


def _require_near(found: Any, right: Any, *, scale: Any, what: str) -> None:
    if not abs(float(found) - float(right)) <= TOLERANCE * float(scale):
        raise rows.WrongResult(
            f"{what}: found {float(found):g}, wanted {float(right):g}; its speed is "
            "not shown"
        )
