"""Clocks: wall and CPU seconds now, and how to wait until a device is done.

A clock whose device keeps a queue (`Queue`) can also time on the device itself.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from gpu_lab.records import Device, DeviceLost, DeviceState, Source, first_line

STAND_IN_FACTOR = 100.0  # the stand-in must be visibly another machine


class Clock(Protocol):
    """What the core needs; tests pass a clock of their own.

    A second of this clock takes `wall_per_s` seconds of the wall clock, so that a
    budget means the same patience on every clock.
    """

    source: Source
    wall_per_s: float

    def wall(self) -> float:
        """Seconds of wall time since some moment."""

    def cpu(self) -> float:
        """Seconds of CPU time of this thread since some moment."""

    def synchronize(self) -> None:
        """Return when the device has finished all that was queued."""

    def anchor(self) -> Any:
        """One call of fixed reference work on the device."""


class Event(Protocol):
    """A mark in the device's queue."""

    def done(self) -> bool:
        """Whether the device has come to the mark."""

    def seconds_to(self, later: Any) -> float:
        """Device seconds from this mark to a later one; both must be done."""


@runtime_checkable
class Queue(Clock, Protocol):
    """A clock whose device works off a queue on its own time."""

    def hold(self, hold_s: float) -> None:
        """Queue work that keeps the device busy for about that long."""

    def mark(self) -> Event:
        """Queue a mark."""

    def state(self) -> DeviceState | None:
        """Clocks, heat and event reasons now; None when nobody tells."""


class WallClock:
    """Clock of the host, which waits for its device."""

    source = Source.MEASURED
    wall_per_s = 1.0

    def __init__(self, device: Device) -> None:
        """A clock that waits for this device."""
        self._device = device

    def wall(self) -> float:
        """Seconds of wall time since some moment."""
        return time.perf_counter()

    def cpu(self) -> float:
        """Seconds of CPU time of this thread since some moment."""
        return time.thread_time()

    def synchronize(self) -> None:
        """Wait for the device; a CPU has nothing queued.

        Raises:
            DeviceLost: the device answers no more.
        """
        if not self._device.is_gpu:
            return
        import torch

        try:
            torch.accelerator.synchronize(torch.device(self._device.torch_name))
        except RuntimeError as error:
            raise lost(self._device, error) from error

    def anchor(self) -> None:
        """One small matrix product, always the same."""
        _anchor_product(self._device.torch_name)


class StandInClock:
    """Clock of the stand-in: the work runs on the CPU, its seconds are divided."""

    source = Source.SIMULATED

    def __init__(self, factor: float = STAND_IN_FACTOR) -> None:
        """A clock that runs `factor` times slower than the wall clock."""
        self.wall_per_s = factor

    def wall(self) -> float:
        """Simulated seconds since some moment."""
        return time.perf_counter() / self.wall_per_s

    def cpu(self) -> float:
        """Simulated CPU seconds since some moment."""
        return time.thread_time() / self.wall_per_s

    def synchronize(self) -> None:
        """Nothing is queued: the stand-in computes on the CPU."""

    def anchor(self) -> None:
        """One small matrix product, always the same."""
        _anchor_product("cpu")


def clock_for(device: Device) -> Clock:
    """The clock that belongs to a device; a simulated one never gets a real clock."""
    if device.simulated:
        return StandInClock()
    if device.backend in ("cuda", "rocm"):
        from gpu_lab.timing.cuda import CudaQueue

        return CudaQueue(device)
    return WallClock(device)


def _anchor_product(torch_name: str) -> None:
    matrix, out, product = _anchor_matrices(torch_name)
    product(matrix, matrix, out=out)


@functools.cache
def _anchor_matrices(torch_name: str) -> tuple[Any, Any, Callable[..., Any]]:
    """Matrix, room for its square, and the product; NumPy on a CPU, without torch."""
    import numpy as np

    # 48 rows: below the size from which BLAS takes threads. 256: a real kernel.
    on_cpu = torch_name == "cpu"
    rows = 48 if on_cpu else 256
    matrix = np.random.default_rng(0).standard_normal((rows, rows), dtype=np.float32)
    if on_cpu:
        return matrix, np.empty_like(matrix), np.matmul
    import torch

    there = torch.from_numpy(matrix).to(torch_name)
    return there, torch.empty_like(there), torch.mm


def completed(steps: Sequence[Callable[[], Any]], clock: Clock) -> Callable[[], None]:
    """One call that makes all steps and returns when the device has done them."""

    def whole() -> None:
        for step in steps:
            step()
        clock.synchronize()

    return whole


def lost(device: Device, error: Any) -> DeviceLost:
    """The error of a device that failed while it was in use."""
    first = first_line(error)
    return DeviceLost(
        f"{device.label} ({device.name}) failed while it was in use: {first}; "
        "`gpu-lab doctor` says what still answers"
    )
