"""Exercises of notebook 07: eight traces, a step with three faults, Amdahl's guess."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from gpu_lab import facts
from gpu_lab.bench import profiling, shapes
from gpu_lab.exercises.frame import Exercise, Kind, NotYet, require_keys
from gpu_lab.exercises.start_here import matmul_ratio
from gpu_lab.records import Device

CPU = Device(backend="cpu", name="CPU")
BUSY = 0.9  # utilisation that looks like a full device
_stored = functools.partial(facts.settings, "profiling")


@functools.cache
def traces() -> dict[str, shapes.Trace]:
    """Eight seeded traces, SIMULATED: letter -> trace."""
    planted = enumerate(_stored()["traces"].items())
    return {
        k: shapes.simulated(
            k, seed=i, **{n: v for n, v in given.items() if n != "right"}
        )
        for i, (k, given) in planted
    }


def right_shapes() -> dict[str, str]:
    """What the rules say of the eight."""
    return {k: shapes.shape(trace).word for k, trace in traces().items()}


def by_utilisation() -> dict[str, str]:
    """The right words, but for those whom a high utilisation misleads."""
    misled = {k: shapes.utilisation(t) > BUSY for k, t in traces().items()}
    return {k: "compute-bound" if misled[k] else v for k, v in right_shapes().items()}


def check_shapes(answer: Any) -> str:
    """Compare {"a": "starved", …}; hints for usual mistakes."""
    right, hints = right_shapes(), _stored()["hints"]
    require_keys(answer, right)
    if unknown := [k for k in right if answer[k] not in shapes.SHAPES]:
        raise NotYet(f"{', '.join(unknown)}: wanted one of {', '.join(shapes.SHAPES)}")
    if answer == by_utilisation():
        raise NotYet(hints["utilisation"])
    for name, word in right.items():
        if answer[name] != word:
            raise NotYet(f"{name}: {hints[word]}")
    return "eight traces, and three of them are best left alone"


class Kit:
    """What a step works with: batch, scale, weight, and a list for the log."""

    def __init__(self) -> None:
        """The same numbers each time."""
        import torch

        source = torch.Generator().manual_seed(0)
        sizes = ((64, 32), (32,), (32, 8))
        tensors = (torch.randn(*size, generator=source) for size in sizes)
        self.batch, self.scale, self.weight = tensors
        self.log = list[Any]()


def right_step(kit: Kit) -> Any:
    """Whole tensors, no copy, and the log keeps a tensor."""
    hidden = (kit.batch * kit.scale).tanh()
    losses = (hidden @ kit.weight).square().mean(1)
    kit.log.append(losses.sum())
    return losses.mean()


def check_step(answer: Any) -> str:
    """Run the learner's step, compare its result, and name the fault that is left."""
    if not callable(answer):
        raise NotYet("wanted your function, without brackets: answer = my_step")
    kit, wanted = Kit(), float(right_step(Kit()))
    found = float(answer(kit))
    if abs(found - wanted) > 1e-4 * wanted:
        raise NotYet(f"it gives {found:.4f}, wanted the mean loss {wanted:.4f}")
    if not kit.log:
        raise NotYet("nothing was logged: the sum of the losses is wanted there")
    trace = profiling.profiled(functools.partial(answer, kit), device=CPU, steps=1)
    left = []
    for fault in _stored()["faults"]:
        counts = [trace.calls_a_step(name) for name in fault["operators"]]
        left += [fault["hint"]] * (sum(counts) > fault.get("most", 0))
    if left:
        raise NotYet(f"{len(left)} left, the first: {left[0]}")
    return "no copy, no wait and no loop is left, and the result is the same"


EXERCISES = (
    mended := replace(matmul_ratio, name="mended"),
    eight_traces := Exercise("eight_traces", Kind.VALUE, check_shapes, right_shapes),
    mend_step := Exercise("mend_step", Kind.STRUCTURE, check_step, lambda: right_step),
)
