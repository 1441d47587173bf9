"""Verdicts on two runs: row by row, with many rows and few sessions in mind.

Order of the questions: not comparable; faster or slower; equivalent; otherwise no
difference shown, with the smallest effect that these data could have shown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_lab.compare import keys
from gpu_lab.compare.paired import MARGIN_CPU, MARGIN_GPU
from gpu_lab.compare.sessions import Side, difference, p_value, smallest_shown
from gpu_lab.records import Comparison, Measurement, Run, Session, Source, Verdict
from gpu_lab.timing import Interval, log_ratios
from gpu_lab.timing.core import FEWEST_ROUNDS
from gpu_lab.timing.stats import CONFIDENCE

FEWEST_SESSIONS = 4  # with fewer a side no verdict of faster or slower
DESIGN = (5, 5)
ERROR = 1 - CONFIDENCE
MARGIN_LINK = 0.05
LEFT_OUT = ("busy", "throttled")  # a session's row with one of these is left out
COMPARED = (Source.MEASURED, Source.RECORDED)
Rows = Sequence[tuple[Session, Measurement]]


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


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Both sides of a row that may be compared."""

    name: str
    rows: tuple[Rows, Rows]
    sides: tuple[Side, Side]
    note: str
    p: float
    error: float = ERROR  # of this row among all of them (Holm)


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
    found: dict[str, Comparison | _Pair] = {}
    for name in names:
        sides = (reference.rows(name), candidate.rows(name))
        found[name] = _pair(name, sides, allow=allow)
        if again and isinstance(found[name], _Pair):
            found[name] = _sandwich(sides, again.rows(name), name, allow=allow)
    pairs = _holm([pair for pair in found.values() if isinstance(pair, _Pair)])
    judged = {pair.name: _judge(pair, len(pairs), margin) for pair in pairs}
    return [
        Row(
            name=name,
            reference=_middle(reference.rows(name)),
            candidate=_middle(candidate.rows(name)),
            comparison=one if isinstance(one, Comparison) else judged[name],
            kept=((), ()) if isinstance(one, Comparison) else one.rows,
        )
        for name, one in found.items()
    ]


def _pair(
    name: str, both: tuple[Rows, Rows], *, allow: Sequence[str]
) -> Comparison | _Pair:
    """Both sides of a row, or why they are not comparable."""
    reason = _not_comparable(both, allow)
    if reason:
        return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=reason)
    kept = tuple(_usable(rows) for rows in both)
    first, second = (Side(tuple(_logs(row) for _s, row in rows)) for rows in kept)
    notes = [_allowed(both, allow), *map(_dropped, ("reference", "candidate"), both)]
    return _Pair(
        name=name,
        rows=(kept[0], kept[1]),
        sides=(first, second),
        note="; ".join(note for note in notes if note),
        p=p_value(first, second),
    )


def _sandwich(
    both: tuple[Rows, Rows], again: Rows, name: str, *, allow: Sequence[str]
) -> Comparison | _Pair:
    """The reference, taken twice, against the candidate in between."""
    twice = _pair(name, (both[0], again), allow=allow)
    if isinstance(twice, Comparison):
        return replace(twice, reason=f"reference again: {twice.reason}")
    found = difference(*twice.sides)
    if not _holds_zero(found) and abs(found.estimate) > math.log1p(
        _margin(twice, None) / 2
    ):
        changed = math.exp(-found.estimate)
        reason = (
            f"conditions changed: the reference again took {changed:.2f} times as long"
        )
        return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=reason)
    return _pair(name, ((*both[0], *again), both[1]), allow=allow)


def _not_comparable(both: tuple[Rows, Rows], allow: Sequence[str]) -> str:
    """The first reason why these rows may not be judged; empty when they may."""
    for side, rows in zip(("reference", "candidate"), both, strict=True):
        if not rows:
            return f"not in the {side} run"
        missing = next((row for _s, row in rows if not row.available), None)
        if missing:
            return missing.reason
    every = [row for rows in both for _session, row in rows]
    other = next((row.source for row in every if row.source not in COMPARED), None)
    if other:
        return f"{other}: only what was measured is compared"
    for row in every:
        if differ := keys.differences(every[0], row):
            return "; ".join(differ)
    for rows in both:
        if len({row.device for _session, row in rows}) > 1:
            return "the sessions of one run ran on different devices"
    return _conditions(both, allow) or _disturbed(both)


def _conditions(both: tuple[Rows, Rows], allow: Sequence[str]) -> str:
    met = keys.conditions(session for rows in both for session, _row in rows)
    touched = keys.touching(met, both[0][0][1])
    denied = [key for key in touched if key not in allow]
    texts = (f"{key}: {', '.join(met[key])}" for key in denied)
    hint = f" (--allow {','.join(denied)} compares anyway)"
    return "; ".join(texts) + hint if denied else ""


def _allowed(both: tuple[Rows, Rows], allow: Sequence[str]) -> str:
    met = keys.conditions(session for rows in both for session, _row in rows)
    found = [key for key in keys.touching(met, both[0][0][1]) if key in allow]
    return f"with another {' and '.join(found)}" if found else ""


def _disturbed(both: tuple[Rows, Rows]) -> str:
    """Too few sessions are left, or one side only was throttled throughout."""
    throttled = [_most(rows, "throttled") for rows in both]
    if throttled[0] != throttled[1]:
        return f"throttled in the {('candidate', 'reference')[throttled[0]]} run only"
    for side, rows in zip(("reference", "candidate"), both, strict=True):
        kept = _usable(rows)
        if not kept or (len(kept) < len(rows) and len(kept) < FEWEST_SESSIONS):
            return f"{_dropped(side, rows)}: {len(kept)} of {len(rows)} sessions left"
    return ""


def _most(rows: Rows, flag: str) -> bool:
    return 2 * sum(flag in row.flags for _session, row in rows) > len(rows)


def _fault(row: Measurement, *, throttled: bool) -> str:
    """Why one session's row is left out; empty when it counts."""
    flags = [
        f for f in LEFT_OUT if f in row.flags and not (throttled and f == "throttled")
    ]
    few = f"fewer than {FEWEST_ROUNDS} rounds"
    return flags[0] if flags else few if len(row.times_s) < FEWEST_ROUNDS else ""


def _usable(rows: Rows) -> Rows:
    always = _most(rows, "throttled")
    return [(s, row) for s, row in rows if not _fault(row, throttled=always)]


def _dropped(side: str, rows: Rows) -> str:
    always = _most(rows, "throttled")
    faults = Counter(filter(None, (_fault(r, throttled=always) for _s, r in rows)))
    return ", ".join(f"{side}: {n} left out ({why})" for why, n in faults.items())


def _holm(pairs: list[_Pair]) -> list[_Pair]:
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


def _judge(pair: _Pair, family: int, margin: float | None) -> Comparison:
    """Verdict of one row among `family` of them."""
    margin = _margin(pair, margin)
    k, other = map(len, pair.sides)
    found = difference(*pair.sides, confidence=1 - (pair.error or ERROR))
    shown = not _holds_zero(found) and pair.error > 0
    clear = shown and abs(found.estimate) > math.log1p(margin / 2)
    few = min(k, other) < FEWEST_SESSIONS
    note, verdict = pair.note, Verdict.NO_DIFFERENCE
    if clear and not few:
        if changed := _machine_changed(pair):
            return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=changed)
        verdict = Verdict.FASTER if found.estimate > 0 else Verdict.SLOWER
        note = "; ".join(filter(None, (note, _second_look(pair, found.estimate))))
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


def _margin(pair: _Pair, wanted: float | None) -> float:
    if wanted is not None:
        return wanted
    if pair.name in ("h2d", "d2h"):
        return MARGIN_LINK
    on_device = pair.rows[0][0][1].decided_by == "events"
    return MARGIN_GPU if on_device else MARGIN_CPU


def _machine_changed(pair: _Pair) -> str:
    """Whether the anchor explains the difference, on processors of one model.

    The anchor is the same work everywhere. When it took longer too, and the row did
    not against it, then the machine ran at another speed.
    """
    every = [(session, row) for rows in pair.rows for session, row in rows]
    models = {session.machine.cpu_name for session, _row in every}
    if len(models) > 1 or any(r.device != "cpu" or not r.anchor_s for _s, r in every):
        return ""
    anchors, against = (
        difference(*(Side(tuple(map(logs, rows))) for rows in pair.rows))
        for logs in (_anchor_logs, _against_anchor)
    )
    if _holds_zero(anchors) or not _holds_zero(against):
        return ""
    longer = math.exp(-anchors.estimate)
    return f"conditions changed: the anchor too took {longer:.2f} times as long"


def _holds_zero(found: Interval) -> bool:
    return found.low <= 0 <= found.high


def _anchor_logs(pair: tuple[Session, Measurement]) -> tuple[float, ...]:
    return tuple(map(math.log, pair[1].anchor_s))


def _against_anchor(pair: tuple[Session, Measurement]) -> tuple[float, ...]:
    return tuple(log_ratios(pair[1].times_s, pair[1].anchor_s))


def _second_look(pair: _Pair, estimate: float) -> str:
    """Whether the difference stays when the clock of the device is counted out."""
    cycles = [[_cycles(row) for _session, row in rows] for rows in pair.rows]
    if any(value is None for side in cycles for value in side):
        return ""
    sides = (Side(tuple((value,) for value in side if value)) for side in cycles)
    found = difference(*sides)
    if found.estimate * estimate > 0 and not _holds_zero(found):
        return "in clock cycles too"
    return f"because the clock is {'higher' if estimate > 0 else 'lower'}"


def _cycles(row: Measurement) -> float | None:
    """Logarithm of the median of time x SM clock; None where no clock was told."""
    clocks = [state.clock_sm_mhz for state in row.states]
    if not clocks or len(clocks) != len(row.times_s) or not all(clocks):
        return None
    pairs = zip(row.deciding_s, clocks, strict=True)
    ordered = sorted(time * (clock or 1) for time, clock in pairs)
    return math.log(ordered[len(ordered) // 2])


def _logs(row: Measurement) -> tuple[float, ...]:
    return tuple(math.log(time) for time in row.deciding_s)


def _middle(rows: Rows) -> Measurement | None:
    """The row of the session in the middle; the first where nothing was timed."""
    ordered = sorted(
        (row for _session, row in rows), key=lambda row: row.median_s or 0.0
    )
    return ordered[len(ordered) // 2] if ordered else None
