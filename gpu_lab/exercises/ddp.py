"""Exercises of notebook 06: bytes of a step, three training logs, a second device."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from gpu_lab import facts
from gpu_lab.exercises.frame import Exercise, Kind, NotYet, require_keys
from gpu_lab.show import Table

MICRO_BATCHES, SAMPLES, RANKS = 4, 12, 2
NO_FAULT = "no fault"
_stored = functools.partial(facts.settings, "ddp")


def layers() -> Table:
    """The network of the exercise: what learns, and what does not."""
    pairs = list(pairwise(_stored()["plan"]["messages"]["widths"]))
    rows = [
        (str(i), str(a), str(b), "yes" if i else "no, frozen")
        for i, (a, b) in enumerate(pairs)
    ]
    return Table(rows, ("linear layer, with bias", "inputs", "outputs", "learns"))


def right_bytes() -> dict[str, float]:
    """Bytes reduced for each step in two dtypes, and for each of four micro-batches."""
    numbers = _numbers()
    micro = 4 * numbers / MICRO_BATCHES
    return {"float32": 4 * numbers, "float16": 2 * numbers, "micro-batch": micro}


def _numbers(*, first: int = 1, bias: int = 1) -> int:
    """Numbers of the layers from `first` on."""
    pairs = list(pairwise(_stored()["plan"]["messages"]["widths"]))
    return int(sum(a * b + bias * b for a, b in pairs[first:]))


def counted(messages: Mapping[str, Any]) -> dict[str, float]:
    """The same three numbers as a hook has counted them."""
    whole, half, micro = (
        sum(messages[way][1]) for way in ("one bucket", "float16", "no_sync")
    )
    return {"float32": whole, "float16": half, "micro-batch": micro / MICRO_BATCHES}


def check_bytes(answer: Any, *, messages: Mapping[str, Any] | None = None) -> str:
    """Compare {"float32": bytes, …} with the hook's count; hints for usual slips."""
    right = counted(messages) if messages else right_bytes()
    require_keys(answer, right)
    hints = _stored()["hints"]
    slips = {float(k) * right["float32"]: v for k, v in _stored()["slips"].items()}
    slips[4 * _numbers(first=0)] = hints["frozen"]
    slips[4 * _numbers(bias=0)] = hints["bias"]
    said = {name: float(answer[name]) for name in right}
    for wrong, hint in slips.items():
        if math.isclose(said["float32"], wrong):
            raise NotYet(hint)
    for name, hint in zip(right, ("float32", "float16", "micro"), strict=True):
        if not math.isclose(said[name], right[name]):
            raise NotYet(hints[hint])
    return f"as the hook counted: {right['float32']:.0f} bytes a step"


def log(name: str) -> Table:
    """A training log with a planted fault: what each rank read, and what was checked.

    Two ranks, twelve samples, two epochs; the samples come from PyTorch's sampler.
    """
    from torch.utils.data import DistributedSampler

    fault, rows = _stored()["logs"][name], []
    for epoch in range(2):
        for rank in range(RANKS):
            mine = 0 if fault == _stored()["logs"]["a"] else rank
            given: Any = range(SAMPLES)
            sampler: Any = DistributedSampler(given, RANKS, mine, seed=SAMPLES)
            sampler.set_epoch(0 if fault == _stored()["logs"]["c"] else epoch)
            alone = fault == _stored()["logs"]["b"]
            checked = SAMPLES // RANKS if alone else SAMPLES
            of = f"{checked} of {SAMPLES}" if rank == 0 else "reported by rank 0"
            rows.append((str(epoch), str(rank), " ".join(map(str, sampler)), of))
    return Table(rows, ("epoch", "rank", "samples read", "accuracy on"), f"log {name}")


def check_logs(answer: Any) -> str:
    """Compare {"a": "no sampler epoch", …}; a hint for the first wrong one."""
    right, words = _stored()["logs"], [*_stored()["logs"].values(), NO_FAULT]
    require_keys(answer, right)
    unknown = [name for name in right if answer[name] not in words]
    if unknown:
        raise NotYet(f"{', '.join(unknown)}: wanted one of {', '.join(sorted(words))}")
    if NO_FAULT in answer.values():
        raise NotYet("each of the three has a fault, although all three ran to the end")
    wrong = [name for name in right if answer[name] != right[name]]
    if wrong:
        raise NotYet(f"{wrong[0]}: {_stored()['log_hints'][wrong[0]]}")
    return "three runs that ended without an error, and three faults"


def _note(answer: Any) -> str:
    raise NotYet("a prediction is made with .predict(guess)")


EXERCISES = (
    message_mb := Exercise("message_mb", Kind.PREDICTION, _note, unit="MB"),
    second_device := Exercise("second_device", Kind.PREDICTION, _note, unit="%"),
    step_bytes := Exercise("step_bytes", Kind.STRUCTURE, check_bytes, right_bytes),
    three_logs := Exercise(
        "three_logs", Kind.VALUE, check_logs, lambda: dict(_stored()["logs"])
    ),
)
