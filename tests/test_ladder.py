"""Findings of broken and whole machines, and what the ladder makes of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_lab import facts, hardware
from gpu_lab.hardware import host, ladder, nvidia, nvml
from gpu_lab.hardware.ladder import Finding
from gpu_lab.records import Device, GpuLabError, Ladder

LOST = Path(__file__).parent / "fixtures" / "standin" / "lost.json"
CARD = "0000:01:00.0 NVIDIA (nvidia)"
CPU = Device(backend="cpu", name="Test CPU")
GOOD: dict[str, Any] = {
    "seen": True,
    "seen_evidence": "cuda:0 RTX 3070",
    "wheel": True,
    "wheel_evidence": "compute capability 8.6; wheel has sm_86",
    "kernel": True,
    "kernel_evidence": "256 numbers, all right",
    "copy": True,
    "copy_evidence": "1 MiB there and back, bit-equal",
}
BLIND = {"seen": False, "seen_evidence": "torch 2.14.1+cpu (CPU only) sees no GPU"}


def card(**fields: Any) -> Device:
    """An NVIDIA card as the driver lists it."""
    given = {"name": "RTX 3070", "bus_id": "00000000:01:00.0", **fields}
    return Device(backend="cuda", **given)


@pytest.fixture
def situation(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ladder]:
    """Climb on a machine of which all is given: OS list, driver's list, torch."""

    def climb(
        *,
        listed: tuple[str, ...] | None,
        driver: tuple[Device, ...] = (),
        stages: dict[str, Any],
        device: Device | None = None,
        problem: str = "",
    ) -> Ladder:
        monkeypatch.setattr(host, "gpus_listed", lambda: listed)
        monkeypatch.setattr(nvidia, "devices", lambda: driver)
        monkeypatch.setattr(nvidia, "driver_version", lambda: "580.95.05")
        monkeypatch.setattr(nvml, "problem", lambda: problem)
        monkeypatch.setattr(ladder, "run_probe", lambda _label: stages)
        chosen = device or next(iter(driver), CPU)
        return hardware.climb(hardware.inspect(chosen), device=chosen.label)

    return climb


def answers(found: Ladder) -> str:
    """Answers from the bottom: y, n, ? for yes, no, cannot tell."""
    return "".join({"yes": "y", "no": "n"}.get(r.answer, "?") for r in found.rungs)


def test_no_gpu_is_no_fault(situation: Callable[..., Ladder]) -> None:
    found = situation(listed=(), stages=BLIND, problem="NVML Shared Library Not Found")
    assert answers(found) == "nnn???"
    assert found.first_failed is found.rungs[0]
    assert not hardware.broken(found)
    assert found.height == 0
    assert "the course runs on the CPU" in found.remedy


def test_a_card_and_no_driver(situation: Callable[..., Ladder]) -> None:
    stages = BLIND | {"seen_evidence": "torch (cuda 13.0) sees no GPU: no driver"}
    found = situation(listed=(CARD,), stages=stages, problem="Driver Not Loaded")
    assert answers(found) == "ynn???"
    assert hardware.broken(found)
    assert found.rungs[1].evidence == "NVML: Driver Not Loaded"
    assert "Do not reinstall torch" in found.remedy


def test_a_card_held_by_nouveau(situation: Callable[..., Ladder]) -> None:
    nouveau = "0000:01:00.0 NVIDIA (nouveau)"
    found = situation(listed=(nouveau,), stages=BLIND, problem="not found")
    assert answers(found) == "ynn???"
    assert found.rungs[0].evidence == nouveau


def test_a_new_card_and_an_old_wheel(situation: Callable[..., Ladder]) -> None:
    stages = GOOD | {
        "wheel": False,
        "wheel_evidence": "compute capability 12.0; wheel has sm_80 sm_90",
        "kernel": False,
        "kernel_evidence": "RuntimeError: CUDA error: no kernel image is available",
    }
    stages = {k: v for k, v in stages.items() if not k.startswith("copy")}
    new = card(name="RTX 5090", lost="this torch build has no kernels for 12.0")
    found = situation(
        listed=(CARD,), driver=(card(name="RTX 5090"),), stages=stages, device=new
    )
    assert answers(found) == "yyynn?"
    assert found.first_failed is found.rungs[3]
    assert "The driver is not the cause" in found.remedy
    assert hardware.broken(found)


def test_cpu_torch_beside_a_good_driver(situation: Callable[..., Ladder]) -> None:
    found = situation(listed=(CARD,), driver=(card(),), stages=BLIND)
    assert answers(found) == "yyn???"
    assert found.rungs[1].evidence == "NVIDIA driver 580.95.05: RTX 3070"
    assert "CPU build" in found.remedy
    assert hardware.broken(found)


def test_a_lost_gpu(situation: Callable[..., Ladder]) -> None:
    lost = card(lost="nvmlDeviceGetHandleByIndex: GPU is lost")
    found = situation(listed=(CARD,), driver=(lost,), stages=BLIND)
    assert answers(found) == "ynn???"
    assert found.rungs[1].evidence == f"RTX 3070: {lost.lost}"
    assert "it fell off the bus" in found.remedy


