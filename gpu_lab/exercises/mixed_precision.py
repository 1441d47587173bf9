"""Exercises of notebook 04: wrap a step, choose a scale, say who gains."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

from gpu_lab import facts
from gpu_lab.bench import amp, simulated_kernels
from gpu_lab.compare import paired
from gpu_lab.exercises.frame import Exercise, Kind, NotMeasurable, NotYet, require_keys
from gpu_lab.exercises.start_here import matmul_ratio
from gpu_lab.plot.gradients import HIGHEST, LOWEST
from gpu_lab.records import Device, Measurement, Settings, Verdict
from gpu_lab.timing import SimulatedGpu

WATCHED = ("scale", "unscale_", "update", "step", "clip")
SHAPES = ("small", "middle", "large")
SMALL: Settings = {"mode": "float16", "channels_last": False, "batch": 32, "seed": 0}
Pairs = dict[str, list[Measurement]]
_stored = functools.partial(facts.settings, "mixed_precision")


class Kit:
    """A small training on the CPU, which writes down what one step does with it."""

    def __init__(self, dtype: str) -> None:
        """In the middle of a training: gradients of the step before are still there."""
        import torch

        training = amp.untrained("mlp", Device(backend="cpu", name="CPU"), SMALL)
        self.dtype, self.log = getattr(torch, dtype), list[str]()
        self.model, self.x, self.y = training.network, training.inputs, training.labels
        self.optimizer, self.scaler = training.optimizer, training.scaler
        self.loss, self.clip = (
            torch.nn.CrossEntropyLoss(),
            torch.nn.utils.clip_grad_norm_,
        )
        training.backward()
        for layer in (self.model[0], self.loss):
            layer.register_forward_hook(self._saw)
        owners = (self.scaler, self.scaler, self.scaler, self.optimizer, self)
        for name, owner in zip(WATCHED, owners, strict=True):
            call = functools.partial(self._call, name, getattr(owner, name))
            setattr(owner, name, call)

    def _call(self, name: str, call: Any, *given: Any, **named: Any) -> Any:
        self.log.append(name)
        return call(*given, **named)

    def _saw(self, module: Any, given: Any, result: Any) -> None:
        self.log.append(f"{type(module).__name__} {str(result.dtype)[6:]}")
        if module is self.loss:
            result.register_hook(self._backward)

    def _backward(self, gradient: Any) -> None:
        import torch

        left = [p.grad for p in self.model.parameters() if p.grad is not None]
        inside = "inside" if torch.is_autocast_enabled("cpu") else "outside"
        self.log.append(f"backward {'stale' if any(g.any() for g in left) else inside}")


def right_step(kit: Kit) -> None:
    """Forward and loss inside autocast, the rest outside; scaled only in float16."""
    import torch

    off = torch.amp.GradScaler("cpu", enabled=False)
    scaler = kit.scaler if kit.dtype == torch.float16 else off
    kit.optimizer.zero_grad()
    with torch.autocast("cpu", kit.dtype):
        loss = kit.loss(kit.model(kit.x), kit.y)
    scaler.scale(loss).backward()
    scaler.unscale_(kit.optimizer)
    kit.clip(kit.model.parameters(), 1.0)
    scaler.step(kit.optimizer)
    scaler.update()


def check_step(answer: Any) -> str:
    """Run the learner's step in both half types and name the first fault."""
    if not callable(answer):
        raise NotYet("wanted your function, without brackets: answer = my_step")
    for dtype in amp.HALVES:
        kit, rules = Kit(dtype), _stored()["step"]
        answer(kit)
        for right, found in itertools.zip_longest(rules[dtype], kit.log, fillvalue=""):
            if right != found:
                why = rules["found"].get(f"{right} > {found}", rules["missing"][right])
                raise NotYet(f"{dtype}: {why}")
    return "layers in half, loss in float32, backward outside, scaler where needed"


def right_scales() -> dict[str, float | str]:
    """Smallest power of two that keeps all but 1 in 1000; "bf16" if none is safe."""
    return {name: net["right"] for name, net in _stored()["nets"].items()}


def check_scales(answer: Any) -> str:
    """Compare {"a": 8192, …}; says what would happen with a wrong scale."""
    require_keys(answer, right_scales())
    for name, right in right_scales().items():
        if answer[name] != right:
            raise NotYet(f"{name}: {_why_not(answer[name], **_stored()['nets'][name])}")
    return "three networks are safe, and one of them needs bfloat16"


def _why_not(given: Any, *, thousandth: int, largest: int, **_: Any) -> str:
    """What happens with that scale."""
    kind = "needless" if given == "bf16" else "number"
    if type(given) in (int, float) and given >= 1:
        kind = "small" if given * 2.0**thousandth < 2.0**LOWEST else "safe"
        kind = "large" if given * 2.0**largest >= 2.0 ** (HIGHEST + 1) else kind
    return str(_stored()["scale"][kind])


def simulated_pairs() -> Pairs:
    """Kernels of three shapes in a whole and in a half type, SIMULATED."""
    planted = _stored()["kernels_s"].items()
    return {k: simulated_kernels(v, gpu=SimulatedGpu(seed=0)) for k, v in planted}


def right_gains(pairs: Pairs | None = None) -> dict[str, str]:
    """Shape -> "yes" where the half type is faster, else "no"; "" is not comparable.

    Without rows: of SIMULATED ones.
    """
    pairs, words = (
        pairs or simulated_pairs(),
        {Verdict.FASTER: "yes", Verdict.NOT_COMPARABLE: ""},
    )
    return {k: words.get(paired(*pair).verdict, "no") for k, pair in pairs.items()}


def check_gains(answer: Any, *, pairs: Pairs | None = None) -> str:
    """Compare {"small": "no", …} with the verdicts of this session."""
    require_keys(answer, SHAPES)
    right = right_gains(pairs)
    if "" in right.values():
        raise NotMeasurable("one of the shapes could not be compared in this session")
    wrong = [shape for shape in right if answer[shape] != right[shape]]
    if wrong:
        raise NotYet(f'"yes" or "no": read the verdict again of {", ".join(wrong)}')
    return "whether a half type gains is a matter of the shape, and of your device"


gains = {shape: replace(matmul_ratio, name=f"gain_{shape}") for shape in SHAPES}
EXERCISES = (
    *gains.values(),
    wrap_step := Exercise("wrap_step", Kind.STRUCTURE, check_step, lambda: right_step),
    safe_scale := Exercise("safe_scale", Kind.VALUE, check_scales, right_scales),
    who_gains := Exercise("who_gains", Kind.RATIO, check_gains, right_gains),
)
