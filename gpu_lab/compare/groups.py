"""Geometric means of speedups by group. There is no single score over all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_lab.compare.pairs import FEWEST_SESSIONS
from gpu_lab.compare.runs import Row
from gpu_lab.compare.sessions import Side, difference

GROUPS = {
    "compute": ("matmul_fp32", "matmul_fp16", "matmul_bf16"),
    "memory": ("device_copy", "host_copy"),
    "link": ("h2d", "d2h"),
}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Geometric mean of the speedups of some rows, with its 95 % interval."""

    name: str
    rows: tuple[str, ...]
    speedup: float
    low: float
    high: float


def groups(rows: Sequence[Row]) -> list[Group]:
    """One geometric mean for each group of which two rows or more may be compared.

    A session's value is the mean of its rows' logarithms, so that what one process
    does to all of its rows counts once. Sessions that lack one of the rows are left
    out; at least four a side are needed.
    """
    found = []
    for name, members in GROUPS.items():
        there = [row for row in rows if row.name in members and row.kept[0]]
        sides = [_means(there, side) for side in (0, 1)]
        if len(there) < 2 or min(map(len, sides)) < FEWEST_SESSIONS:
            continue
        one = difference(*sides)
        found.append(
            Group(
                name=name,
                rows=tuple(row.name for row in there),
                speedup=math.exp(one.estimate),
                low=math.exp(one.low),
                high=math.exp(one.high),
            )
        )
    return found


def _means(rows: Sequence[Row], side: int) -> Side:
    """The mean of the logarithms of the rows' medians in each session."""
    logs: dict[int, list[float]] = {}
    for row in rows:
        for session, one in row.kept[side]:
            logs.setdefault(id(session), []).append(
                math.log(statistics.median(one.deciding_s))
            )
    whole = [v for v in logs.values() if len(v) == len(rows)]
    return Side(tuple((statistics.fmean(v),) for v in whole))
