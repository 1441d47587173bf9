"""Run folders by path or address -> `Run`; what is not readable is named."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path, PurePosixPath

from gpu_lab import units
from gpu_lab.records import CORE_SUITE, GpuLabError, Run, Session
from gpu_lab.store.files import StoreError, load

REMOTE = ("://", "::")
LARGEST_BYTES = 64 * 2**20  # a session is below 1 MiB


def load_run(address: str) -> Run:
    """One run folder, by local path or by any address that fsspec understands.

    Raises:
        StoreError: no such folder, or not one readable session in it.
        ImportError: the address needs a package that is not here.
    """
    if Path(address).is_dir() or not any(mark in address for mark in REMOTE):
        return _load(Path(address), address)
    with tempfile.TemporaryDirectory(prefix="gpu-lab-") as folder:
        _fetch(address, Path(folder) / "sessions")
        return _load(Path(folder), address)


def readable(folder: Path) -> tuple[list[Session], list[str]]:
    """Sessions of a run folder, and what is wrong with the files that are none."""
    found: list[Session] = []
    problems = []
    for path in sorted((folder / "sessions").glob("*.json")):
        try:
            if path.is_file() and path.stat().st_size > LARGEST_BYTES:
                raise StoreError(f"{path}: larger than any session; not read")
            session = load(path)
            session.machine.device(session.device)
            found.append(session)
            if session.suite == CORE_SUITE and not session.complete:
                problems.append(f"{path.name}: not finished")
        except GpuLabError as error:  # the name of its folder is nobody's business
            text = str(error).replace(str(path), path.name)
            problems.append(text if path.name in text else f"{path.name}: {text}")
    return found, [units.plain(text) for text in problems]


def _load(folder: Path, address: str) -> Run:
    if not folder.is_dir():
        raise StoreError(f"{address}: no such folder; wanted one that `make run` wrote")
    found, problems = readable(folder)
    once = list({_content(s): s for s in reversed(found)}.values())[::-1]
    if len(once) < len(found):
        problems.append(f"{len(found) - len(once)} copies of a session: counted once")
    if not once:
        why = problems[0] if problems else "found no sessions/*.json"
        raise StoreError(f"{address}: wanted a run folder; {why}")
    return Run(name=_name(address), sessions=tuple(once), left_out=tuple(problems))


def same_sessions(first: Run, second: Run) -> bool:
    """Whether a session of one run is in the other one too."""
    return bool({*map(_content, first.core)} & {*map(_content, second.core)})


def _content(session: Session) -> str:
    """What two sessions share only when one is a copy of the other: its times."""
    times = [(m.name, m.times_s) for m in session.measurements if m.times_s]
    return str(times or id(session))


def _name(address: str) -> str:
    parts = [p for p in address.replace("\\", "/").split("/") if p not in ("", ".")]
    return units.plain(parts[-1] if parts else address, 40)


def _fetch(address: str, target: Path) -> None:
    """Copy the session files at an address into a local folder."""
    import fsspec  # comes with torch

    target.mkdir()
    try:
        system, folder = fsspec.core.url_to_fs(address)
        inside = "/".join(filter(None, (folder.rstrip("/"), "sessions")))
        for name in system.ls(inside, detail=False):
            if name.endswith(".json") and system.size(name) <= LARGEST_BYTES:
                system.get_file(name, str(target / PurePosixPath(name).name))
    except (OSError, ValueError) as error:
        raise StoreError(f"{address}: cannot be read: {error}") from error


def rename(runs: list[Run]) -> list[Run]:
    """The same runs, each with a name of its own: "dock", "dock (2)"."""
    seen: dict[str, int] = {}
    named = []
    for run in runs:
        seen[run.name] = number = seen.get(run.name, 0) + 1
        named.append(
            run if number == 1 else replace(run, name=f"{run.name} ({number})")
        )
    return named
