"""What few bits do to a training: lost gradients, the scaler, autocast's list.

All of it is exact and seeded, on any device: nothing here is timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_lab.bench.amp import CLASSES, untrained
from gpu_lab.records import Device, Settings

SCALE = 2.0**16  # where GradScaler begins
TINY = 2.0**-20  # stands for a small weight of a loss term
POINTS, STEPS = 256, 60
Trace = list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a short training of a small network came to.

    Attributes:
        zero_share: of the gradients of the first step, those that are zero although
            in float32 they are not.
        exponents: how many of the first gradients in float32 lie from 2**e to
            2**(e + 1), by e.
        moved: whether any weight is another one than before the training.
        accuracy: share of right answers on the training data, in the end.
    """

    zero_share: float
    exponents: dict[int, int]
    moved: bool
    accuracy: float


def train(
    dtype: str = "float32",
    *,
    device: Device,
    scaled: bool = False,
    weight: float = TINY,
    seed: int = 0,
) -> Outcome:
    """Train a small network of linear layers on seeded points, in about a second.

    Args:
        dtype: of autocast; "float32" = without.
        scaled: with a GradScaler.
        weight: the loss is multiplied by it.
    """
    import torch

    given: Settings = {"mode": dtype, "channels_last": False}
    training = untrained("mlp", device, given | {"batch": POINTS, "seed": seed})
    points, vector = training.inputs, torch.nn.utils.parameters_to_vector
    parameters = list(training.network.parameters())
    training = replace(
        training,
        labels=points[:, :CLASSES].argmax(1),  # the largest of the first ten features
        optimizer=torch.optim.Adam(parameters, lr=1e-2, eps=1e-16),
        scaler=torch.amp.GradScaler(points.device.type, SCALE, enabled=scaled),
        weight=weight,
    )
    start, no_scaler = vector(parameters), torch.amp.GradScaler(enabled=False)
    replace(training, mode="float32", scaler=no_scaler).backward()
    exact = vector(p.grad for p in parameters)
    _, above = torch.frexp(exact[exact != 0].abs())  # below 2**above, at least half
    training.backward()
    zero = vector(p.grad for p in parameters)[exact != 0] == 0
    for _ in range(STEPS):
        training.step()
    right = training.network(points).argmax(1) == training.labels
    return Outcome(
        zero_share=float(zero.float().mean()),
        exponents=dict(sorted(Counter((above - 1).tolist()).items())),
        moved=not torch.equal(start, vector(parameters)),
        accuracy=float(right.float().mean()),
    )


def scaler_trace(gradients: Sequence[float], *, device: Device) -> Trace:
    """Scale and weight after each step with these gradients; inf is an overflow.

    This scaler grows after three good steps; by default it waits for two thousand.
    """
    import torch

    where = torch.device(device.torch_name)
    weight = torch.zeros(1, device=where, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler(where.type, SCALE, growth_interval=3)
    trace = []
    for gradient in gradients:
        optimizer.zero_grad()
        scaler.scale((weight * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        trace.append((scaler.get_scale(), weight.item()))
    return trace


def op_table(*, device: Device, dtype: str = "bfloat16") -> dict[str, tuple[str, str]]:
    """Operation -> dtype that came in and dtype that went out, under autocast.

    Forward hooks see it; the list of a CPU differs from that of a GPU. The layers
    after the first one are given its result, which is in the half type.
    """
    import torch

    nn, where, seen = torch.nn, torch.device(device.torch_name), {}

    def note(module: Any, given: Any, result: Any) -> None:
        seen[type(module).__name__] = (str(given[0].dtype)[6:], str(result.dtype)[6:])

    layers = [nn.Linear(8, 8), nn.Conv1d(8, 8, 1), nn.GELU(), nn.LayerNorm(8)]
    layers += [nn.Softmax(dim=-1), nn.CrossEntropyLoss(), nn.MSELoss()]
    for module in layers:
        module.to(where).register_forward_hook(note)
    with torch.autocast(where.type, getattr(torch, dtype)):
        hidden = layers[0](torch.ones(8, 8, device=where))
        for layer in layers[1:]:
            wanted = (torch.zeros_like(hidden),) if "Loss" in str(layer) else ()
            layer(hidden, *wanted)
    return seen
