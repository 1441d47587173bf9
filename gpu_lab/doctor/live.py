"""The live check: what this machine tells, line by line, each with its diagnoses.

Each line is a text that the rules of `data/doctor*.toml` can read, so a live machine
and a log get the same diagnoses. What has not failed yet is a warning at most.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil

from gpu_lab import __version__, redact, units
from gpu_lab.doctor.explain import SEVERITIES, Diagnosis, explain
from gpu_lab.hardware import broken, host, nvidia, nvml, snapshot
from gpu_lab.records import Device, Ladder, Machine, plain

FORMAT = "gpu-lab-doctor 1"
PACKAGE = "gpu-lab"  # whose metadata says which versions it was tested with
SERIOUS = SEVERITIES[:2]
_NEEDED = re.compile(r"^([\w.-]+)(?:\[\w+\])?([^;\s]*)", re.M)
_LIMIT = re.compile(r"(<|>=)([\d.]+)")  # the signs of our own metadata


@dataclass(frozen=True)
class Line:
    """One thing looked at: what it is, what was found, what is wrong with it."""

    what: str
    found: str
    diagnoses: tuple[Diagnosis, ...] = ()


def check(machine: Machine, ladders: Sequence[Ladder]) -> list[Line]:
    """All that can be looked at without running anything on a device."""
    lines = [_ladder(ladder, machine) for ladder in ladders]
    lines += [*_versions(), _driver(machine), *_limits(machine), _links()]
    return lines + [x for d in machine.gpus if not d.lost for x in _device(d)]


def findings(lines: Sequence[Line]) -> tuple[Diagnosis, ...]:
    """The diagnoses of all lines, the severe first, each once."""
    last_first = [d for line in lines for d in line.diagnoses][::-1]
    found = list({d.id: d for d in last_first}.values())[::-1]
    return tuple(sorted(found, key=lambda d: SEVERITIES.index(d.severity)))


def report(
    machine: Machine, ladders: Sequence[Ladder], lines: Sequence[Line]
) -> dict[str, Any]:
    """All of it for an issue or an instructor, without anything personal."""
    bundle: dict[str, Any] = {"format": FORMAT, "gpu_lab": __version__}
    bundle |= {"versions": machine.versions, "snapshot": snapshot.record()}
    bundle |= {"machine": machine, "ladders": ladders, "checks": lines}
    return dict(redact.tree(plain(bundle)))


def _line(what: str, text: str, *, risk: bool = True) -> Line:
    """A line with what the rules say of it; a risk is no error yet."""
    found = explain(text)
    if risk:
        grave = dict.fromkeys(SERIOUS, "warning")
        found = [replace(d, severity=grave.get(d.severity, d.severity)) for d in found]
    return Line(what, text, tuple(found))


def _ladder(ladder: Ladder, machine: Machine) -> Line:
    first = ladder.first_failed
    stands = f"{ladder.owner} stands on rung {ladder.height} of {len(ladder.rungs)}"
    if first is None or not broken(ladder):
        return Line("ladder", stands)
    told = "\n".join(rung.evidence for rung in ladder.rungs)
    where = "inside the container" if machine.environment == "container" else ""
    found = tuple(explain(f"{told}\n{where}"))
    return Line("ladder", f"{stands}; {first.name}: {first.evidence}", found)


def _versions() -> Iterator[Line]:
    """The packages here against the ranges that this one was tested with."""
    found = list(importlib.metadata.distributions())[::-1]  # the first of a name counts
    here = {str(d.name).lower(): d.version for d in found}
    own = [line for d in found if d.name == PACKAGE for line in d.requires or ()]
    tested = {k: v for k, v in _NEEDED.findall("\n".join(own)) if k in here}
    for name, limits in tested.items():
        if not within(here[name], limits):
            text = f"outside the tested range: {name} {here[name]}, wanted {limits}"
            yield _line("versions", text)
    pair = "; ".join(f"{k} {here[k]}" for k in ("torch", "torchvision") if k in here)
    yield _line("versions", f"{len(tested)} looked at; installed: {pair}")


def within(version: str, limits: str) -> bool:
    """Whether a version such as 2.14.1+cu130 lies in a range such as <2.16,>=2.9."""

    def parts(text: str) -> list[int]:
        numbers = [int(n) for n in re.findall(r"\d+", text.partition("+")[0])]
        return [*numbers, 0, 0, 0][:3]

    pairs = _LIMIT.findall(limits)
    return all((parts(version) < parts(n)) == (sign == "<") for sign, n in pairs)


def _driver(machine: Machine) -> Line:
    """Driver and wheel side by side; NVML's complaint only where a card is listed."""
    versions = machine.versions
    build = f"cu{versions['cuda'].replace('.', '')}" if "cuda" in versions else "cpu"
    told = f"torch {versions.get('torch')}+{'rocm' if 'hip' in versions else build}; "
    if not machine.driver_version:
        nvidias = any("NVIDIA" in text for text in host.gpus_listed() or ())
        told += nvml.problem() if nvidias else "no NVIDIA driver answers"
        return _line("driver, wheel", told, risk=False)
    usable = any(d.is_gpu and not d.lost for d in machine.devices)
    told += f"the NVIDIA driver here is {machine.driver_version}, CUDA Version: "
    told += f"{machine.cuda_driver_version}; torch.cuda.is_available(): {usable}"
    return _line("driver, wheel", told, risk=False)


def _limits(machine: Machine) -> Iterator[Line]:
    """What the system gives to DataLoader workers, and where we are."""
    shared = units.memory(host.shared_memory_bytes())
    yield _line("shared memory", f"shared memory of this system: {shared}")
    yield _line("open files", f"open files allowed here: {host.open_files()}")
    yield Line("environment", machine.environment or "no container, no WSL")


def _links() -> Line:
    """The link of each card, and what the texts of the whole machine say."""
    texts = snapshot.record()
    gpus = snapshot.analyse(texts)["gpus"]
    now = "{name}: {link}, PCIe {pcie_gen_current} x{pcie_width_current}"
    text = "; ".join(now.format(**gpu) for gpu in gpus) or "no GPU listed"
    return Line("link", text, tuple(explain(texts)))


def _device(device: Device) -> Iterator[Line]:
    """Why its clock is held down, and who holds its memory."""
    state, index = device.state, nvidia.index_of(device.bus_id)
    if state is not None and state.event_reasons is not None:
        text = f"{device.label}: clocks event reasons.active: {state.event_reasons:#x}"
        yield _line("throttling", text)
    if index is None:  # another maker's: nobody tells
        return
    held = [h for h in nvidia.holders(index) if h[0] != os.getpid()]
    total = units.memory(sum(size or 0 for _, size in held))
    of = f"memory held by programs: {total} of {units.memory(device.memory_bytes)}"
    programs = [f"{_program(p)} {units.memory(size)}" for p, size in held]
    yield _line("GPU memory", f"{device.label}: {'; '.join([of, *programs])}")


def _program(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:  # of another container, or just gone
        return f"pid {pid}"
