"""CUDA and ROCm: marks and backlog in the device's own queue."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from gpu_lab.hardware import nvidia
from gpu_lab.records import Device, DeviceLost, DeviceState
from gpu_lab.timing.clocks import WallClock, lost

CALIBRATION_CYCLES = 2_000_000
WAKING = 50  # some 50 ms at full clock, a third of a second at the idle one


class CudaEvent:
    """A recorded torch.cuda.Event; its resolution is about half a microsecond."""

    def __init__(self, device: Device) -> None:
        """Record it on the current stream of the device."""
        import torch

        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record(torch.cuda.current_stream(torch.device(device.torch_name)))

    def done(self) -> bool:
        """Whether the device has come to the mark."""
        return bool(self._event.query())

    def seconds_to(self, later: CudaEvent) -> float:
        """Device seconds from this mark to a later one."""
        return float(self._event.elapsed_time(later._event)) / 1e3


class CudaQueue(WallClock):
    """Clock of a CUDA or ROCm device that also times on the device."""

    def __init__(self, device: Device) -> None:
        """The current stream of this device."""
        super().__init__(device)
        self._cycles_per_s = _cycles_per_s(device)

    def hold(self, hold_s: float) -> None:
        """Keep the device busy with `torch.cuda._sleep`, which torch's tests use."""
        import torch

        with self._named(), torch.cuda.device(torch.device(self._device.torch_name)):
            torch.cuda._sleep(max(1, int(hold_s * self._cycles_per_s)))

    def mark(self) -> CudaEvent:
        """Queue a mark."""
        with self._named():
            return CudaEvent(self._device)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A pulled cable is a lost device, wherever it is noticed first."""
        try:
            yield
        except RuntimeError as error:
            raise lost(self._device, error) from error

    def state(self) -> DeviceState | None:
        """Clocks, heat and event reasons as NVML tells them; None on ROCm.

        NVML and torch may number the cards differently: the PCI address decides.
        """
        index = _nvml_index(self._device.bus_id)
        if index is None:
            return None
        try:
            return nvidia.state(index)
        except DeviceLost as error:
            raise lost(self._device, error) from error


@functools.cache
def _cycles_per_s(device: Device) -> float:
    """Cycles of `_sleep` in a second: its counter is not the SM clock on every card."""
    import torch

    with torch.cuda.device(torch.device(device.torch_name)):
        # An idle card runs at a fraction of its clock: first wake it, then look.
        for _ in range(WAKING):
            torch.cuda._sleep(CALIBRATION_CYCLES)
        start = CudaEvent(device)
        torch.cuda._sleep(CALIBRATION_CYCLES)
        stop = CudaEvent(device)
        torch.cuda.synchronize()
    return CALIBRATION_CYCLES / start.seconds_to(stop)


@functools.cache
def _nvml_index(bus_id: str | None) -> int | None:
    return nvidia.index_of(bus_id)
