"""Many runs side by side, such as a class of thirty: slowest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_lab.compare.pairs import COMPARED, LEFT_OUT, middle
from gpu_lab.records import GpuLabError, Measurement, Run

BY = "matmul_fp32"


@dataclass(frozen=True, kw_only=True)
class Member:
    """One run: row name -> the row of its session in the middle."""

    run: Run
    rows: dict[str, Measurement]

    @property
    def times_s(self) -> dict[str, float]:
        """Row name -> its median time, in seconds."""
        return {name: row.median_s or 0.0 for name, row in self.rows.items()}


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
    chosen = {
        name: middle([r for r in rows if not {*LEFT_OUT} & {*r.flags}] or rows)
        for name, rows in timed.items()
    }
    return Member(run=run, rows={name: row for name, row in chosen.items() if row})


def _usual(members: Sequence[Member], name: str) -> str:
    there = [_key(m.rows[name]) for m in members if name in m.rows]
    return Counter(there).most_common(1)[0][0]


def _key(row: Measurement) -> str:
    return f"{row.method_version} {row.work_unit} {sorted(row.settings.items())}"


def _alike(member: Member, usual: dict[str, str]) -> Member:
    kept = {n: r for n, r in member.rows.items() if _key(r) == usual[n]}
    return Member(run=member.run, rows=kept)