def test_the_lost_one_of_two(situation: Callable[..., Ladder]) -> None:
    lost = card(lost="GPU is lost", index=1, bus_id="00000000:2F:00.0")
    both = (card(), lost)
    found = situation(listed=(CARD,), driver=both, stages=BLIND, device=lost)
    assert answers(found) == "ynn???"
    found = situation(listed=(CARD,), driver=both, stages=GOOD, device=both[0])
    assert answers(found) == "yyyyyy"


def test_a_wrong_copy(situation: Callable[..., Ladder]) -> None:
    stages = GOOD | {"copy": False, "copy_evidence": "1 MiB there and back, CHANGED"}
    found = situation(listed=(CARD,), driver=(card(),), stages=stages)
    assert answers(found) == "yyyyyn"
    assert found.height == 5
    assert "Do not trust results" in found.remedy


def test_all_good(situation: Callable[..., Ladder]) -> None:
    found = situation(listed=(CARD,), driver=(card(),), stages=GOOD)
    assert answers(found) == "yyyyyy"
    assert (found.height, found.first_failed, found.remedy) == (6, None, "")
    assert not hardware.broken(found)


@pytest.mark.parametrize(
    "listed", ["0000:00:02.0 Intel (i915)", "0000:03:00.0 AMD (amdgpu)"]
)
def test_a_gpu_of_another_maker_is_no_fault(
    situation: Callable[..., Ladder], listed: str
) -> None:
    found = situation(listed=(listed,), stages=BLIND, problem="not found")
    assert answers(found) == "y?n???"
    assert found.rungs[1].evidence == f"the OS names no NVIDIA card: {listed}"
    assert "nothing is broken" in found.remedy
    assert not hardware.broken(found)


@pytest.mark.parametrize("backend", ["rocm", "xpu", "mps"])
def test_a_gpu_of_another_maker_that_torch_reached(
    situation: Callable[..., Ladder], backend: str
) -> None:
    device = Device(backend=backend, name="other")
    found = situation(listed=("other",), stages=GOOD, device=device)
    assert answers(found) == "yyyyyy"


@pytest.mark.parametrize("listed", [None, ()])
def test_an_os_that_hides_its_devices(
    situation: Callable[..., Ladder], listed: tuple[str, ...] | None
) -> None:
    found = situation(listed=listed, driver=(card(),), stages=GOOD)
    assert answers(found) == "?yyyyy"
    assert found.first_failed is None


def test_wsl_without_the_driver(situation: Callable[..., Ladder]) -> None:
    wsl = "/dev/dxg: the GPU of the Windows host, lent to WSL"
    found = situation(listed=(wsl,), stages=BLIND, problem="not found")
    assert answers(found) == "y?n???"


