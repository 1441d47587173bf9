"""NVIDIA GPUs as their driver lists them, through nvml.query."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpu_lab.hardware import nvml
from gpu_lab.records import Device, DeviceLost, DeviceState, Link

# Values of NVML's enums; the names are those of nvml.h.
TEMPERATURE_GPU = 0
CLOCK_SM = 1
CLOCK_MEM = 2


def driver_version() -> str | None:
    """Version text of the NVIDIA driver, or None."""
    version = _of_driver("nvmlSystemGetDriverVersion")
    return str(version) if version else None


def cuda_driver_version() -> str | None:
    """Newest CUDA version that the driver supports, as "13.0", or None."""
    number = _of_driver("nvmlSystemGetCudaDriverVersion_v2")
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def devices() -> tuple[Device, ...]:
    """All GPUs that the driver lists; a lost one is an entry with a reason."""
    count = _of_driver("nvmlDeviceGetCount") or 0
    return tuple(_device(index) for index in range(count))


def state(index: int) -> DeviceState:
    """Power (W), temperature (°C), clocks (MHz) and memory in use now."""
    gpu = nvml.handle(index)
    memory = nvml.query("nvmlDeviceGetMemoryInfo", gpu)
    return DeviceState(
        power_w=_scaled(nvml.query("nvmlDeviceGetPowerUsage", gpu), 1000),
        power_limit_w=_scaled(nvml.query("nvmlDeviceGetEnforcedPowerLimit", gpu), 1000),
        temperature_c=nvml.query("nvmlDeviceGetTemperature", gpu, TEMPERATURE_GPU),
        clock_sm_mhz=nvml.query("nvmlDeviceGetClockInfo", gpu, CLOCK_SM),
        clock_memory_mhz=nvml.query("nvmlDeviceGetClockInfo", gpu, CLOCK_MEM),
        event_reasons=nvml.query("nvmlDeviceGetCurrentClocksEventReasons", gpu),
        memory_used_bytes=memory.used if memory else None,
    )


def holders(index: int) -> list[tuple[int, int | None]]:
    """Who holds memory of that GPU: (process id, bytes), the largest first."""
    found: dict[int, int | None] = {}
    with suppress(DeviceLost):
        for kind in ("Compute", "Graphics"):
            asked = f"nvmlDeviceGet{kind}RunningProcesses"
            running = nvml.query(asked, nvml.handle(index)) or ()
            found |= {process.pid: process.usedGpuMemory for process in running}
    return sorted(found.items(), key=lambda item: -(item[1] or 0))


def link(index: int) -> Link:
    """PCIe link as NVML negotiated it; where it leads is for the detection room."""
    gpu = nvml.handle(index)

    def ask(name: str) -> Any:
        return nvml.query(f"nvmlDeviceGet{name}", gpu)

    return Link(
        pcie_gen_current=ask("CurrPcieLinkGeneration"),
        pcie_width_current=ask("CurrPcieLinkWidth"),
        pcie_gen_max=ask("MaxPcieLinkGeneration"),
        pcie_width_max=ask("MaxPcieLinkWidth"),
        note="an idle card may show a lower generation than under load",
        evidence=("NVML",),
    )


def index_of(bus_id: str | None) -> int | None:
    """NVML's number of the card at that PCI address; torch may number otherwise."""
    wanted = bus_key(bus_id)
    found = [d.index for d in devices() if wanted == bus_key(d.bus_id)]
    return found[0] if wanted and found else None


def bus_key(bus_id: str | None) -> str | None:
    """PCI address without its domain's leading zeros, which differ by tool."""
    return bus_id.lower().lstrip("0") if bus_id else None


def _of_driver(function: str) -> Any:
    """What the driver says of itself; None also when it hangs."""
    try:
        return nvml.query(function)
    except DeviceLost:
        return None


def _device(index: int) -> Device:
    try:
        return _read_device(index)
    except DeviceLost as error:
        return _lost_device(index, str(error))


def _read_device(index: int) -> Device:
    gpu = nvml.handle(index)
    if gpu is None:  # no power, no interrupt, a reset is due: listed and unusable
        raise DeviceLost("the driver counts this GPU and gives no access to it")
    memory = nvml.query("nvmlDeviceGetMemoryInfo", gpu)
    capability = nvml.query("nvmlDeviceGetCudaComputeCapability", gpu)
    return Device(
        backend="cuda",
        index=index,
        name=str(nvml.query("nvmlDeviceGetName", gpu) or "NVIDIA GPU"),
        memory_bytes=memory.total if memory else None,
        capability=".".join(map(str, capability)) if capability else None,
        bus_id=_bus_id(gpu),
        simulated=nvml.replayed(),
        link=link(index),
        state=state(index),
    )


def _lost_device(index: int, reason: str) -> Device:
    def ask(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except DeviceLost:
            return None

    name = ask(lambda: nvml.query("nvmlDeviceGetName", nvml.handle(index)))
    return Device(
        backend="cuda",
        index=index,
        name=str(name or "NVIDIA GPU"),
        bus_id=ask(lambda: _bus_id(nvml.handle(index))),
        simulated=nvml.replayed(),
        lost=reason,
    )


def _bus_id(gpu: Any) -> str | None:
    pci = nvml.query("nvmlDeviceGetPciInfo", gpu)
    bus = getattr(pci, "busId", None)
    return bus.decode() if isinstance(bus, bytes) else bus


def _scaled(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor
