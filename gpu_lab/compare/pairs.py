"""Which rows of two runs may be compared, and what of them counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_lab.compare import keys
from gpu_lab.compare.sessions import Side, p_value
from gpu_lab.records import Comparison, Measurement, Session, Source, Verdict
from gpu_lab.timing.core import FEWEST_ROUNDS
from gpu_lab.timing.stats import CONFIDENCE

FEWEST_SESSIONS = 4  # with fewer a side no verdict of faster or slower
ERROR = 1 - CONFIDENCE
LEFT_OUT = ("busy", "throttled")  # a session's row with one of these is left out
COMPARED = (Source.MEASURED, Source.RECORDED)
Rows = Sequence[tuple[Session, Measurement]]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Both sides of a row that may be compared."""

    name: str
    rows: tuple[Rows, Rows]
    sides: tuple[Side, Side]
    note: str
    p: float
    error: float = ERROR  # of this row among all of them (Holm)
    twice: tuple[Side, ...] = ()  # the reference before and after, in A-B-A


def pair_up(
    name: str, both: tuple[Rows, Rows], *, allow: Sequence[str]
) -> Comparison | Pair:
    """Both sides of a row, or why they are not comparable."""
    reason = _not_comparable(both, allow)
    if reason:
        return Comparison(verdict=Verdict.NOT_COMPARABLE, reason=reason)
    kept = tuple(_usable(rows) for rows in both)
    first, second = (Side(tuple(_logs(row) for _s, row in rows)) for rows in kept)
    notes = [_allowed(both, allow), *map(_dropped, ("reference", "candidate"), both)]
    notes += map(_flags, ("reference", "candidate"), kept)
    return Pair(
        name=name,
        rows=(kept[0], kept[1]),
        sides=(first, second),
        note="; ".join(note for note in notes if note),
        p=p_value(first, second),
    )


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
        differ = keys.differences(every[0], row)
        # What is a condition too, such as threads, may be allowed further down.
        differ = [d for d in differ if d.split(":")[0] not in keys.CONDITIONS]
        if differ:
            return "; ".join(differ)
    for rows in both:
        machines = list(dict.fromkeys(_machine(*pair) for pair in rows))
        if len(machines) > 1:
            return f"one run, different machines: {'; '.join(machines)}"
    return _conditions(both, allow) or _disturbed(both)


def middle(rows: Sequence[Measurement]) -> Measurement | None:
    """The row of the session in the middle; the first where nothing was timed."""
    ordered = sorted(rows, key=lambda row: row.median_s or 0.0)
    return ordered[len(ordered) // 2] if ordered else None


def _touched(both: tuple[Rows, Rows]) -> dict[str, list[str]]:
    """Keys of condition that differ and can change this row -> the values met."""
    met = keys.conditions(session for rows in both for session, _row in rows)
    return {key: met[key] for key in keys.touching(met, both[0][0][1])}


def _conditions(both: tuple[Rows, Rows], allow: Sequence[str]) -> str:
    met = _touched(both)
    denied = [key for key in met if key not in allow]
    texts = (f"{key}: {', '.join(met[key])}" for key in denied)
    hint = f" (--allow {','.join(denied)} compares anyway)"
    return "; ".join(texts) + hint if denied else ""


def _allowed(both: tuple[Rows, Rows], allow: Sequence[str]) -> str:
    found = [key for key in _touched(both) if key in allow]
    machines = [{_host(session) for session, _row in rows} for rows in both]
    other = ["computer"] if machines[0] != machines[1] else []
    return f"with another {' and '.join(found + other)}" if found + other else ""


def _host(session: Session) -> str:
    return f"{session.machine.cpu_name}, {session.machine.system}"


def _machine(session: Session, row: Measurement) -> str:
    """What may not change within a run: computer, device, and its link at most."""
    device = session.machine.device(session.device)
    link = device.link
    most = f"PCIe {link.pcie_gen_max} x{link.pcie_width_max}" if link else ""
    return f"{_host(session)}, {row.device} {device.name} {most}".strip()


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


def _flags(side: str, rows: Rows) -> str:
    """Flags that most sessions of a side have, and that do not exclude them."""
    count = Counter(f for _s, row in rows for f in row.flags if f not in LEFT_OUT)
    found = [flag for flag, n in count.items() if 2 * n > len(rows)]
    return f"{side}: {', '.join(found)}" if found else ""


def _logs(row: Measurement) -> tuple[float, ...]:
    return tuple(math.log(time) for time in row.deciding_s)
