"""What torch sees, and whether what it sees really works. torch is imported here.

Run as a program (`python -m gpu_lab.hardware.torch_view cuda:0`) it probes a device
in a process of its own: a lost GPU can hang its user, and then only that process
has to die. It prints one JSON line a stage, so the last one says how far it came.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

from gpu_lab.hardware import nvml
from gpu_lab.records import Device, first_line

PROBE_ELEMENTS = 256  # float32: 1 KiB, as small as a kernel can be


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what measures, by distribution name; absent ones left out."""
    found = {}
    for name in ("torch", "torchvision", "numpy", "nvidia-ml-py", "triton"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def import_problem() -> str:
    """Why torch cannot be imported, in one line; empty when it can."""
    try:
        import torch  # noqa: F401  # only whether it loads
    except (ImportError, OSError, AttributeError) as error:  # absent, or half installed
        return f"torch cannot be imported: {type(error).__name__}: {first_line(error)}"
    return ""


def build() -> dict[str, str]:
    """What the torch build was made for: {"cuda": "13.0"}, {"hip": …} or {}."""
    if import_problem():
        return {}
    import torch

    kinds = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    return {kind: text for kind, text in kinds.items() if text}


def threads() -> int | None:
    """Threads that torch uses for one operation on the CPU; None without torch."""
    if import_problem():
        return None
    import torch

    return torch.get_num_threads()


def devices() -> tuple[Device, ...]:
    """GPUs that torch lists now, in torch's own numbering; unusable ones are lost."""
    if import_problem():
        return ()
    with warnings.catch_warnings():
        # torch warns of drivers and cards that do not fit; the ladder says so in full.
        warnings.simplefilter("ignore")
        return tuple(_devices())


def _devices() -> list[Device]:
    import torch

    # current_accelerator() names the build's kind even without a driver, so the
    # guard is is_available(), on each kind.
    found: list[Device] = []
    if torch.cuda.is_available():
        backend = "rocm" if torch.version.hip else "cuda"
        for index in range(torch.cuda.device_count()):
            found.append(_or_lost(_cuda_device, index, backend))
    if torch.xpu.is_available():
        for index in range(torch.xpu.device_count()):
            found.append(_or_lost(_xpu_device, index, "xpu"))
    if torch.backends.mps.is_available():
        found.append(Device(backend="mps", name="Apple GPU"))
    return found


def _or_lost(read: Callable[[int, str], Device], index: int, backend: str) -> Device:
    """One device; a lost one, that raises when asked, stays in the list."""
    try:
        return read(index, backend)
    except RuntimeError as error:
        lost = first_line(error)
        return Device(backend=backend, name="GPU", index=index, lost=lost)


def supports(capability: str, arch_list: list[str]) -> bool:
    """Whether a wheel with these architectures runs on a card of that capability.

    A binary (sm_86) serves its own major version from its minor version on; PTX
    (compute_90) is compiled for any newer card (CUDA C++ programming guide,
    "Application compatibility").
    """
    major, minor = (int(part) for part in capability.split("."))
    for arch in arch_list:
        kind, _, digits = arch.partition("_")
        number = "".join(c for c in digits if c.isdigit())
        specific = not digits.isdigit()  # sm_90a runs on exactly 9.0
        have = (int(number[:-1]), int(number[-1]))
        same_major = have[0] == major and (have[1] == minor or not specific)
        if kind == "sm" and same_major and have[1] <= minor:
            return True
        if kind == "compute" and not specific and have <= (major, minor):
            return True
    return False


def probe(device: Device) -> dict[str, Any]:
    """Stages "seen", "wheel", "kernel" and "copy" on one device, in this process."""
    stages: dict[str, Any] = {}
    for stage in _stages(device):
        stages.update(stage)
    return stages


def _stages(device: Device) -> Any:
    yield {"versions": versions(), "build": build()}
    if import_problem():
        yield {"seen": False, "seen_evidence": import_problem()}
        return
    import torch

    if not device.is_gpu:
        yield {"seen": False, "seen_evidence": _why_not()}
        return
    if device.lost and not device.capability:  # listed, and it answers nothing
        yield {"seen": False, "seen_evidence": f"{device.label}: {device.lost}"}
        return
    yield {"seen": True, "seen_evidence": f"{device.label} {device.name}"}
    yield _wheel(device)
    yield _attempt("kernel", lambda: _kernel(torch.device(device.torch_name)))
    yield _attempt("copy", lambda: _copy(torch.device(device.torch_name)))


def _why_not() -> str:
    import torch

    kind = ", ".join(f"{k} {v}" for k, v in build().items()) or "CPU only"
    seen = ", ".join(f"{d.label} {d.name}" for d in devices())
    text = f"torch {torch.__version__} ({kind}) sees {seen or 'no GPU'}"
    if torch.version.cuda and not seen:
        try:
            torch.cuda.current_device()  # says why, which is_available() does not
        except (RuntimeError, AssertionError) as error:
            text += f": {first_line(error)}"
    return text


def _wheel(device: Device) -> dict[str, Any]:
    if device.backend not in ("cuda", "rocm"):
        return {"wheel": True, "wheel_evidence": f"{device.backend} has no list"}
    archs = nvml.replay("arch_list", []) if device.simulated else architectures()
    have = f"wheel has {' '.join(archs) or 'none'}"
    if device.backend == "rocm":
        name = str(device.capability)
        return {"wheel": name in archs, "wheel_evidence": f"{name}; {have}"}
    needed = device.capability or "0.0"
    fits = supports(needed, archs)
    return {"wheel": fits, "wheel_evidence": f"compute capability {needed}; {have}"}


def architectures() -> list[str]:
    """What this torch build has kernels for, as sm_86; none without a GPU."""
    import torch

    return list(torch.cuda.get_arch_list())


def _attempt(stage: str, work: Any) -> dict[str, Any]:
    try:
        good, evidence = work()
    except Exception as error:  # whatever a broken driver raises is the answer
        good, evidence = False, f"{type(error).__name__}: {first_line(error)}"
    return {stage: good, f"{stage}_evidence": evidence}


def _kernel(device: Any) -> tuple[bool, str]:
    import torch

    given = torch.arange(PROBE_ELEMENTS, dtype=torch.float32)
    result = (given.to(device) * 2 + 1).cpu()
    right = torch.equal(result, given * 2 + 1)
    return right, f"{PROBE_ELEMENTS} numbers, {'all' if right else 'not all'} right"


def _copy(device: Any) -> tuple[bool, str]:
    import torch

    generator = torch.Generator().manual_seed(0)
    given = torch.randint(256, (1 << 20,), dtype=torch.uint8, generator=generator)
    equal = torch.equal(given.to(device).cpu(), given)
    return equal, f"1 MiB there and back, {'bit-equal' if equal else 'CHANGED'}"


def _cuda_device(index: int, backend: str) -> Device:
    import torch

    props = torch.cuda.get_device_properties(index)
    capability = f"{props.major}.{props.minor}"
    if backend == "rocm":
        capability = props.gcnArchName.split(":")[0]
        fits = capability in architectures()
    else:
        fits = supports(capability, architectures())
    return Device(
        backend=backend,
        index=index,
        name=props.name,
        memory_bytes=props.total_memory,
        capability=capability,
        bus_id=_bus_id(props),
        lost="" if fits else f"this torch build has no kernels for {capability}",
    )


def _bus_id(props: Any) -> str | None:
    try:
        domain, bus, slot = props.pci_domain_id, props.pci_bus_id, props.pci_device_id
    except AttributeError:  # not every build of torch tells
        return None
    return f"{domain:08X}:{bus:02X}:{slot:02X}.0"


def _xpu_device(index: int, backend: str) -> Device:
    import torch

    props = torch.xpu.get_device_properties(index)
    return Device(
        backend=backend, index=index, name=props.name, memory_bytes=props.total_memory
    )


def main(label: str) -> None:
    """Print the stages of the device with that label, one JSON line each."""
    from gpu_lab.hardware import cpu_device, nvidia

    # Not find_devices(): what only the driver lists is what torch does not see.
    seen = nvidia.devices() if nvml.replayed() else devices()
    wanted = [d for d in seen if d.label == label]
    for stage in _stages(wanted[0] if wanted else cpu_device()):
        print(json.dumps(stage), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
