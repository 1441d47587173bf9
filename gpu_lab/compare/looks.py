"""What else explains a difference: the clock, the machine, the reference itself."""

from __future__ import annotations

import math

from gpu_lab.compare.pairs import Pair
from gpu_lab.compare.sessions import Side, difference
from gpu_lab.records import Measurement, Session
from gpu_lab.timing import Interval, log_ratios


def as_much_as_itself(pair: Pair, estimate: float) -> bool:
    """A-B-A: whether the reference moved as far by itself as the candidate lies off."""
    if not pair.twice:
        return False
    moved = abs(difference(*pair.twice).estimate)
    apart = [difference(side, pair.sides[1]).estimate for side in pair.twice]
    return any(d * estimate <= 0 or abs(d) <= moved for d in apart)


def machine_changed(pair: Pair) -> str:
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
    row = difference(*pair.sides)
    explains = abs(anchors.estimate) >= abs(row.estimate) / 2
    if holds_zero(anchors) or not holds_zero(against) or not explains:
        return ""
    longer = math.exp(-anchors.estimate)
    return f"conditions changed: the anchor too took {longer:.2f} times as long"


def holds_zero(found: Interval) -> bool:
    """Whether the data allow that there is no difference at all."""
    return found.low <= 0 <= found.high


def _anchor_logs(pair: tuple[Session, Measurement]) -> tuple[float, ...]:
    return tuple(map(math.log, pair[1].anchor_s))


def _against_anchor(pair: tuple[Session, Measurement]) -> tuple[float, ...]:
    return tuple(log_ratios(pair[1].times_s, pair[1].anchor_s))


def second_look(pair: Pair, estimate: float) -> str:
    """Whether the difference stays when the clock of the device is counted out.

    Only for products: memory and links have clocks of their own.
    """
    if not pair.name.startswith("matmul"):
        return ""
    cycles = [[_cycles(row) for _session, row in rows] for rows in pair.rows]
    if any(value is None for side in cycles for value in side):
        return ""
    sides = (Side(tuple((value,) for value in side if value)) for side in cycles)
    found = difference(*sides)
    if found.estimate * estimate > 0 and not holds_zero(found):
        return "in clock cycles too"
    clock = estimate - found.estimate  # what the clock alone gives
    if (
        clock * estimate <= 0
        or abs(clock) < abs(estimate) / 2
        or found.half_width > (abs(estimate) / 2)
    ):
        return ""
    return f"because the clock is {'higher' if estimate > 0 else 'lower'}"


def _cycles(row: Measurement) -> float | None:
    """Logarithm of the median of time x SM clock; None where no clock was told."""
    clocks = [state.clock_sm_mhz for state in row.states]
    told = [clock for clock in clocks if clock and clock > 0]
    if not told or len(told) != len(row.times_s):
        return None
    pairs = zip(row.deciding_s, told, strict=True)
    ordered = sorted(time * clock for time, clock in pairs)
    return math.log(ordered[len(ordered) // 2])
