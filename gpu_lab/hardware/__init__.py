"""Reads facts of this machine and never times anything: detect() -> Machine."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path

from gpu_lab.hardware import host, nvidia, nvml, place, snapshot, torch_view
from gpu_lab.hardware.install import environment, install_command
from gpu_lab.hardware.ladder import broken, climb, inspect, load_findings
from gpu_lab.records import Device, GpuLabError, Ladder, Link, Machine

DEVICE_VARIABLE = "GPU_LAB_DEVICE"
BACKENDS = ("auto", "cpu", "cuda", "rocm", "xpu", "mps")


def detect() -> Machine:
    """The machine's passport: what is here now, without anything personal."""
    return Machine(
        system=host.system(),
        python=platform.python_version(),
        cpu_name=host.cpu_name(),
        cpu_cores=host.cores(),
        cpu_threads=host.threads(),
        memory_bytes=host.memory_bytes(),
        torch_threads=torch_view.threads(),
        environment=host.environment(),
        power_source=host.power_source(),
        driver_version=nvidia.driver_version(),
        cuda_driver_version=nvidia.cuda_driver_version(),
        versions={**torch_view.versions(), **torch_view.build()},
        devices=(cpu_device(), *find_devices()),
        notes=_notes(),
    )


def cpu_device() -> Device:
    """The processor as a device, so that every lesson has one to run on."""
    return Device(backend="cpu", name=host.cpu_name(), memory_bytes=host.memory_bytes())


def find_devices() -> tuple[Device, ...]:
    """GPUs in torch's numbering, with what the driver knows of each added.

    A GPU that only the driver lists stays in the list, marked lost.
    """
    listed = nvidia.devices()
    if nvml.replayed():
        return listed
    return tuple(_placed(device) for device in _joined(listed))


def _joined(listed: tuple[Device, ...]) -> tuple[Device, ...]:
    seen = torch_view.devices()
    joined = [_join(device, listed) for device in seen]
    known = {nvidia.bus_key(d.bus_id) for d in joined}
    # Numbers go on behind torch's own, so that two devices never share a label.
    start = 1 + max((d.index for d in joined if d.backend == "cuda"), default=-1)
    unseen = [d for d in listed if nvidia.bus_key(d.bus_id) not in known]
    return (*joined, *(_unseen(d, start + i) for i, d in enumerate(unseen)))


def choose(machine: Machine, wanted: str = "auto") -> Device:
    """The device to run on: the value given, else GPU_LAB_DEVICE, else the first GPU.

    Raises:
        GpuLabError: unknown name, or no such device that torch can use.
    """
    wanted = wanted if wanted != "auto" else os.environ.get(DEVICE_VARIABLE) or "auto"
    if wanted.split(":")[0] not in BACKENDS:
        raise GpuLabError(
            f"unknown device {wanted!r}; wanted one of {', '.join(BACKENDS)}, "
            "or one with its number such as cuda:1"
        )
    usable = [d for d in machine.devices if not d.lost]
    if wanted == "auto":
        return next((d for d in usable if d.is_gpu), usable[0])
    for device in usable:
        if wanted in (device.label, device.backend):
            return device
    found = ", ".join(d.label for d in usable)
    raise GpuLabError(
        f"device {wanted!r} is not usable here; found: {found}; "
        "`gpu-lab doctor` says which rung is missing"
    )


def ladder_device(machine: Machine, device: Device) -> Device:
    """Which device the ladder is climbed for: the chosen GPU, else any that is listed.

    A GPU that cannot be chosen is the very one whose ladder people want to see.
    """
    if device.is_gpu:
        return device
    return next(iter(machine.gpus), device)


def live_ladder(machine: Machine, device: Device) -> Ladder:
    """The ladder of this machine now, climbed for `ladder_device`."""
    wanted = ladder_device(machine, device)
    return climb(inspect(wanted), device=wanted.label)


def _join(device: Device, listed: tuple[Device, ...]) -> Device:
    for other in listed:
        key = nvidia.bus_key(device.bus_id)
        if nvidia.bus_key(other.bus_id) == key is not None:
            lost = device.lost or other.lost
            return dataclasses.replace(
                device, link=other.link, state=other.state, lost=lost
            )
    return device


def _placed(device: Device) -> Device:
    """The device with what the snapshot of this machine says of its link."""
    key = nvidia.bus_key(device.bus_id)
    for row in snapshot.here()["gpus"] if key else ():
        if nvidia.bus_key(row["bus_id"]) == key:
            link = device.link or Link(**{n: row[n] for n in place.LINK_FIELDS})
            why = (*link.evidence, *row["evidence"])
            told = {"kind": row["link"], "external": row["external"], "evidence": why}
            return dataclasses.replace(device, link=dataclasses.replace(link, **told))
    return device


def _unseen(device: Device, index: int) -> Device:
    reason = device.lost or "the driver lists it, torch does not see it"
    return dataclasses.replace(device, index=index, lost=reason)


def _notes() -> tuple[str, ...]:
    if nvml.replayed():
        name = Path(os.environ[nvml.REPLAY_VARIABLE]).name
        return (f"stand-in: driver answers replayed from {name}",)
    return ()
