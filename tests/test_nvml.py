"""The door to NVML, with a driver that is invented, replayed, lost or missing."""

from __future__ import annotations

import json
import re
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_lab.hardware import nvidia, nvml
from gpu_lab.records import DeviceLost, GpuLabError

LOST = Path(__file__).parent / "fixtures" / "standin" / "lost.json"


class NVMLError(Exception):
    """As in pynvml: errors carry NVML's number."""

    value = 999

    def __str__(self) -> str:
        return self.__doc__ or ""


class NotSupported(NVMLError):
    """Not Supported"""

    value = 3


class Lost(NVMLError):
    """GPU is lost"""

    value = 15


class NoLibrary(NVMLError):
    """NVML Shared Library Not Found"""

    value = 12


class NoPower(NVMLError):
    """Insufficient External Power"""

    value = 8


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module `pynvml` with two cards, the second of which is lost."""
    fake = types.ModuleType("pynvml")
    calls: list[str] = []

    def handle(index: int) -> str:
        if index == 1:
            raise Lost
        return f"handle {index}"

    def not_supported(*_args: Any) -> None:
        raise NotSupported

    memory = types.SimpleNamespace(total=2**34, used=2**30)
    fake.__dict__.update(
        NVMLError=NVMLError,
        NVML_ERROR_GPU_IS_LOST=15,
        calls=calls,
        nvmlInit=lambda: calls.append("init"),
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlSystemGetDriverVersion=lambda: b"580.95.05",
        nvmlSystemGetCudaDriverVersion_v2=lambda: 12080,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetName=lambda _gpu: "NVIDIA GeForce RTX 3060",
        nvmlDeviceGetMemoryInfo=lambda _gpu: memory,
        nvmlDeviceGetCudaComputeCapability=lambda _gpu: (8, 6),
        nvmlDeviceGetPciInfo=lambda _gpu: types.SimpleNamespace(
            busId=b"00000000:2F:00.0"
        ),
        nvmlDeviceGetCurrPcieLinkWidth=lambda _gpu: 4,
        nvmlDeviceGetPowerUsage=not_supported,
        nvmlDeviceGetTemperature=lambda _gpu, sensor: 40 + sensor,
        nvmlDeviceGetClockInfo=lambda _gpu, kind: 1000 * kind,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    nvml._library.cache_clear()
    return fake


@pytest.mark.usefixtures("driver")
def test_answers_of_a_driver() -> None:
    assert nvml.query("nvmlSystemGetDriverVersion") == "580.95.05"
    assert nvidia.driver_version() == "580.95.05"
    assert nvidia.cuda_driver_version() == "12.8"
    assert nvml.handle(0) == "handle 0"
    assert nvml.problem() == ""


@pytest.mark.usefixtures("driver")
def test_not_supported_and_unknown_functions_are_none() -> None:
    assert nvml.query("nvmlDeviceGetPowerUsage", "handle 0") is None
    assert nvml.query("nvmlFunctionOfNextYear") is None
    state = nvidia.state(0)
    assert (state.power_w, state.power_limit_w, state.event_reasons) == (None,) * 3
    assert (state.temperature_c, state.clock_sm_mhz, state.memory_used_bytes) == (
        40,
        1000,
        2**30,
    )


@pytest.mark.usefixtures("driver")
def test_a_lost_gpu_is_an_entry_and_the_rest_is_shown() -> None:
    with pytest.raises(DeviceLost, match="nvmlDeviceGetHandleByIndex: GPU is lost"):
        nvml.handle(1)
    good, lost = nvidia.devices()
    assert (good.name, good.capability, good.lost) == (
        "NVIDIA GeForce RTX 3060",
        "8.6",
        "",
    )
    assert good.bus_id == "00000000:2F:00.0"
    assert good.link
    assert (good.link.pcie_width_current, good.link.pcie_gen_current) == (4, None)
    assert (lost.index, lost.name, lost.memory_bytes) == (1, "NVIDIA GPU", None)
    assert "GPU is lost" in lost.lost
    assert not lost.simulated


def test_a_card_without_access_is_not_usable(driver: types.ModuleType) -> None:
    def no_power(_index: int) -> None:
        raise NoPower

    driver.__dict__["nvmlDeviceGetHandleByIndex"] = no_power
    assert all("no access" in device.lost for device in nvidia.devices())


def test_the_library_is_initialised_once(driver: types.ModuleType) -> None:
    for _ in range(3):
        nvml.query("nvmlDeviceGetCount")
    assert driver.calls == ["init"]
    assert nvml.problem() == ""
    assert driver.calls == ["init", "init", "shutdown"]


def test_no_library_of_the_driver(driver: types.ModuleType) -> None:
    def no_library() -> None:
        raise NoLibrary

    driver.__dict__["nvmlInit"] = no_library
    assert nvml.query("nvmlDeviceGetCount") is None
    assert nvml.problem() == "NVML Shared Library Not Found"
    assert nvidia.devices() == ()
    assert (nvidia.driver_version(), nvidia.cuda_driver_version()) == (None, None)


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # import raises ImportError
    assert nvml.query("nvmlDeviceGetCount") is None
    assert nvml.problem() == "nvidia-ml-py is not installed"


def test_every_function_asked_for_exists_in_the_real_bindings() -> None:
    import pynvml

    text = Path(nvidia.__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'"(nvml\w+)"', text))
    names |= {f"nvmlDeviceGet{name}" for name in re.findall(r'ask\("(\w+)"\)', text)}
    assert len(names) > 12
    assert {name for name in names if not hasattr(pynvml, name)} == set()
    assert Lost.value == pynvml.NVML_ERROR_GPU_IS_LOST
    assert pynvml.NVML_TEMPERATURE_GPU == nvidia.TEMPERATURE_GPU
    assert pynvml.NVML_CLOCK_SM == nvidia.CLOCK_SM
    assert pynvml.NVML_CLOCK_MEM == nvidia.CLOCK_MEM


@pytest.mark.usefixtures("stand_in")
def test_replayed_answers() -> None:
    assert nvml.replayed()
    assert nvml.handle(0) == 0
    assert nvml.query("nvmlDeviceGetName", 0) == "Stand-in GPU (simulated)"
    assert nvml.query("nvmlDeviceGetMemoryInfo", 0).total == 2**34
    assert nvml.query("nvmlDeviceGetName", 5) is None
    assert nvml.replay("arch_list") == ["sm_80", "sm_90", "compute_90"]
    assert nvml.replay("nothing", 7) == 7
    assert nvml.problem() == ""
    (found,) = nvidia.devices()
    assert (found.capability, found.simulated) == ("9.9", True)


def test_a_replayed_loss(replay: Callable[[Path], None]) -> None:
    replay(LOST)
    with pytest.raises(DeviceLost, match="replayed"):
        nvml.query("nvmlDeviceGetMemoryInfo", 0)
    (found,) = nvidia.devices()
    assert found.lost
    assert found.simulated


@pytest.fixture
def three_cards(
    replay: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's answers for a good card, one it lost and one that hangs."""
    good = json.loads((LOST.parent / "nvml.json").read_text())["nvml"]
    answers = {"nvmlDeviceGetCount()": 3}
    for name, value in good.items():
        for index in range(3):
            answers.setdefault(name.replace("(0", f"({index}"), value)
    answers["nvmlDeviceGetPowerUsage(0)"] = "not supported"
    answers["nvmlDeviceGetMemoryInfo(1)"] = "lost"
    answers["nvmlDeviceGetMemoryInfo(2)"] = "hangs"
    path = tmp_path / "three.json"
    path.write_text(json.dumps({"nvml": answers}))
    replay(path)
    monkeypatch.setattr(nvml, "LIMIT_S", 0.3)


