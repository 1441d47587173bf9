"""Reference runs: sessions that our own code made on a named machine, shipped."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from gpu_lab import facts
from gpu_lab.records import Session, Source
from gpu_lab.store.files import StoreError, load, load_folder

FOLDER = "reference"
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def references() -> dict[str, list[Session]]:
    """Shipped runs: name of the machine -> its sessions, every row RECORDED."""
    there = facts.folder("data") / FOLDER
    if not there.is_dir():
        return {}
    folders = sorted(there.iterdir(), key=lambda item: item.name)
    return {
        item.name: [_recorded(s) for s in load_folder(Path(str(item)))]
        for item in folders
        if item.is_dir()
    }


def keep_reference(run: Path, folder: Path) -> list[Path]:
    """Copy the core sessions of a run into `folder`, named after the machine.

    Raises:
        StoreError: no name of a machine, or a session that is not whole or not measured
            on a real device: then it is no record. Nothing is copied.
    """
    if not NAME.fullmatch(folder.name):
        raise StoreError(
            f"{folder.name!r} is no name of a machine; wanted small letters, digits "
            "and hyphens, such as one-rtx-3060"
        )
    paths = sorted((run / "sessions").glob("core*.json"))
    if not paths:
        raise StoreError(f"{run}: wanted sessions of the core suite, found none")
    for path in paths:
        session = load(path)
        sources = {str(row.source) for row in session.measurements if row.available}
        if not session.complete or sources != {Source.MEASURED}:
            state = "whole" if session.complete else "unfinished"
            raise StoreError(
                f"{path.name} is no record: {state}, {', '.join(sorted(sources))}; "
                "wanted whole and MEASURED; nothing is kept"
            )
    target = folder / "sessions"
    target.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(path, target)) for path in paths]


def _recorded(session: Session) -> Session:
    rows = tuple(
        replace(row, source=Source.RECORDED) if row.available else row
        for row in session.measurements
    )
    return replace(session, measurements=rows)
