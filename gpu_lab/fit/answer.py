"""Fits or not, the largest batch that does, and what may save memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gpu_lab import facts
from gpu_lab.fit.memory import Prediction
from gpu_lab.fit.step import Case, Setting

FITS, EDGE, NOT = "fits", "on the edge", "does not fit"
MOST_BATCH, LOOKS = 2**20, 24


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


def changes(case: Case, setting: Setting) -> Iterator[tuple[str, Setting, str]]:
    """What may save memory: the name of a change, the setting with it, its cost."""
    for given in facts.settings("fit")["changes"]:
        changed = replace(setting, **given["set"])
        if "accumulate" in given["set"]:  # as far as that goes
            changed = replace(changed, accumulate=case.batch)
        if setting.task in given["tasks"] and changed != setting:
            yield given["what"], changed, given["cost"]
