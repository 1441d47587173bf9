"""Sessions as JSON files, and the journal that survives a crash.

A session file is written whole and atomically after every experiment, so that a dead
kernel or a full disk loses at most the running one. What is written is redacted.
"""

from __future__ import annotations

import datetime
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil

from gpu_lab import __version__, records, redact
from gpu_lab.records import Answer, Device, GpuLabError, Ladder, Measurement, Session

OUT_VARIABLE = "GPU_LAB_OUT"
ROOT_VARIABLE = "GPU_LAB_RUNS"
SKIP_VARIABLE = "GPU_LAB_SKIP"
JOURNAL = "journal.jsonl"
STATED = "stated.json"
FAILED = "failed"
SKIPPED = "skipped at the user's wish: the machine stopped inside it last time"


class StoreError(GpuLabError):
    """A file that cannot be read as a session, or one that must not be written."""


def load(path: Path) -> Session:
    """One session file, validated against the records.

    Raises:
        StoreError: truncated, not ours, from a newer major version, or not valid;
            one line that names the file and what is wrong.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StoreError(
            f"{path}: wanted a session file, found text that is not whole JSON "
            f"(truncated?): {error}"
        ) from error
    _require_ours(tree, path)
    try:
        return msgspec.convert(tree, Session)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path}: not a valid session: {error}") from error


def load_folder(folder: Path) -> list[Session]:
    """All sessions of a run folder, by file name; raises StoreError on a bad one."""
    return [load(path) for path in sorted((folder / "sessions").glob("*.json"))]


def save(session: Session, path: Path) -> Path:
    """Write a session atomically, redacted; the old file stays if that fails.

    Raises:
        StoreError: rows of the stand-in that call themselves MEASURED, or NaN.
        OSError: the disk is full or may not be written.
    """
    faked = session.mislabelled()
    if faked:
        raise StoreError(
            f"{path.name}: {', '.join(faked)} ran on a simulated device and is called "
            "MEASURED; wanted SIMULATED; nothing was written"
        )
    try:
        return write_json(redact.tree(records.plain(session)), path)
    except ValueError as error:
        raise StoreError(f"{path.name}: nothing was written: {error}") from error


def write_json(tree: Any, path: Path) -> Path:
    """Write JSON to a temporary neighbour, fsync it, then put it in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(f"{data}\n", path)
    return path


