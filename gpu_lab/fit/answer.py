"""The answer in words: fits or not, the largest batch, and what would help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from gpu_lab import units
from gpu_lab.fit.memory import Prediction, predict
from gpu_lab.fit.model import Case
from gpu_lab.fit.step import Setting
from gpu_lab.records import GpuLabError

FITS, EDGE, NOT = "fits", "on the edge", "does not fit"
SIZES = {"gib": 2**30, "mib": 2**20, "gb": 10**9, "mb": 10**6}
MOST_BATCH, LOOKS = 2**20, 12
MOST_ACCUMULATION = 64


class Change(NamedTuple):
    """One change of the setting and what it costs besides time."""

    what: str
    setting: Setting
    cost: str


def size_bytes(text: str) -> int:
    """Bytes of "8GiB", "24 GB" or "512MiB".

    Raises:
        GpuLabError: no such size.
    """
    match = re.fullmatch(r"([\d.]+)\s*([kmg]i?b)", text.strip().lower())
    try:
        found = int(float(match[1]) * SIZES[match[2]]) if match else 0
    except (KeyError, ValueError):
        found = 0
    if found < 1:
        raise GpuLabError(f"memory {text!r}; wanted a size such as 8GiB")
    return found


def verdict(found: Prediction, memory_bytes: float) -> str:
    """Whether it fits; on the edge when only the allowance decides."""
    if found.high <= memory_bytes:
        return FITS
    return NOT if found.low > memory_bytes else EDGE


def largest_batch(
    case: Case, setting: Setting, memory_bytes: float, *, known: Prediction
) -> int | None:
    """Most samples that fit for sure; 0 when not even one, None when any number does.

    Memory grows linearly with the batch once activations decide: secants on it.
    """
    needs = {case.batch: known.high}

    def need(batch: int) -> float:
        if batch not in needs:
            needs[batch] = predict(case.of_batch(batch), setting).high
        return needs[batch]

    low, high = 0, MOST_BATCH  # the largest that fits, the smallest that does not
    batch = case.batch
    for _ in range(LOOKS):
        fits = need(batch) <= memory_bytes
        low, high = (max(low, batch), high) if fits else (low, min(high, batch))
        if high - low <= 1:
            break
        batch = min(max(_secant(needs, memory_bytes, batch), low + 1), high - 1)
    return None if low >= MOST_BATCH - 1 else low


def _secant(needs: dict[int, float], limit: float, batch: int) -> int:
    """The batch at which the line through the two nearest needs meets the limit."""
    near = sorted(needs, key=lambda b: abs(needs[b] - limit))[:2]
    first, second = min(near), max(near)
    slope = (needs[second] - needs[first]) / max(second - first, 1)
    if slope <= 0:  # too small to matter yet, or one look so far
        return batch * 2 if needs[batch] <= limit else batch // 2
    return int(first + (limit - needs[first]) / slope)


def options(case: Case, setting: Setting) -> Iterator[Change]:
    """Changes that save memory, each with what it costs besides time."""
    if not setting.trains:
        if setting.precision == "fp32":
            changed = replace(setting, precision="bf16-true")
            yield Change("bf16 weights", changed, "three digits instead of seven")
        return
    if setting.precision == "fp32":
        changed = replace(setting, precision="bf16")
        yield Change("bf16 autocast", changed, "coarser rounding")
    if not setting.checkpoint:
        changed = replace(setting, checkpoint=True)
        yield Change("checkpointing", changed, "blocks run twice")
    if setting.accumulate < case.batch:
        parts = min(MOST_ACCUMULATION, case.batch)
        changed = replace(setting, accumulate=parts)
        yield Change(f"{parts} micro-batches", changed, "BatchNorm sees fewer samples")
    if setting.optimizer != "sgd":
        changed = replace(setting, optimizer="sgd")
        yield Change("plain SGD", changed, "another optimizer, to be tuned again")


def option_line(
    case: Case, change: Change, memory_bytes: float, *, known: Prediction
) -> str:
    """What one change leads to; empty when the module has no place for it."""
    try:
        found = predict(case, change.setting)
    except GpuLabError:
        return ""
    more = found.flop / known.flop - 1 if known.flop else 0.0
    cost = (
        f"{change.cost}; {100 * more:+.0f} % FLOP" if abs(more) > 0.005 else change.cost
    )
    need = f"{units.memory(found.low)} to {units.memory(found.high)}"
    return f"  with {change.what:16s} {verdict(found, memory_bytes)}: {need} ({cost})"


def lines(found: Prediction, memory_bytes: float) -> list[str]:
    """The answer in the first line, then the split of the peak and the allowance."""
    need = f"needs {units.memory(found.low)} to {units.memory(found.high)}"
    if memory_bytes:
        said = verdict(found, memory_bytes)
        need = f"{said}: {need}, there are {units.memory(memory_bytes)}"
    spare = (found.low - found.peak, found.high - found.peak)
    parts = ("parameters", "gradients", "optimizer", "activations", "temporaries")
    return [
        need,
        *(f"  {part:12s} {units.memory(getattr(found, part)):>11s}" for part in parts),
        f"  {'tensors':12s} {units.memory(found.peak):>11s}  at the fullest moment",
        f"  {'allowance':12s} {units.memory(spare[0]):>11s} to {units.memory(spare[1])}"
        ": CUDA context, rounding, workspaces; stated, not measured",
    ]
