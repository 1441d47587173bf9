"""The answer in words: fits or not, the largest batch, what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpu_lab import facts, units
from gpu_lab.fit import speed
from gpu_lab.fit.memory import PARTS, Prediction, predict
from gpu_lab.fit.speed import Speed
from gpu_lab.fit.step import Case, Setting
from gpu_lab.records import GpuLabError

FITS, EDGE, NOT = "fits", "on the edge", "does not fit"
MOST_BATCH, LOOKS = 2**20, 24
Change = tuple[str, Setting, str]


def card_bytes(row: facts.Row) -> float:
    """Memory of a card of `data/gpus.csv` in bytes; 0 where it is not known."""
    return float(row["memory_gb"] or 0) * 2**30


def verdict(found: Prediction, memory_bytes: float) -> str:
    """Whether it fits; on the edge when only the allowance decides."""
    low, high = found.need
    return FITS if high <= memory_bytes else NOT if low > memory_bytes else EDGE


def largest_batch(need: Callable[[int], float], limit: float, *, start: int) -> int:
    """Most samples whose need keeps within the limit; 0 for none, MOST_BATCH at most.

    Memory grows in straight pieces, so the line between what fits and what does not
    meets the limit near the answer.
    """
    needs: dict[int, float] = {}
    low, high, batch = 0, MOST_BATCH + 1, start
    for _ in range(LOOKS):
        needs[batch] = need(batch)
        low, high = (batch, high) if needs[batch] <= limit else (low, batch)
        if high - low == 1:
            break
        meets = 4 * low or high / 4
        if low in needs and high in needs:
            share = (limit - needs[low]) / (needs[high] - needs[low])
            meets = low + share * (high - low)
        batch = int(min(max(meets, low + 1), high - 1))
    return low


def changes(case: Case, setting: Setting) -> list[Change]:
    """What may save memory: the name of a change, the setting with it, its cost."""
    found = []
    for given in facts.settings("fit")["changes"]:
        values: dict[str, Any] = dict(given["set"])
        if values.get("accumulate"):
            values["accumulate"] = case.batch
        changed = replace(setting, **values)
        if setting.task in given["tasks"] and changed != setting:
            found.append((given["what"], changed, given["cost"]))
    return found


def change_line(
    case: Case, change: Change, memory_bytes: float, *, before: Prediction
) -> str:
    """What one change leads to and what it costs; why not, when it cannot be made."""
    what, setting, cost = change
    try:
        found = predict(case, setting)
    except GpuLabError as error:
        return f"  with {what}: {error}"
    more = found.flop / before.flop - 1 if before.flop else 0.0
    cost += f", {100 * more:+.0f} % FLOP" if abs(more) >= 0.005 else ""
    need = " to ".join(map(units.memory, found.need))
    return f"  with {what}: {verdict(found, memory_bytes)}, {need}; {cost}"


def lines(
    case: Case, setting: Setting, found: Prediction, *, memory_bytes: float
) -> Iterator[str]:
    """The answer in the first line, the split of the peak, the largest batch.

    Args:
        memory_bytes: what there is; 0 when nobody said.
    """
    limit = memory_bytes
    need, there = " to ".join(map(units.memory, found.need)), units.memory(limit)
    said = f"{verdict(found, limit)}: needs {need}, there are {there}"
    yield said if limit else f"needs {need}"
    for part in (*PARTS, "peak"):
        yield f"  {part:12s} {units.memory(getattr(found, part)):>11s}"
    spare = " to ".join(units.memory(need - found.peak) for need in found.need)
    yield f"  allowance    {spare}: CUDA context, rounding, workspaces (stated)"
    if limit:
        most = largest_batch(
            lambda n: predict(case.of_batch(n), setting).need[1],
            limit,
            start=case.batch,
        )
        yield f"largest batch that fits for sure: {most}"


def speed_lines(
    found: Prediction,
    setting: Setting,
    there: Speed,
    memory_bytes: float,
    *,
    link: facts.Row | None,
) -> Iterator[str]:
    """Seconds of a step, and what a link adds: its inputs, and what has no room."""
    step_s = there.step_s(found.work)
    yield there.sentence(step_s)
    if link and step_s:
        over = max(0.0, found.need[1] - memory_bytes) if memory_bytes else 0.0
        crossing = found.link_bytes + over * facts.settings("fit")["task"][setting.task]
        yield speed.link_line(crossing, step_s, factor=there.factor, link=link)
