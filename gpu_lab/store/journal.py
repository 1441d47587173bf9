"""The journal: what was about to run when the machine stopped."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from gpu_lab.records import Device
from gpu_lab.store.files import now

JOURNAL = "journal.jsonl"


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
        return [name for name, line in open_lines.items() if not still_runs(line)]

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


def still_runs(line: dict[str, Any]) -> bool:
    """Whether the process named by "pid" and "time" lives, not one with its number."""
    try:
        process = psutil.Process(int(line["pid"]))
        started = datetime.datetime.fromisoformat(str(line["time"])).timestamp()
        dead = process.status() == psutil.STATUS_ZOMBIE  # only not yet waited for
        return not dead and process.create_time() <= started + 1
    except (psutil.Error, KeyError, ValueError, TypeError):
        return False
