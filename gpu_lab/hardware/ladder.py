"""The ladder: six rungs from "the OS lists a GPU" to "a copy is bit-equal".

`inspect` collects the findings of this machine, `climb` turns findings into answers.
Findings are plain data, so those of another machine climb in the same way. Questions
and remedies are texts in `data/ladder.toml`.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_lab import facts
from gpu_lab.hardware import host, nvidia, nvml
from gpu_lab.records import Device, GpuLabError, Ladder, Rung

PROBE_LIMIT_S = 90  # importing torch from a cold disk alone may take 30 s
UNREADABLE = (OSError, ValueError, RecursionError)
RUNGS = ("os", "driver", "torch", "wheel", "kernel", "copy")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Answer to one rung as found: True, False or None (cannot tell), and why."""

    answer: bool | None
    evidence: str


Findings = dict[str, Finding]


def inspect(device: Device) -> Findings:
    """Findings of this machine for one device, the upper four in a child process."""
    driver = _driver_rung(device)
    findings = {"os": _os_rung(working=driver.answer is True), "driver": driver}
    return findings | _probe_rungs(run_probe(device.label))


def climb(findings: Findings, *, device: str = "cpu", note: str = "") -> Ladder:
    """Ladder from findings. Rungs above the first "no" are only said if known."""
    texts = facts.settings("ladder")
    rungs = tuple(_rung(key, findings, texts) for key in RUNGS)
    failed = next(
        (k for k, r in zip(RUNGS, rungs, strict=True) if r.answer == "no"), ""
    )
    remedy = str(texts[failed]["remedy"]) if failed else ""
    return Ladder(rungs=rungs, device=device, remedy=remedy, note=note)


def broken(ladder: Ladder) -> bool:
    """True when a rung fails although the OS lists a GPU; no GPU at all is no fault.

    Nor is an AMD or Intel GPU that this torch build was not made for: then the driver
    rung is "cannot tell" and torch sees nothing.
    """
    first, (os_rung, driver, torch) = ladder.first_failed, ladder.rungs[:3]
    other_maker = first is torch and driver.answer == "cannot tell"
    return first is not None and first is not os_rung and not other_maker


def load_findings(path: Path) -> tuple[Findings, dict[str, str]]:
    """Findings stored as JSON, and what the file says of itself (title, source).

    Raises:
        GpuLabError: not a file of findings; says what was expected.
    """
    try:
        if not path.is_file():  # a pipe or a device would never end
            raise OSError("not a file")
        stored = json.loads(path.read_text(encoding="utf-8"))
        about = {k: str(stored[k]) for k in ("title", "kind", "source")}
        return {k: _stored(stored["findings"][k]) for k in RUNGS}, about
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as error:
        raise GpuLabError(
            f"{path}: wanted a stored ladder (JSON with title, kind, source and "
            f"findings for {', '.join(RUNGS)}), found {type(error).__name__}: {error}"
        ) from error


def run_probe(label: str, *, limit_s: float = PROBE_LIMIT_S) -> dict[str, Any]:
    """Stages of the torch probe, run in a child that may hang or die alone."""
    command = [sys.executable, "-m", "gpu_lab.hardware.torch_view", label]
    output, end = host.run_apart(command, limit_s=limit_s)
    stages: dict[str, Any] = {}
    for line in output.splitlines():
        with suppress(ValueError):  # the last line of a dead child may be cut
            stages |= json.loads(line) if line.startswith("{") else {}
    if not end and "seen" not in stages:
        end = "the probe ended without an answer"
    return stages | ({"ended": end} if end else {})


def _os_rung(*, working: bool = False) -> Finding:
    if nvml.replayed():
        return Finding(answer=True, evidence="stand-in: replayed")
    listed = host.gpus_listed()
    if listed is None:
        return Finding(answer=None, evidence="the OS shows no list of PCI devices")
    if working and not listed:  # sandboxes such as gVisor show an empty list
        return Finding(answer=None, evidence="not in the OS's list; its driver has it")
    return Finding(
        answer=bool(listed), evidence="; ".join(listed) or "no display controller"
    )


def _driver_rung(device: Device) -> Finding:
    if device.backend in ("rocm", "xpu", "mps"):
        return Finding(answer=True, evidence=f"{device.backend}: torch reached it")
    found = nvidia.devices()
    answering = [d.name for d in found if not d.lost]
    lost = {d.bus_id: f"{d.name}: {d.lost}" for d in found if d.lost}
    version = f"NVIDIA driver {nvidia.driver_version()}"
    if device.bus_id in lost or (lost and not answering):
        return Finding(answer=False, evidence="; ".join(lost.values()))
    if answering:
        return Finding(answer=True, evidence=f"{version}: {', '.join(answering)}")
    return _no_driver()


def _no_driver() -> Finding:
    others = [t for t in host.gpus_listed() or () if "NVIDIA" not in t]
    evidence = f"NVML: {nvml.problem() or 'lists no GPU'}"
    if others and len(others) == len(host.gpus_listed() or ()):
        text = f"the OS names no NVIDIA card: {'; '.join(others)}"
        return Finding(answer=None, evidence=text)
    return Finding(answer=False, evidence=evidence)


def _probe_rungs(stages: dict[str, Any]) -> Findings:
    keys = {"torch": "seen", "wheel": "wheel", "kernel": "kernel", "copy": "copy"}
    ended = stages.get("ended", "")
    blame = "seen" in stages and stages["seen"] and ended
    findings: Findings = {}
    for rung, stage in keys.items():
        if stage in stages:
            findings[rung] = Finding(
                answer=stages[stage], evidence=str(stages[f"{stage}_evidence"])
            )
        elif blame or (ended and rung == "torch"):  # it hung or died in this stage
            findings[rung] = Finding(answer=False, evidence=str(ended))
            ended = blame = ""
        else:
            findings[rung] = Finding(answer=None, evidence="nothing to ask")
    return findings


def _rung(key: str, findings: Findings, texts: dict[str, Any]) -> Rung:
    words = {True: "yes", False: "no", None: "cannot tell"}
    finding = findings[key]
    return Rung(
        name=str(texts[key]["name"]),
        question=str(texts[key]["question"]),
        answer=words[finding.answer],
        evidence=finding.evidence,
    )


def _stored(entry: dict[str, Any]) -> Finding:
    if entry["answer"] not in (True, False, None):
        raise ValueError("an answer is true, false or null")
    return Finding(answer=entry["answer"], evidence=str(entry["evidence"]))
