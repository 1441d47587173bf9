"""`gpu-lab bench`: sessions of the core suite without notebooks."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpu_lab import records, redact, show, store
from gpu_lab.course import fresh, report, session
from gpu_lab.records import CORE_SUITE, GpuLabError, Session


def run(args: argparse.Namespace) -> int:
    """Measure as many sessions as wanted and print them; 1 when a row failed.

    Raises:
        GpuLabError: the wish cannot be met; names what was wanted.
    """
    if args.sessions < 1:
        raise GpuLabError(f"{args.sessions} sessions; wanted 1 or more")
    with tempfile.TemporaryDirectory(prefix="gpu-lab-") as empty:
        folder = args.out or Path(empty)
        there = len(whole(folder))
        if args.out and 1 < args.sessions <= there:
            text = f"{folder} holds {there} whole sessions, wanted {args.sessions}"
            raise GpuLabError(f"{text}; choose another --out")
        found = _measure(args, folder, range(there + 1, args.sessions))
        sessions = whole(folder)
    if args.json:
        print(json.dumps(redact.tree(records.plain(found)), ensure_ascii=False))
    elif args.sessions > 1:
        print(show.Table(report.core_table(sessions), report.CORE_COLUMNS))
        if all(
            "busy" in r.flags for s in sessions for r in s.measurements if r.times_s
        ):
            print(
                "Busy throughout: a comparison will say nothing. Close what else runs"
            )
    else:
        print(show.measurements(found.measurements))
    return int(bool(session.failed(found)))


def whole(folder: Path) -> list[Session]:
    """Finished sessions of the core suite in a folder that may not be there yet."""
    found, _problems = store.readable(folder)
    return [s for s in found if s.suite == CORE_SUITE and s.complete]


def _measure(args: argparse.Namespace, folder: Path, left: range) -> Session:
    """One session in this process, which is fresh too, the others each in its own."""
    same: dict[str, Any] = {"device": args.device, "profile": "quick"}
    same |= {"seed": args.seed, "names": tuple(args.names)}
    try:
        found = session.measure_core(folder=folder, **same)
        for _ in show.progress(left, what="sessions"):
            if cause := fresh.session(out=folder, **same):
                raise GpuLabError(cause)
    except KeyboardInterrupt:
        if args.out:
            kept = f"{len(whole(folder))} of {args.sessions} sessions kept"
            print(f"{kept}; the same command goes on", file=sys.stderr)
        raise
    return found
