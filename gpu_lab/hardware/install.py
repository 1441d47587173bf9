"""The one command that installs the right torch for the machine at hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpu_lab import facts
from gpu_lab.hardware import host, torch_view
from gpu_lab.records import Device, Machine

# First compute capability in the default wheel, and first driver that runs CUDA 13
# (claims C024, with sources, in data/claims.csv).
DEFAULT_WHEEL_CAPABILITY = (7, 5)
CUDA_13_DRIVER = 580
DRIVER_FOR_CUDA = {"13": CUDA_13_DRIVER, "12": 525}  # claim C024
_YES = {True: "yes", False: "no", None: "nothing to ask"}


def variant(machine: Machine, *, listed: tuple[str, ...] | None = None) -> str:
    """Which file of `requirements/` fits: torch, torch-cpu, -cu126, … -xpu.

    Args:
        listed: GPUs that the OS lists; they count when the driver shows none.
    """
    cards = [d for d in machine.gpus if d.backend == "cuda"]
    if machine.system.startswith("Darwin"):
        return "torch"
    if not cards and not any("NVIDIA" in text for text in listed or ()):
        return _without_nvidia(machine, " ".join(listed or ()))
    if any(_too_old(card) for card in cards) or _old_driver(machine.driver_version):
        return "torch-cu126"
    return "torch-cu130" if machine.system.startswith("Windows") else "torch"


def _without_nvidia(machine: Machine, listed: str) -> str:
    """Intel graphics count only when torch reached them: most of them cannot."""
    backends = {device.backend for device in machine.gpus}
    linux = machine.system.startswith("Linux")
    if "xpu" in backends:
        return "torch-xpu"
    if "rocm" in backends or ("AMD" in listed and linux):
        return "torch-rocm"
    return "torch-cpu" if linux else "torch"


def install_command(machine: Machine) -> str:
    """Exactly one pip command for this machine, to be run where the course lies."""
    name = f"{variant(machine, listed=host.gpus_listed())}.txt"
    shipped = Path(str(facts.folder("requirements"))) / name
    here = Path("requirements") / name
    return f"pip install -r {here if here.is_file() else shipped}"


def environment(
    machine: Machine, device: Device, *, architectures: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Driver, wheel and card side by side, as (what, text), with one command.

    Args:
        architectures: that the wheel has kernels for (`torch_view.architectures`).
    """
    cuda = machine.versions.get("cuda", "")
    needed = DRIVER_FOR_CUDA.get(cuda.split(".")[0])
    driver = machine.driver_version
    chosen = variant(machine, listed=host.gpus_listed())
    enough = covered = None
    if driver and needed:
        enough = int(driver.split(".")[0]) >= needed
    if device.is_gpu and device.capability and architectures:
        covered = torch_view.supports(device.capability, list(architectures))
    return [
        ("driver found", driver or "none"),
        ("CUDA of the wheel", cuda or "none: another build"),
        ("driver it needs", f"{needed} or newer" if needed else "none"),
        ("driver is new enough", _YES[enough]),
        ("wheel has kernels for the card", _YES[covered]),
        ("command", f"pip install -r requirements/{chosen}.txt"),
    ]


def _too_old(card: Device) -> bool:
    parts = (card.capability or "99.0").split(".")
    return tuple(int(p) for p in parts) < DEFAULT_WHEEL_CAPABILITY


def _old_driver(version: str | None) -> bool:
    return bool(version) and int(str(version).split(".")[0]) < CUDA_13_DRIVER
