"""What one look at the machine tells: a flat dict, None where nobody tells."""

from __future__ import annotations

from typing import Any

import psutil

from gpu_lab import facts, store
from gpu_lab.hardware import nvidia, nvml
from gpu_lab.records import DeviceLost, Source

PERCENT = 100.0
COUNTERS = {"link_sent": 0, "link_received": 1}  # NVML's numbers of both directions


class Reader:
    """Looks at the host and at each GPU; a lost one is not asked again.

    Asking for the traffic of the link takes 20 ms a counter: only when wanted.
    """

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._process = psutil.Process()
        self._lost: dict[int, str] = {}
        self._count: int | None = None

    def read(self, *, link: bool = False) -> dict[str, Any]:
        """One sample; never raises for what a GPU or a driver does.

        Args:
            link: ask for the traffic of the link too.
        """
        if self._count is None:
            self._count = _asked("nvmlDeviceGetCount") or 0
        return {
            "time": store.now(),
            "source": str(Source.SIMULATED if nvml.replayed() else Source.MEASURED),
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
            "process_bytes": self._process.memory_info().rss,
            "gpus": [self._gpu(index, link) for index in range(self._count)],
        }

    def _gpu(self, index: int, link: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"index": index}
        if index not in self._lost:
            try:
                found |= _gpu(index)
                found |= _traffic(index) if link else {}
            except DeviceLost as error:
                self._lost[index] = str(error)
        return found | {"lost": self._lost.get(index, "")}


def _asked(function: str, *given: Any) -> Any:
    """The driver's answer about itself; None also when it hangs."""
    try:
        return nvml.query(function, *given)
    except DeviceLost:
        return None


def _gpu(index: int) -> dict[str, Any]:
    state = nvidia.state(index)
    used = nvml.query("nvmlDeviceGetUtilizationRates", nvml.handle(index))
    busy = used.gpu if used else None
    return {
        "utilisation_percent": busy,
        "waits_percent": None if busy is None else PERCENT - busy,
        "memory_bytes": state.memory_used_bytes,
        "power_w": state.power_w,
        "temperature_c": state.temperature_c,
        "clock_mhz": state.clock_sm_mhz,
        "reasons": reasons(state.event_reasons),
    }


def reasons(bits: int | None) -> list[str] | None:
    """NVML's event reasons in words, as nvidia-smi writes those that hold."""
    if bits is None:
        return None
    names = facts.settings("monitor")["reasons"]
    return [f"{name}: Active" for name, bit in names.items() if bits & bit]


def _traffic(index: int) -> dict[str, Any]:
    gpu = nvml.handle(index)
    function = "nvmlDeviceGetPcieThroughput"
    told = {k: nvml.query(function, gpu, number) for k, number in COUNTERS.items()}
    return {f"{k}_bytes_per_s": v and 1000 * v for k, v in told.items()}
