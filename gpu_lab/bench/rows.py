"""What all benchmarks share: seeded data, a row from a timing, checks of content."""

from __future__ import annotations

from typing import Any

from gpu_lab.records import Device, GpuLabError, Measurement
from gpu_lab.timing import Timing

Settings = dict[str, str | int | float | bool]

ONLY_GPU = "needs a GPU: this run is on the CPU itself"


class WrongResult(GpuLabError):
    """The device computed or copied something wrong; its speed means nothing."""


def row(
    name: str,
    timing: Timing,
    *,
    device: Device,
    work: float,
    unit: str,
    version: int,
    settings: Settings,
) -> Measurement:
    """Measurement from a timing; `work` is that of one call, in `unit`."""
    return Measurement(
        name=name,
        device=device.label,
        source=timing.source,
        times_s=timing.times_s,
        cpu_times_s=timing.cpu_times_s,
        number_per_run=timing.number_per_run,
        work=work,
        work_unit=unit,
        method_version=version,
        settings=settings,
    )


def random_bytes(size_bytes: int, *, seed: int = 0) -> Any:
    """Seeded uint8 tensor of that size on the host. Zeros can be faster than data.

    Raises:
        ValueError: size_bytes < 1.
    """
    import torch

    if size_bytes < 1:
        raise ValueError(f"wanted at least 1 byte, found {size_bytes}")
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (size_bytes,), dtype=torch.uint8, generator=generator)


def require_equal(copied: Any, given: Any, *, what: str) -> None:
    """Content before speed: raises WrongResult unless both are bit-equal."""
    import torch

    if not torch.equal(copied.cpu(), given.cpu()):
        raise WrongResult(f"{what}: the copy is not bit-equal; its speed is not shown")
