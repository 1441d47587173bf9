"""What one look at the machine tells: a dict, None where nobody tells."""

from __future__ import annotations

import time
from typing import Any

import psutil

from gpu_lab import facts, store, units
from gpu_lab.hardware import nvidia, nvml
from gpu_lab.records import DeviceLost, Source

Sample = dict[str, Any]
COUNTERS = {"link_sent_bytes_per_s": 0, "link_received_bytes_per_s": 1}  # of NVML


class Reader:
    """Looks at the host and at each GPU; a lost one is not asked again."""

    def __init__(self) -> None:
        """Which GPUs the driver lists is asked once."""
        self._lost = {device.index: device.lost for device in nvidia.devices()}
        self._source = str(Source.SIMULATED if nvml.replayed() else Source.MEASURED)
        self._start_s = time.monotonic()
        psutil.cpu_percent()  # the next call says what was used since this one

    def read(self, *, link: bool = False) -> Sample:
        """One sample; never raises for what a GPU or a driver does.

        Args:
            link: ask for the traffic of the link too, which takes 40 ms a GPU.
        """
        return {
            "time": store.now(),
            "elapsed_s": round(time.monotonic() - self._start_s, 3),
            "source": self._source,
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
            "process_bytes": psutil.Process().memory_info().rss,
            "gpus": [self._gpu(index, link) for index in self._lost],
        }

    def _gpu(self, index: int, link: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if not self._lost[index]:
            try:
                found = _gpu(index) | (_traffic(index) if link else {})
            except DeviceLost as error:
                self._lost[index] = str(error)
        return {"index": index, **found, "lost": self._lost[index]}


def _gpu(index: int) -> dict[str, Any]:
    state = nvidia.state(index)
    used = nvml.query("nvmlDeviceGetUtilizationRates", nvml.handle(index))
    bits, names = state.event_reasons, facts.settings("monitor")["reasons"]
    active = [f"{name}: Active" for name, bit in names.items() if (bits or 0) & bit]
    return {
        "busy_percent": used and used.gpu,
        "waits_percent": used and 100 - used.gpu,
        "memory_bytes": state.memory_used_bytes,
        "power_w": state.power_w,
        "temperature_c": state.temperature_c,
        "clock_mhz": state.clock_sm_mhz,
        # As nvidia-smi writes those that hold, so that the doctor reads them.
        "reasons": None if bits is None else active,
    }


def _traffic(index: int) -> dict[str, Any]:
    """Bytes a second over the link in both directions; NVML counts in KB/s."""
    ask, gpu = "nvmlDeviceGetPcieThroughput", nvml.handle(index)
    told = {name: nvml.query(ask, gpu, number) for name, number in COUNTERS.items()}
    return {name: value and 1000 * value for name, value in told.items()}


def lines(sample: Sample) -> list[str]:
    """A sample in words, a line for the host and one for each GPU."""
    used = f"memory {_percent(sample['memory_percent'])}"
    process = f"this process {units.memory(sample['process_bytes'])}"
    found = [f"host   CPU {_percent(sample['cpu_percent'])}, {used}, {process}"]
    for gpu in sample["gpus"]:
        text = f"lost: {gpu['lost']}" if gpu["lost"] else ", ".join(_words(gpu))
        found.append(f"GPU {gpu['index']}  {text}")
    return found if sample["gpus"] else [*found, f"GPU    {units.NOT_AVAILABLE}"]


def _words(gpu: Sample) -> list[str]:
    names = [text.removesuffix(": Active") for text in gpu["reasons"] or ()]
    return [
        f"busy {_percent(gpu['busy_percent'])}",
        f"waits {_percent(gpu['waits_percent'])}",
        units.memory(gpu["memory_bytes"]),
        units.power(gpu["power_w"]),
        units.temperature(gpu["temperature_c"]),
        units.clock(gpu["clock_mhz"]),
        *(f"{k[5:9]} {units.bandwidth(gpu[k])}" for k in COUNTERS if k in gpu),
        f"held by {', '.join(names) or units.NOT_AVAILABLE}",
    ]


def _percent(value: float | None) -> str:
    return units.percent(None if value is None else value / 100)