# -- the child that probes --


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run another program as the probe; its stages."""
    honest = host.run_apart

    def probe(code: str, *, limit_s: float = 30) -> dict[str, Any]:
        other = [sys.executable, "-c", code]
        monkeypatch.setattr(
            host, "run_apart", lambda _command, limit_s: honest(other, limit_s=limit_s)
        )
        return ladder.run_probe("cuda:0", limit_s=limit_s)

    return probe


def said(*stages: str) -> str:
    """Code that prints these stages of GOOD."""
    tree = {k: v for s in stages for k, v in GOOD.items() if k.startswith(s)}
    return f"print({json.dumps(tree)!r}, flush=True)\n"


def rungs(stages: dict[str, Any]) -> str:
    """Answers of the upper four rungs."""
    found = ladder._probe_rungs(stages)
    return "".join({True: "y", False: "n"}.get(f.answer, "?") for f in found.values())  # type: ignore[call-overload]


def test_a_child_that_says_all(child: Callable[..., dict[str, Any]]) -> None:
    stages = child(said("seen", "wheel", "kernel", "copy"))
    assert stages == GOOD
    assert rungs(stages) == "yyyy"


def test_a_child_that_hangs_in_the_kernel(
    child: Callable[..., dict[str, Any]],
) -> None:
    code = said("seen", "wheel") + "import time; time.sleep(60)"
    stages = child(code, limit_s=3)
    assert stages["ended"] == "no answer within 3 s"
    assert rungs(stages) == "yyn?"
    assert ladder._probe_rungs(stages)["kernel"].evidence == stages["ended"]


def test_a_child_that_hangs_from_the_start(
    child: Callable[..., dict[str, Any]],
) -> None:
    stages = child("import time; time.sleep(60)", limit_s=0.5)
    assert stages == {"ended": "no answer within 0.5 s"}
    assert rungs(stages) == "n???"


@pytest.mark.skipif(os.name == "nt", reason="no signals there")
def test_a_child_that_survives_its_kill(
    child: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A grandchild keeps the pipe open, as a child stuck in the driver would.
    monkeypatch.setattr(host, "KILL_LIMIT_S", 0.5)
    stuck = "import time; time.sleep(4)"
    code = f"import subprocess, sys, time\n{said('seen')}"
    code += f"subprocess.Popen([sys.executable, '-c', {stuck!r}])\ntime.sleep(60)"
    stages = child(code, limit_s=2)
    assert stages["seen"] is True
    assert stages["ended"] == "no answer within 2 s"


@pytest.mark.skipif(os.name == "nt", reason="no signals there")
def test_a_child_that_dies_by_a_signal(child: Callable[..., dict[str, Any]]) -> None:
    code = said("seen", "wheel") + "import os, signal; os.kill(os.getpid(), 11)"
    stages = child(code)
    assert stages["ended"] == "the probe ended with signal 11: no message"
    assert rungs(stages) == "yyn?"


def test_a_child_that_fails(child: Callable[..., dict[str, Any]]) -> None:
    stages = child("import no_such_module")
    assert stages["ended"].startswith(
        "the probe ended with exit code 1: ModuleNotFound"
    )
    assert rungs(stages) == "n???"


@pytest.mark.parametrize(
    "code",
    [
        "print('hello'); print('{\"seen\": tr')",
        r"import sys; sys.stdout.buffer.write(b'\xff\xfe{\n')",
        "",
        "print('{}')",
    ],
)
def test_a_child_that_prints_garbage(
    child: Callable[..., dict[str, Any]], code: str
) -> None:
    stages = child(code)
    assert stages == {"ended": "the probe ended without an answer"}
    assert rungs(stages) == "n???"


def test_a_line_cut_by_death_keeps_those_before(
    child: Callable[..., dict[str, Any]],
) -> None:
    code = said("seen", "wheel") + "print('{\"kernel\": tr', end='', flush=True)\n"
    stages = child(code + "raise SystemExit(7)")
    assert stages["ended"] == "the probe ended with exit code 7: no message"
    assert rungs(stages) == "yyn?"


def test_the_stand_in_stands_on_top(stand_in: Device) -> None:
    found = hardware.climb(hardware.inspect(stand_in), device=stand_in.label)
    assert answers(found) == "yyyyyy"
    assert found.rungs[0].evidence == "stand-in: replayed"


def test_the_replayed_loss_fails_at_the_driver(
    replay: Callable[[Path], None],
) -> None:
    replay(LOST)
    (lost,) = hardware.find_devices()
    found = hardware.climb(hardware.inspect(lost), device=lost.label)
    assert answers(found) == "ynn???"
    assert "GPU is lost" in found.rungs[2].evidence


# -- stored ladders --


@pytest.mark.parametrize(
    ("letter", "rung", "height"),
    [("a", "wheel", 3), ("b", "driver", 1), ("c", "torch", 2)],
)
def test_the_stored_ladders_of_the_exercise(
    letter: str, rung: str, height: int
) -> None:
    (path,) = (p for p in facts.files("ladders", suffix=".json") if p.name[0] == letter)
    findings, about = hardware.load_findings(path)
    assert about["kind"] == "CITED"
    assert "#" in about["source"]
    found = hardware.climb(findings, device=about["title"])
    assert found.first_failed
    assert found.first_failed.name == facts.settings("ladder")[rung]["name"]
    assert found.height == height
    assert hardware.broken(found)
    for word in ("driver", "wheel", "torch", "CPU", "kernel"):
        assert word not in about["title"]
    for finding in findings.values():
        assert finding.answer is not None or finding.evidence == "not in the source"


def stored(**changed: Any) -> dict[str, Any]:
    """A stored ladder as a tree, with parts changed."""
    good = {"answer": True, "evidence": "seen"}
    tree: dict[str, Any] = {"title": "t", "kind": "CITED", "source": "s"}
    return tree | {"findings": dict.fromkeys(ladder.RUNGS, good)} | changed


def test_a_stored_ladder_loads(tmp_path: Path) -> None:
    path = tmp_path / "ladder.json"
    path.write_text(json.dumps(stored()))
    findings, about = hardware.load_findings(path)
    assert findings["os"] == Finding(answer=True, evidence="seen")
    assert about == {"title": "t", "kind": "CITED", "source": "s"}


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        stored(findings={"os": {"answer": True, "evidence": ""}}),
        stored(findings=[1]),
        stored(findings=dict.fromkeys(ladder.RUNGS, "yes")),
        stored(findings={k: {"answer": "y", "evidence": ""} for k in ladder.RUNGS}),
        stored(findings={k: {"answer": True} for k in ladder.RUNGS}),
    ],
)
def test_what_is_no_stored_ladder_is_named(tmp_path: Path, tree: Any) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(GpuLabError, match=r"other\.json: wanted a stored ladder"):
        hardware.load_findings(path)


@pytest.mark.parametrize("text", [None, "{", "\x00"])
def test_unreadable_ladders(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "broken.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GpuLabError, match=r"broken\.json: wanted a stored ladder"):
        hardware.load_findings(path)
