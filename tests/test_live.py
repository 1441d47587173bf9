"""The live check: lines of this machine, their diagnoses, the redacted report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_redact import DIRT, HIDDEN, dirty_session, person  # noqa: F401  # a fixture

from gpu_lab import cli, doctor, hardware
from gpu_lab.doctor import live
from gpu_lab.hardware import host, nvidia, nvml, snapshot
from gpu_lab.records import Device, Ladder, Machine, Rung

GIB = 2**30
STAND_IN = Path(__file__).parent / "fixtures" / "standin" / "nvml.json"


def ids(*lines: doctor.Line) -> list[tuple[str, str]]:
    return [(d.id, d.severity) for line in lines for d in line.diagnoses]


def machine(**changed: object) -> Machine:
    return replace(dirty_session().machine, environment="", **changed)


def ladder(**evidence: str) -> Ladder:
    """The first rung holds; those with evidence fail."""
    keys = ("os", "driver", "torch", "wheel", "kernel", "copy")
    rungs = (
        Rung(name=k, question="", answer="no", evidence=evidence[k])
        if k in evidence
        else Rung(name=k, question="", answer="yes", evidence="")
        for k in keys
    )
    return Ladder(rungs=tuple(rungs), device="cuda:0")


@pytest.mark.parametrize(
    ("version", "limits", "inside"),
    [
        ("2.14.1+cu130", "<2.16,>=2.9", True),
        ("2.16.0", "<2.16,>=2.9", False),
        ("2.8.2", "<2.16,>=2.9", False),
        ("2.9", ">=2.9", True),
        ("2.10.0rc1", ">=2.9", True),
        ("5.9.8", ">=5.9.8", True),
        ("anything", "", True),
    ],
)
def test_versions_against_ranges(version: str, limits: str, inside: bool) -> None:
    assert live.within(version, limits) == inside


def test_a_version_outside_its_range_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = SimpleNamespace(
        name="gpu-lab", version="0", requires=["numpy<1.0,>=0.1", "psutil>=1", "not>=3"]
    )
    numpy, psutil = (
        SimpleNamespace(name=name, version="2.4.6", requires=None)
        for name in ("numpy", "psutil")
    )
    found = [own, numpy, psutil]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    lines = list(live._versions())
    assert ids(*lines) == [("version-outside-tested-range", "warning")]
    assert "numpy 2.4.6, wanted <1.0,>=0.1" in lines[0].found
    assert lines[1].found.startswith("2 looked at")


def test_torch_and_torchvision_of_two_releases() -> None:
    text = "installed: torch {}; torchvision {}"
    assert ids(live._line("", text.format("2.14.1", "0.29.1"))) == []
    found = ids(live._line("", text.format("2.14.1", "0.24.0")))
    assert found == [("torch-torchvision-mismatch", "warning")]


@pytest.mark.parametrize(
    ("shared", "files", "wanted"),
    [
        (64 * 2**20, "256", ["shm-too-small", "too-many-open-files"]),
        (16 * GIB, "1024", []),
        (None, "unlimited", []),
        (16 * GIB, "1048576", []),
    ],
)
def test_limits_of_the_system(monkeypatch, shared, files, wanted):
    monkeypatch.setattr(host, "shared_memory_bytes", lambda: shared)
    monkeypatch.setattr(host, "open_files", lambda: files)
    found = ids(*live._limits(machine()))
    assert found == [(name, "warning") for name in wanted]


def test_the_limits_of_this_machine_can_be_read(monkeypatch):
    assert host.open_files() == "unlimited" or int(host.open_files()) > 0
    assert (host.shared_memory_bytes() or 1) > 0
    monkeypatch.setattr("shutil.disk_usage", lambda path: Path("/none").stat())
    assert host.shared_memory_bytes() is None


@pytest.mark.parametrize(
    ("driver", "cuda", "wheel", "usable", "wanted"),
    [
        ("535.1.2", "12.2", {"torch": "2.14.1", "cuda": "13.0"}, "x", "driver-too-old"),
        ("580.1.2", "13.0", {"torch": "2.14.1", "cuda": "13.0"}, "", ""),
        ("580.1.2", "13.0", {"torch": "2.14.1"}, "x", "cpu-only-torch"),
    ],
)
def test_driver_and_wheel(driver, cuda, wheel, usable, wanted):
    card = Device(backend="cuda", name="card", lost=usable)
    given = machine(driver_version=driver, cuda_driver_version=cuda, versions=wheel)
    found = live._driver(replace(given, devices=(card,)))
    assert ids(found) == ([(wanted, "error")] if wanted else [])


def test_nvml_complains_only_where_a_card_is_listed(monkeypatch):
    given = machine(driver_version=None, versions={"torch": "2.14.1"})
    problem = "Driver/library version mismatch"
    monkeypatch.setattr(nvml, "problem", lambda: problem)
    monkeypatch.setattr(host, "gpus_listed", lambda: ())
    assert ids(live._driver(given)) == []
    monkeypatch.setattr(host, "gpus_listed", lambda: ("01:00.0 NVIDIA (nvidia)",))
    assert [name for name, _ in ids(live._driver(given))] == ["driver-library-mismatch"]


def test_a_broken_ladder_is_diagnosed_and_one_without_gpu_is_not():
    wheel = "compute capability 12.0; wheel has sm_75 sm_90"
    found = live._ladder(ladder(wheel=wheel), machine())
    assert ids(found) == [("gpu-newer-than-wheel", "error")]
    assert "wheel" in found.found
    wheel = "compute capability 6.1; wheel has sm_75 sm_90"
    old = live._ladder(ladder(wheel=wheel), machine())
    assert ids(old) == [("gpu-older-than-wheel", "error")]
    none = "torch 2.14.1 sees no GPU: Found no NVIDIA driver on your system"
    assert ids(live._ladder(ladder(os="none", torch=none), machine())) == []
    inside = replace(machine(), environment="container")
    found = live._ladder(ladder(driver="", torch=none), inside)
    assert ids(found)[0] == ("container-started-without-gpus", "error")


@pytest.fixture
def busy(monkeypatch, tmp_path):
    """A stand-in that is hot, and whose memory another program has."""
    stored = json.loads(STAND_IN.read_text())
    stored["nvml"]["nvmlDeviceGetCurrentClocksEventReasons(0)"] = 0x60
    stored["nvml"]["nvmlDeviceGetComputeRunningProcesses(0)"] = [
        {"pid": 2**22 + 1, "usedGpuMemory": 9 * GIB},
        {"pid": 2**22 + 2, "usedGpuMemory": None},
    ]
    path = tmp_path / "busy.json"
    path.write_text(json.dumps(stored))
    monkeypatch.setenv(nvml.REPLAY_VARIABLE, str(path))
    nvml._replay.cache_clear()
    yield
    nvml._replay.cache_clear()


@pytest.mark.usefixtures("busy")
def test_throttling_and_who_holds_memory():
    (device,) = nvidia.devices()
    lines = list(live._device(device))
    found = [("thermal-throttle", "warning"), ("oom-other-process", "warning")]
    assert ids(*lines) == found
    assert "pid 4194305 9.0 GiB; pid 4194306 n/a" in lines[1].found
    assert [d.id for d in doctor.findings(lines * 2)] == [name for name, _ in found]


@pytest.mark.usefixtures("busy")
def test_our_own_memory_is_not_somebody_elses(monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 2**22 + 1)
    (device,) = nvidia.devices()
    assert ids(list(live._device(device))[1]) == []


def test_a_lost_card_has_no_holders(monkeypatch):
    lost = STAND_IN.with_name("lost.json")
    monkeypatch.setenv(nvml.REPLAY_VARIABLE, str(lost))
    nvml._replay.cache_clear()
    assert nvidia.holders(0) == []
    nvml._replay.cache_clear()


@pytest.mark.usefixtures("person")
def test_nothing_planted_is_found_in_a_report(monkeypatch):
    monkeypatch.setattr(snapshot, "record", lambda: {"lspci": DIRT})
    monkeypatch.setattr(
        "psutil.Process", lambda pid: SimpleNamespace(name=lambda: DIRT)
    )
    session = dirty_session()
    lines = [
        doctor.Line(DIRT, DIRT, tuple(doctor.explain(f"CUDA out of memory {DIRT}")))
    ]
    lines.append(doctor.Line("GPU memory", live._program(1)))
    tree = doctor.report(session.machine, [session.ladder], lines)
    text = json.dumps(tree).lower()
    assert [part for part in HIDDEN if part.lower() in text] == []
    assert set(tree) >= {"snapshot", "ladders", "versions", "checks", "machine"}


def test_the_command_writes_a_report(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(host, "gpus_listed", lambda: ())
    path = tmp_path / "report.json"
    assert cli.main(["doctor", "--report", str(path)]) == 0
    assert "read it before you pass it on" in capsys.readouterr().out
    tree = json.loads(path.read_text())
    assert tree["format"] == live.FORMAT
    assert cli.main(["doctor", "--report", str(tmp_path / "no" / "x.json")]) == 2
    both = ["doctor", "--from", "x.json", "--report", str(path)]
    assert cli.main(both) == 2
    assert "leave out --from" in capsys.readouterr().err


@pytest.mark.parametrize(("severity", "code"), [("warning", 0), ("error", 1)])
def test_only_an_error_is_exit_1(severity, code, monkeypatch, capsys):
    (found,) = doctor.explain("RuntimeError: received 3 items of ancdata")
    line = doctor.Line("x", "y", (replace(found, severity=severity),))
    monkeypatch.setattr(host, "gpus_listed", lambda: ())
    monkeypatch.setattr(doctor, "check", lambda machine, ladders: [line])
    assert cli.main(["doctor"]) == code
    assert found.title in capsys.readouterr().out


def test_this_machine_can_be_checked():
    here = hardware.detect()
    lines = doctor.check(here, [hardware.live_ladder(here, here.devices[0])])
    assert {"ladder", "versions", "shared memory", "link"} <= {
        line.what for line in lines
    }
