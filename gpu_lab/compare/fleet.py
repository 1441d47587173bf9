"""Many runs side by side, such as a class of thirty: slowest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_lab.compare.pairs import COMPARED, LEFT_OUT
from gpu_lab.records import GpuLabError, Measurement, Run

BY = "matmul_fp32"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One run: row name -> median of its sessions' median times, in seconds.

    `rows` holds the row of the session in the middle.
    """

    run: Run
    times_s: dict[str, float]
    rows: dict[str, Measurement]


def fleet(runs: Sequence[Run], *, by: str = BY) -> list[Member]:
    """All runs, those without the row `by` first, then slowest first.

    A row that was taken with other settings than in most runs is left out: it is
    another experiment. So is what was not measured.

    Raises:
        GpuLabError: no run has the row `by`.
    """
    everything = [_member(run) for run in runs]
    names = dict.fromkeys(name for member in everything for name in member.times_s)
    if by not in names:
        raise GpuLabError(f"no run has {by!r}; wanted one of {', '.join(names) or '-'}")
    usual = {name: _usual(everything, name) for name in names}
    members = [_alike(member, usual) for member in everything]
    return sorted(members, key=lambda member: -member.times_s.get(by, float("inf")))


def _member(run: Run) -> Member:
    timed: dict[str, list[Measurement]] = {}
    for session in run.core:
        for row in session.measurements:
            if row.source in COMPARED:
                timed.setdefault(row.name, []).append(row)
    # A disturbed session only where there is no other; its flag is then shown.
    for name, rows in timed.items():
        timed[name] = [r for r in rows if not {*LEFT_OUT} & {*r.flags}] or rows
    middle = {
        name: sorted(rows, key=lambda row: row.median_s or 0.0)[len(rows) // 2]
        for name, rows in timed.items()
    }
    times_s = {name: row.median_s or 0.0 for name, row in middle.items()}
    return Member(run=run, times_s=times_s, rows=middle)


def _usual(members: Sequence[Member], name: str) -> str:
    there = [_key(m.rows[name]) for m in members if name in m.rows]
    return Counter(there).most_common(1)[0][0]


def _key(row: Measurement) -> str:
    return f"{row.method_version} {row.work_unit} {sorted(row.settings.items())}"


def _alike(member: Member, usual: dict[str, str]) -> Member:
    kept = {n: r for n, r in member.rows.items() if _key(r) == usual[n]}
    times_s = {n: t for n, t in member.times_s.items() if n in kept}
    return Member(run=member.run, times_s=times_s, rows=kept)
