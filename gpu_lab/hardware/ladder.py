"""The ladder: six rungs from "the OS lists a GPU" to "a copy is bit-equal".

`inspect` collects the findings of this machine, `climb` turns findings into answers.
Findings are plain data, so those of another machine climb in the same way. Questions
and remedies are texts in `data/ladder.toml`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_lab import facts
from gpu_lab.hardware import host, nvidia, nvml
from gpu_lab.records import Device, GpuLabError, Ladder, Rung

PROBE_LIMIT_S = 90  # importing torch from a cold disk alone may take 30 s
RUNGS = ("os", "driver", "torch", "wheel", "kernel", "copy")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Answer to one rung as found: True, False or None (cannot tell), and why."""

    answer: bool | None
    evidence: str


Findings = dict[str, Finding]


def inspect(device: Device) -> Findings:
    """Findings of this machine for one device, the upper four in a child process."""
    findings = {"os": _os_rung(), "driver": _driver_rung(device)}
    return findings | _probe_rungs(run_probe(device.label))


def climb(findings: Findings, *, device: str = "cpu") -> Ladder:
    """Ladder from findings. Rungs above the first "no" are only said if known."""
    texts = facts.settings("ladder")
    rungs = tuple(_rung(key, findings, texts) for key in RUNGS)
    failed = next((k for k, r in zip(RUNGS, rungs, strict=True) if r.answer == "no"), "")
    remedy = str(texts[failed]["remedy"]) if failed else ""
    return Ladder(rungs=rungs, device=device, remedy=remedy)


def load_findings(path: Path) -> tuple[Findings, dict[str, str]]:
    """Findings stored as JSON, and what the file says of itself (title, source).

    Raises:
        GpuLabError: not a file of findings; says what was expected.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        about = {k: str(stored[k]) for k in ("title", "kind", "source")}
        return {k: _stored(stored["findings"][k]) for k in RUNGS}, about
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise GpuLabError(
            f"{path}: wanted a stored ladder (JSON with title, kind, source and "
            f"findings for {', '.join(RUNGS)}), found {type(error).__name__}: {error}"
        ) from error


def run_probe(label: str, *, limit_s: float = PROBE_LIMIT_S) -> dict[str, Any]:
    """Stages of the torch probe, run in a child that may hang or die alone."""
    command = [sys.executable, "-m", "gpu_lab.hardware.torch_view", label]
    stages: dict[str, Any] = {}
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False
        )
        lines, end = run.stdout, _how_it_ended(run.returncode, run.stderr)
    except subprocess.TimeoutExpired as error:
        lines = _as_text(error.stdout)
        end = f"no answer within {limit_s:.0f} s"
    for line in lines.splitlines():
        if line.startswith("{"):
            stages.update(json.loads(line))
    return stages | ({"ended": end} if end else {})


def _os_rung() -> Finding:
    if nvml.replayed():
        return Finding(answer=True, evidence="stand-in: replayed")
    listed = host.gpus_listed()
    if listed is None:
        return Finding(answer=None, evidence="the OS shows no list of PCI devices")
    return Finding(
        answer=bool(listed), evidence="; ".join(listed) or "no display controller"
    )


def _driver_rung(device: Device) -> Finding:
    if device.backend in ("rocm", "xpu", "mps"):
        return Finding(answer=True, evidence=f"{device.backend}: torch reached it")
    found = nvidia.devices()
    answering = [d.name for d in found if not d.lost]
    lost = [f"{d.name}: {d.lost}" for d in found if d.lost]
    version = f"NVIDIA driver {nvidia.driver_version()}"
    if lost and not answering:
        return Finding(answer=False, evidence="; ".join(lost))
    if answering:
        return Finding(answer=True, evidence=f"{version}: {', '.join(answering)}")
    return _no_driver()


def _no_driver() -> Finding:
    others = [t for t in host.gpus_listed() or () if "NVIDIA" not in t]
    evidence = f"NVML: {nvml.problem() or 'lists no GPU'}"
    if others and len(others) == len(host.gpus_listed() or ()):
        return Finding(answer=None, evidence=f"no NVIDIA card: {'; '.join(others)}")
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


def _how_it_ended(returncode: int, stderr: str) -> str:
    if returncode == 0:
        return ""
    last = (stderr.strip().splitlines() or ["no message"])[-1]
    return f"the probe ended with {returncode}: {last}"


def _as_text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""