@pytest.mark.usefixtures("three_cards")
def test_one_card_is_lost_one_hangs_and_the_list_goes_on() -> None:
    good, lost, hangs = nvidia.devices()
    assert good.state
    assert (good.lost, good.state.power_w, good.state.temperature_c) == ("", None, 46)
    assert "GPU is lost" in lost.lost
    assert hangs.lost == "nvmlDeviceGetMemoryInfo: no answer within 0.3 s"
    assert hangs.name == "Stand-in GPU (simulated)"


def test_a_driver_that_hangs_is_no_driver(
    driver: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "LIMIT_S", 0.1)
    driver.__dict__["nvmlSystemGetDriverVersion"] = lambda: time.sleep(nvml.HANG_S)
    driver.__dict__["nvmlDeviceGetCount"] = lambda: time.sleep(nvml.HANG_S)
    assert nvidia.driver_version() is None
    assert nvidia.devices() == ()


def test_replayed_problem(replay: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text(json.dumps({"problem": "Driver Not Loaded"}))
    replay(path)
    assert nvml.problem() == "Driver Not Loaded"
    assert nvidia.devices() == ()


@pytest.mark.parametrize("text", [None, "{", "[1]", "7"])
def test_a_bad_replay_file_is_named(
    replay: Callable[[Path], None], tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "bad.json"
    if text is not None:
        path.write_text(text)
    replay(path)
    with pytest.raises(GpuLabError, match=r"bad\.json: wanted a JSON file of NVML"):
        nvml.query("nvmlDeviceGetCount")
