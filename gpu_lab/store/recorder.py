"""A session that grows: each experiment is on disk before the next one starts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from gpu_lab import __version__, redact
from gpu_lab.bench import together
from gpu_lab.records import (
    Answer,
    Device,
    Ladder,
    Machine,
    Measurement,
    Session,
    first_line,
)
from gpu_lab.store.files import (
    StoreError,
    free_name,
    now,
    out_folder,
    runs_root,
    save,
    write_json,
)
from gpu_lab.store.journal import Journal
from gpu_lab.timing import Arm, Clock, Plan

SKIP_VARIABLE = "GPU_LAB_SKIP"
STATED = "stated.json"
FAILED = "failed"
SKIPPED = "skipped at the user's wish: the machine stopped inside it last time"


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
        if _skipped(name):
            return self.add(self._missing(name, SKIPPED))
        with self._journalled([name]):
            try:
                result = replace(call(*args, **options), name=name)
            except Exception as error:  # the reason is the record
                result = self._missing(name, failure(error))
        return self.add(result)

    def arm(
        self, name: str, make: Callable[..., Arm], *args: Any, **options: Any
    ) -> Arm:
        """Prepare an arm, make(*args, **options), under this name, for `together`.

        One that fails or is to be skipped carries the reason instead of calls.
        """
        if _skipped(name):
            return Arm(name=name, reason=SKIPPED)
        with self._journalled([name]):
            try:
                return replace(make(*args, **options), name=name)
            except Exception as error:  # the reason is the record
                return Arm(name=name, reason=failure(error))

    def together(
        self, arms: Sequence[Arm], *, plan: Plan, clock: Clock | None = None
    ) -> list[Measurement]:
        """Time arms in the same rounds and put their rows on disk.

        Only rows that were taken together can be compared on one machine.
        """
        with self._journalled([arm.name for arm in arms if not arm.reason]):
            try:
                found = together(arms, device=self.device, plan=plan, clock=clock)
            except Exception as error:  # the reason is the record
                why = failure(error)
                found = [self._missing(a.name, a.reason or why) for a in arms]
        self._change(measurements=(*self.session.measurements, *found))
        return found

    @contextmanager
    def _journalled(self, names: Sequence[str]) -> Iterator[None]:
        """Note on disk what is about to run on a GPU: it may stop the machine."""
        journal = self._journal if self.device.is_gpu else None
        for name in names if journal else ():
            cast(Journal, journal).starting(name, self.device)
        try:
            yield
        finally:  # after Ctrl-C too: only what dies inside stays open
            for name in names if journal else ():
                cast(Journal, journal).ended(name, self.device)

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

    def state(self, **stated: object) -> dict[str, str]:
        """Keep what the user says of dock and cable: stated, never measured.

        Asked once: kept in the folder of runs for the sessions that follow.
        """
        path = runs_root() / STATED
        known = {**stated_before(path), **{k: str(v) for k, v in stated.items() if v}}
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
    machine: Machine,
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


def failure(error: Exception) -> str:
    """Why an experiment that failed has no times, in one line."""
    return f"{FAILED}: {type(error).__name__}: {first_line(error)}"


def _skipped(name: str) -> bool:
    return name in os.environ.get(SKIP_VARIABLE, "").replace(" ", "").split(",")


def stated_before(path: Path) -> dict[str, str]:
    """What the user said of dock and cable in an earlier session, or nothing."""
    try:
        return {str(k): str(v) for k, v in json.loads(path.read_text("utf-8")).items()}
    except (OSError, ValueError, AttributeError):
        return {}
