"""Clocks: wall and CPU seconds now, and how to wait until a device is done."""

from __future__ import annotations

import time
from typing import Any, Protocol

from gpu_lab.records import Device, DeviceLost, Source, first_line

STAND_IN_FACTOR = 100.0  # the stand-in must be visibly another machine


class Clock(Protocol):
    """What `measure` needs; tests pass a clock of their own.

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


class WallClock:
    """Clock of a real device."""

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
            raise _lost(self._device, error) from error


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


def clock_for(device: Device) -> Clock:
    """The clock that belongs to a device; a simulated one never gets a real clock."""
    return StandInClock() if device.simulated else WallClock(device)


def _lost(device: Device, error: Any) -> DeviceLost:
    first = first_line(error)
    return DeviceLost(
        f"{device.label} ({device.name}) failed while it was in use: {first}; "
        "`gpu-lab doctor` says what still answers"
    )
