"""`gpu-lab compare`: two runs are judged, more are a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from gpu_lab import compare, store
from gpu_lab.course import versus
from gpu_lab.records import GpuLabError, Run, Verdict


def run(args: argparse.Namespace) -> int:
    """Compare the runs named and print the verdicts; 1 when a row is slower.

    Raises:
        GpuLabError: the wish cannot be met; names what was wanted.
    """
    if len(args.runs) < 2:
        raise GpuLabError("one run; wanted a reference and a candidate, or more")
    runs = store.rename([store.load_run(address) for address in args.runs])
    if len(runs) > 2:
        return _fleet(args, runs)
    if args.margin is not None and not 0 < args.margin < 100:
        raise GpuLabError(f"margin {args.margin:g} %; wanted one above 0, below 100")
    if args.by:
        raise GpuLabError("--by sorts three runs or more; found two")
    reference, candidate = runs
    again = _again(args.again, runs) if args.again else None
    rows = compare.versus(
        reference,
        candidate,
        allow=[key.strip() for key in args.allow.split(",") if key.strip()],
        margin=None if args.margin is None else args.margin / 100,
        again=again,
    )
    if args.json:
        found = versus.tree(reference, candidate, rows, again)
        print(json.dumps(found, ensure_ascii=False))
    else:
        print("\n".join(versus.lines(reference, candidate, rows, again)))
    if args.html:
        versus.write(args.html, reference, candidate, rows, again)
    slower = any(r.comparison.verdict is Verdict.SLOWER for r in rows)
    return int(slower)


def _again(address: str, runs: Sequence[Run]) -> Run:
    """The run of --again; what would make the check empty is refused."""
    again = store.load_run(address)
    if len(again.core) < 4:
        raise GpuLabError(f"--again {address}: {len(again.core)} sessions, wanted 5")
    if any(store.same_sessions(again, run) for run in runs):
        text = "has sessions of the other runs; wanted a run made after the candidate"
        raise GpuLabError(f"--again {address}: {text}")
    return again


def _fleet(args: argparse.Namespace, runs: list[Run]) -> int:
    if args.again or args.allow or args.margin is not None:
        raise GpuLabError(
            f"{len(runs)} runs are a table without verdicts; --allow, --again and "
            "--margin need a reference and a candidate"
        )
    by = args.by or compare.BY
    members = compare.fleet(runs, by=by)
    if args.json:
        print(json.dumps(versus.fleet_tree(members), ensure_ascii=False))
    else:
        print("\n".join(versus.fleet_lines(members)))
    if args.html:
        versus.write_fleet(args.html, members, by=by)
    return 0
