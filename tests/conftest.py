"""What several test files share: a small machine and a process that forgets."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_lab import redact
from gpu_lab.hardware import host, nvml, snapshot
from gpu_lab.plot import picture
from gpu_lab.records import Device, Machine, Measurement, Session, Source

FIXTURES = Path(__file__).parent / "fixtures"
# A shell starts jobs in the background with Ctrl-C ignored, and children inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
# What a user may have set and no test may depend on.
VARIABLES = ("GPU_LAB_DEVICE", "GPU_LAB_OUT", "GPU_LAB_REPLAY", "GPU_LAB_SKIP")


def forget() -> None:
    """Drop what is asked once a process: driver, replay file, OS list, names."""
    nvml._library.cache_clear()
    nvml._replay.cache_clear()
    host.gpus_listed.cache_clear()
    snapshot.here.cache_clear()
    redact._names_of_machine.cache_clear()


@pytest.fixture(autouse=True)
def clean_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no runs of the user's, no answers kept by an earlier test."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GPU_LAB_RUNS", str(tmp_path / "runs"))
    forget()


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Call it with a replay file: from then on its answers are those of the driver."""

    def use(path: Path) -> None:
        monkeypatch.setenv("GPU_LAB_REPLAY", str(path))
        forget()

    return use


@pytest.fixture
def stand_in(replay: Callable[[Path], None]) -> Device:
    """The stand-in: a GPU that is replayed, timed by the simulated clock."""
    replay(FIXTURES / "standin" / "nvml.json")
    return Device(backend="cuda", name="Stand-in GPU (simulated)", simulated=True)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures behind the pictures, in the order of drawing."""
    kept: list[Any] = []

    def finish(figure: Any, **words: str) -> picture.Picture:
        kept.append(figure)
        return picture.finish(figure, **words)

    # Not by attribute: a room's door has the functions of the same names.
    for name, module in list(sys.modules.items()):
        draws = name.startswith("gpu_lab.plot.") and hasattr(module, "finish")
        if draws and module is not picture:
            monkeypatch.setattr(module, "finish", finish)
    return kept


@pytest.fixture
def cpu() -> Device:
    """A processor as a device."""
    return Device(backend="cpu", name="Test CPU", memory_bytes=2**30)


@pytest.fixture
def machine(cpu: Device) -> Machine:
    """A machine without a GPU."""
    return Machine(
        system="Linux 6.8.0 x86_64",
        python="3.11.7",
        cpu_name=cpu.name,
        cpu_cores=2,
        cpu_threads=4,
        memory_bytes=2**33,
        versions={"torch": "2.14.1+cpu"},
        devices=(cpu,),
    )


@pytest.fixture
def session(machine: Machine) -> Session:
    """A session with one measured row."""
    row = Measurement(
        name="host_copy",
        device="cpu",
        source=Source.MEASURED,
        times_s=(0.5, 0.25, 0.25),
        cpu_times_s=(0.5, 0.25, 0.25),
        work=10**9,
        work_unit="byte",
        settings={"size_bytes": 500_000_000, "seed": 0},
    )
    return Session(
        suite="core",
        created="2026-01-02T03:04:05+00:00",
        profile="quick",
        device="cpu",
        seed=0,
        machine=machine,
        measurements=(row,),
    )
