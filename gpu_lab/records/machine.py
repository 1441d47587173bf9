"""The machine and its devices: hardware, versions, nothing personal."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu_lab.records.base import GpuLabError


@dataclass(frozen=True, kw_only=True)
class Link:
    """Path between host and GPU as negotiated; None where nobody can tell."""

    kind: str = "unknown"
    external: bool | None = None
    pcie_gen_current: int | None = None
    pcie_width_current: int | None = None
    pcie_gen_max: int | None = None
    pcie_width_max: int | None = None
    note: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeviceState:
    """Power, heat and clocks of a device at one moment; None where not told."""

    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    event_reasons: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Device:
    """One thing that computes: a GPU, or the CPU itself.

    `lost` holds the reason when the driver lists the device but it answers no more.
    `simulated` marks the stand-in: whatever is timed on it is SIMULATED.
    """

    backend: str
    name: str
    index: int = 0
    memory_bytes: int | None = None
    capability: str | None = None
    bus_id: str | None = None
    simulated: bool = False
    lost: str = ""
    link: Link | None = None
    state: DeviceState | None = None

    @property
    def label(self) -> str:
        """Name that the user types: cpu, cuda:0, xpu:1, mps."""
        single = self.backend in ("cpu", "mps")
        return self.backend if single else f"{self.backend}:{self.index}"

    @property
    def is_gpu(self) -> bool:
        """True for everything that is not the CPU itself."""
        return self.backend != "cpu"

    @property
    def is_real_gpu(self) -> bool:
        """True for a GPU that is there, and not replayed by the stand-in."""
        return self.is_gpu and not self.simulated

    @property
    def torch_name(self) -> str:
        """Name that torch understands; ROCm is "cuda" there, the stand-in "cpu"."""
        if self.simulated:
            return "cpu"
        return self.label.replace("rocm", "cuda")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Passport of a machine: hardware, versions, nothing personal."""

    system: str
    python: str
    cpu_name: str
    cpu_cores: int | None
    cpu_threads: int
    memory_bytes: int
    torch_threads: int | None = None
    environment: str = ""
    power_source: str | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[Device, ...]:
        """Devices other than the CPU, lost ones included."""
        return tuple(d for d in self.devices if d.is_gpu)

    def device(self, label: str) -> Device:
        """The device with that label; raises GpuLabError naming those present."""
        for device in self.devices:
            if device.label == label:
                return device
        present = ", ".join(d.label for d in self.devices)
        raise GpuLabError(f"no device {label!r} here; found: {present}")