def write_text(data: str, path: Path) -> None:
    """Replace a text file in one step; raises OSError and keeps the old one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes files that only the owner may read
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def schema() -> dict[str, Any]:
    """JSON schema of a session file, as stored in data/schema/session-1.json."""
    return dict(records.plain(msgspec.json.schema(Session)))


def runs_root() -> Path:
    """Folder of all runs: GPU_LAB_RUNS, else `runs` beside `notebooks` or here."""
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return Path(named)
    here = Path.cwd()
    return (here.parent if here.name in ("notebooks", "solutions") else here) / "runs"


def out_folder() -> Path:
    """Run folder of this process: GPU_LAB_OUT, else `lab` in the folder of runs."""
    named = os.environ.get(OUT_VARIABLE)
    return Path(named) if named else runs_root() / "lab"


def free_name(folder: Path, stem: str) -> Path:
    """First path stem.json, stem-2.json, … that does not exist yet."""
    path, number = folder / f"{stem}.json", 2
    while path.exists():
        path, number = folder / f"{stem}-{number}.json", number + 1
    return path


def now() -> str:
    """Moment as UTC text to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Journal:
    """Lines "starting X" and "ended X", each fsynced, shared by all runs of a root."""

    def __init__(self, folder: Path) -> None:
        """The journal of that folder; the file is made with its first line."""
        self.path = folder / JOURNAL

    def starting(self, experiment: str, device: Device) -> None:
        """Say before a GPU experiment what is about to run."""
        self._append("starting", experiment, device.label)

    def ended(self, experiment: str, device: Device) -> None:
        """Say that it came back, well or with an exception."""
        self._append("ended", experiment, device.label)

    def unfinished(self) -> list[str]:
        """Experiments that started and never ended, whose process is gone."""
        open_lines: dict[str, dict[str, Any]] = {}
        for line in self._lines():
            if line.get("event") == "starting":
                open_lines[str(line.get("experiment"))] = line
            else:
                open_lines.pop(str(line.get("experiment")), None)
        return [name for name, line in open_lines.items() if not _still_runs(line)]

    def settle(self) -> None:
        """Close all open lines, so that a crash is named once and not for ever."""
        for name in self.unfinished():
            self._append("named", name, "")

    def _append(self, event: str, experiment: str, device: str) -> None:
        line = {"event": event, "experiment": experiment, "device": device}
        text = json.dumps({**line, "time": now(), "pid": os.getpid()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            # One write: two processes never mix. A crash may have left half a line.
            file.write(f"\n{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> Iterable[dict[str, Any]]:
        if not self.path.is_file():
            return
        for text in self.path.read_bytes().splitlines():
            try:
                yield dict(json.loads(text))
            except (ValueError, TypeError):  # the last line of a crash may be cut
                continue


class Recorder:
    """A session that grows: each experiment is on disk before the next one starts."""

    def __init__(
        self, path: Path, session: Session, *, journal: Journal | None = None
    ) -> None:
        """Write the first, empty form of the session to `path`.

        Raises:
            OSError: the folder cannot be written; better now than after measuring.
        """
        self.path = path
        self.session = session
        self.device = session.machine.device(session.device)
        self._journal = journal
        # Experiments inside which an earlier process died; a view offers to skip them.
        self.crashed = tuple(journal.unfinished()) if journal else ()
        save(session, path)

    def measure(
        self, name: str, call: Callable[..., Measurement], *args: Any, **options: Any
    ) -> Measurement:
        """Run one experiment, call(*args, **options), and put its row on disk.

        The row gets this name. An experiment that fails is stored as NOT MEASURABLE
        HERE with the error as its reason: the others are still wanted.
        """
        if name in os.environ.get(SKIP_VARIABLE, "").replace(" ", "").split(","):
            return self.add(self._missing(name, SKIPPED))
        journal = self._journal if self.device.is_gpu else None
        if journal:
            journal.starting(name, self.device)
        try:
            result = replace(call(*args, **options), name=name)
        except Exception as error:  # the reason is the record
            result = self._missing(name, _one_line(error))
        finally:  # after Ctrl-C too: only what dies inside stays open
            if journal:
                journal.ended(name, self.device)
        return self.add(result)

    def add(self, measurement: Measurement) -> Measurement:
        """Append one row and save."""
        self._change(measurements=(*self.session.measurements, measurement))
        return measurement

    def answer(self, answer: Answer) -> Answer:
        """Append what came out of one exercise; a second try replaces the first."""
        others = (a for a in self.session.answers if a.exercise != answer.exercise)
        self._change(answers=(*others, answer))
        return answer

    def ladder(self, ladder: Ladder) -> Ladder:
        """Keep the ladder in the session."""
        self._change(ladder=ladder)
        return ladder

    def state(self, **stated: str) -> dict[str, str]:
        """Keep what the user says of dock and cable: stated, never measured.

        Asked once: kept in the folder of runs for the sessions that follow.
        """
        path = runs_root() / STATED
        known = {**stated_before(path), **{k: v for k, v in stated.items() if v}}
        if known != stated_before(path):
            write_json(redact.tree(known), path)
        self._change(stated=known)
        return known

    def close(self) -> Path:
        """Mark the session complete; the path of its file."""
        self._change(complete=True)
        return self.path

    def _missing(self, name: str, reason: str) -> Measurement:
        return Measurement.not_measurable(name, device=self.device, reason=reason)

    def _change(self, **fields: Any) -> None:
        before, self.session = self.session, replace(self.session, **fields)
        try:
            save(self.session, self.path)
        except StoreError:  # refused for what it says: the next row must not suffer
            self.session = before
            raise


def open_session(
    suite: str,
    machine: records.Machine,
    device: Device,
    *,
    profile: str,
    seed: int,
    folder: Path | None = None,
) -> Recorder:
    """A new session file in the run folder, ready to record.

    Args:
        suite: "core" or the name of the notebook.
        folder: run folder; by default the one of this process.
    """
    folder = folder or out_folder()
    session = Session(
        suite=suite,
        created=now(),
        profile=profile,
        device=device.label,
        seed=seed,
        machine=machine,
        stated=stated_before(runs_root() / STATED),
        gpu_lab=__version__,
    )
    path = free_name(folder / "sessions", suite)
    return Recorder(path, session, journal=Journal(runs_root()))


def stated_before(path: Path) -> dict[str, str]:
    """What the user said of dock and cable in an earlier session, or nothing."""
    try:
        return {str(k): str(v) for k, v in json.loads(path.read_text("utf-8")).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _require_ours(tree: Any, path: Path) -> None:
    if not isinstance(tree, dict) or tree.get("format") != records.FORMAT:
        raise StoreError(
            f"{path}: valid JSON, but not a session of gpu_lab "
            f'(wanted "format": "{records.FORMAT}")'
        )
    major = str(tree.get("schema", "")).split(".")[0]
    if major != records.SCHEMA.split(".")[0]:
        raise StoreError(
            f"{path}: written in schema {tree.get('schema')!r}, this gpu_lab "
            f"({__version__}) reads {records.SCHEMA}; install the gpu_lab that wrote it"
        )


def _still_runs(line: dict[str, Any]) -> bool:
    """Whether the process of a journal line lives: not one that got its number."""
    try:
        process = psutil.Process(int(line["pid"]))
        started = datetime.datetime.fromisoformat(str(line["time"])).timestamp()
        dead = process.status() == psutil.STATUS_ZOMBIE  # only not yet waited for
        return not dead and process.create_time() <= started + 1
    except (psutil.Error, KeyError, ValueError, TypeError):
        return False


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


def _one_line(error: Exception) -> str:
    first = (str(error).strip() or "no text").splitlines()[0]
    return f"{FAILED}: {type(error).__name__}: {first}"
