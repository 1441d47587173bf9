"""Verdicts on two runs: row by row, with many rows and few sessions in mind.

Order of the questions: not comparable; faster or slower; equivalent; otherwise no
difference shown, with the smallest effect that these data could have shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_lab.compare import keys
from gpu_lab.compare.looks import (
    as_much_as_itself,
    holds_zero,
    machine_changed,
    second_look,
)
from gpu_lab.compare.paired import MARGIN_CPU, MARGIN_GPU
from gpu_lab.compare.pairs import ERROR, FEWEST_SESSIONS, Pair, Rows, middle, pair_up
from gpu_lab.compare.sessions import difference, smallest_shown
from gpu_lab.records import Comparison, Measurement, Run, Verdict

DESIGN = (5, 5)
MARGIN_LINK = 0.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of two runs: what each measured in its middle session, and a verdict.

    `kept` are the sessions of both sides that the verdict rests on.
    """

    name: str
    reference: Measurement | None
    candidate: Measurement | None
    comparison: Comparison
    kept: tuple[Rows, Rows] = ((), ())


def versus(
    reference: Run,
    candidate: Run,
    *,
    allow: Sequence[str] = (),
    margin: float | None = None,
    again: Run | None = None,
) -> list[Row]:
    """All rows of the core suite, judged.

    Args:
        allow: keys of condition that may differ: torch, cuda, hip, driver, threads,
            power.
        margin: differences below it do not matter; by default 5 % on a CPU and for
            transfers, 2 % on a GPU.
        again: the reference measured once more after the candidate (A-B-A): where both
            do not agree conditions have changed, elsewhere they count together.

    Raises:
        GpuLabError: a word in `allow` that is no key.
    """
    keys.require_keys(allow)
    names = dict.fromkeys(
        row.name
        for run in (reference, candidate)
        for s in run.core
        for row in s.measurements
    )
    found: dict[str, Comparison | Pair] = {}
    for name in names:
        sides = (reference.rows(name), candidate.rows(name))
        found[name] = pair_up(name, sides, allow=allow)
        if again and isinstance(found[name], Pair):
            found[name] = _sandwich(
                sides, again.rows(name), name, allow=allow, margin=margin
            )
    pairs = _holm([pair for pair in found.values() if isinstance(pair, Pair)])
    judged = {pair.name: _judge(pair, len(pairs), margin) for pair in pairs}
    return [
        Row(
            name=name,
            reference=middle([row for _session, row in reference.rows(name)]),
            candidate=middle([row for _session, row in candidate.rows(name)]),
            comparison=one if isinstance(one, Comparison) else judged[name],
            kept=_kept(one, judged.get(name)),
        )
        for name, one in found.items()
    ]


def _kept(one: Comparison | Pair, judged: Comparison | None) -> tuple[Rows, Rows]:
    if isinstance(one, Comparison) or not judged or judged.speedup is None:
        return (), ()
    return one.rows


def _sandwich(
    both: tuple[Rows, Rows],
    again: Rows,
    name: str,
    *,
    allow: Sequence[str],
    margin: float | None,
) -> Comparison | Pair:
    """The reference, taken twice, against the candidate in between."""
    twice = pair_up(name, (both[0], again), allow=allow)
    if isinstance(twice, Comparison):
        return replace(twice, reason=f"reference again: {twice.reason}")
    found = difference(*twice.sides)
    if not holds_zero(found) and abs(found.estimate) > math.log1p(
        _margin(twice, margin) / 2
    ):
        changed = math.exp(-found.estimate)
        reason = (
            f"conditions changed: the reference again took {changed:.2f} times as long"
        )
        return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=reason)
    whole = pair_up(name, ((*both[0], *again), both[1]), allow=allow)
    return replace(whole, twice=twice.sides) if isinstance(whole, Pair) else whole


def _holm(pairs: list[Pair]) -> list[Pair]:
    """Each row with the error that it may make, so that all together make 5 %.

    Holm 1979: the smallest p of m is asked for 5 % / m, the next for 5 % / (m - 1), up
    to the first that is not reached; all later ones are not significant either.
    """
    found, reached = [], True
    for rank, pair in enumerate(sorted(pairs, key=lambda pair: pair.p)):
        error = ERROR / (len(pairs) - rank)
        reached = reached and pair.p <= error
        found.append(replace(pair, error=error if reached else 0.0))
    return found


def _judge(pair: Pair, family: int, margin: float | None) -> Comparison:
    """Verdict of one row among `family` of them."""
    margin = _margin(pair, margin)
    k, other = map(len, pair.sides)
    found = difference(*pair.sides, confidence=1 - (pair.error or ERROR))
    shown = not holds_zero(found) and pair.error > 0
    clear = shown and abs(found.estimate) > math.log1p(margin / 2)
    few = min(k, other) < FEWEST_SESSIONS
    note, verdict = pair.note, Verdict.NO_DIFFERENCE
    if clear and not few:
        if changed := machine_changed(pair):
            return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=changed)
        if as_much_as_itself(pair, found.estimate):
            note = "; ".join(filter(None, (note, "the reference changes as much")))
        else:
            verdict = Verdict.FASTER if found.estimate > 0 else Verdict.SLOWER
            note = "; ".join(filter(None, (note, second_look(pair, found.estimate))))
    else:
        found = difference(*pair.sides)
        if -math.log1p(margin) < found.low and found.high < math.log1p(margin):
            verdict = Verdict.EQUIVALENT
    sessions = DESIGN if few else (k, other)
    smallest = smallest_shown(*pair.sides, sessions=sessions, error=ERROR / family)
    return Comparison(
        verdict=verdict,
        speedup=math.exp(found.estimate),
        low=math.exp(found.low) if math.isfinite(found.low) else None,
        high=math.exp(found.high) if math.isfinite(found.high) else None,
        smallest=None if smallest is None else max(smallest, margin / 2),
        margin=margin,
        sessions=(k, other),
        note=note,
    )


def _margin(pair: Pair, wanted: float | None) -> float:
    if wanted is not None:
        return wanted
    if pair.name in ("h2d", "d2h"):
        return MARGIN_LINK
    on_device = pair.rows[0][0][1].decided_by == "events"
    return MARGIN_GPU if on_device else MARGIN_CPU
