"""One training step in each precision: its speed, its memory, its loss."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from gpu_lab.bench.matmul import fp32_precision, missing
from gpu_lab.bench.rows import WrongResult
from gpu_lab.records import Device, Settings
from gpu_lab.timing import Arm, Plan, measure

METHOD_VERSION = 1
HALVES = ("float16", "bfloat16")
MODES = ("float32", "tf32", *HALVES)
CLASSES, PIXELS, TOKENS, HEADS, BLOCKS = 10, 32, 16, 4, 2
# Channels or features of a CPU and of a GPU: multiples of 8, as tensor cores want.
WIDTHS = {"cnn": (32, 128), "transformer": (256, 1024), "mlp": (64, 64), "toy": (8, 8)}
LINEAR_LAYERS = {"mlp": 2, "toy": 16}  # and one more to the classes
TOY_BATCH = 4
BATCHES = ((1, 2, 4, 8, 16), (8, 16, 32, 64, 128, 256))  # of a CPU and of a GPU
# bfloat16 has 8 bits: the loss of an untrained network agrees to a few of them.
LOSS_TOLERANCE = 0.05
FP16_ON_CPU = "needs a GPU: on most CPUs float16 convolutions and attention crawl"
ONE_CALL = Plan(budget_s=1e-9)  # used up by the first call
COUNTS_MEMORY = ("cuda", "rocm", "xpu")


@dataclass(frozen=True)
class Training:
    """A network with a batch, an optimizer and a scaler, in one precision."""

    network: Any
    inputs: Any
    labels: Any
    optimizer: Any
    scaler: Any
    mode: str
    weight: float = 1.0  # of the loss

    def loss(self) -> Any:
        """Forward pass and loss: the part that autocast is wrapped around."""
        import torch

        half = getattr(torch, self.mode) if self.mode in HALVES else None
        with torch.autocast(self.inputs.device.type, half, enabled=bool(half)):
            scores = self.network(self.inputs)
            loss = torch.nn.functional.cross_entropy(scores, self.labels)
        return loss * self.weight

    def backward(self) -> None:
        """New gradients, of the scaled loss where the scaler is on."""
        self.optimizer.zero_grad()
        self.scaler.scale(self.loss()).backward()

    def step(self) -> None:
        """The whole step of a training; unscaled where the scaler is on."""
        self.backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


def step_arm(
    model: str,
    *,
    device: Device,
    mode: str = "float32",
    channels_last: bool = False,
    batch: int = 8,
    seed: int = 0,
) -> Arm:
    """One training step: zero_grad, forward, loss, backward, optimizer step.

    Inside the clock: the whole step, with the scaler's look at the gradients, which
    waits for the device; so the host times it. Outside: data, the first steps.

    Args:
        model: "cnn", "transformer", "mlp" (linear layers alone), or "toy", which is
            bound by launches.
        mode: "float32" (TF32 off), "tf32", "float16" (autocast and a scaler) or
            "bfloat16" (autocast alone).
        channels_last: order of images in memory; only the cnn has any.
        batch: samples a step; the toy has its own.

    Returns:
        Arm with `work` in samples and, in `observed`, the bytes that autograd keeps
        for the backward pass (`saved_bytes`, exact) and, where the device counts
        them, the most bytes allocated in a step (`peak_bytes`).

    Raises:
        ValueError: unknown model or mode.
        WrongResult: the loss differs from that in float32.
    """
    if model not in WIDTHS or mode not in MODES:
        wanted = ", ".join((*WIDTHS, *MODES))
        raise ValueError(f"wanted of {wanted}, found {model!r} and {mode!r}")
    name = f"{model}_{mode}{'_channels_last' * channels_last}"
    reason = missing(device, mode)
    if mode == "float16" and model not in LINEAR_LAYERS and not device.is_real_gpu:
        reason = FP16_ON_CPU
    if reason:
        return Arm(name=name, reason=reason)
    settings: Settings = {"mode": mode, "channels_last": channels_last, "seed": seed}
    settings["batch"] = TOY_BATCH if model == "toy" else batch
    before = _bytes(device, "memory_allocated")
    training = untrained(model, device, settings)
    _require_right(training, name)
    observed: Settings = {"saved_bytes": saved_bytes(training)}
    step = training.step
    if device.is_real_gpu and device.backend == "cuda":
        step = fp32_precision("tf32" if mode == "tf32" else "ieee")(step)
    _bytes(device, "reset_peak_memory_stats")
    step()
    if peak := _bytes(device, "max_memory_allocated"):
        observed["peak_bytes"] = peak - before
    given: dict[str, Any] = {"work": float(settings["batch"]), "work_unit": "sample"}
    given |= {"version": METHOD_VERSION, "settings": settings, "observed": observed}
    return Arm(name=name, calls=(step,), queued=False, **given)


def fitting_batch(model: str, *, device: Device, plan: Plan, seed: int = 0) -> int:
    """Largest batch with which all precisions of a model get their rounds in time.

    A CPU without units for a half type is a hundred times slower in it; then the same
    comparison is made with less work. One step each is timed, batch after batch.
    """
    fits, *larger = BATCHES[device.is_real_gpu]
    # Must fit: 12 rounds and what comes before them, also when a neighbour wakes up;
    # the cnn has two layouts.
    rounds = 48 if model == "cnn" else 24
    for batch in (fits, *larger):
        given: dict[str, Any] = {"device": device, "batch": batch, "seed": seed}
        arms = [step_arm(model, mode=mode, **given) for mode in MODES]
        timed = [measure(a, device=device, plan=ONE_CALL) for a in arms if not a.reason]
        if sum(t.times_s[0] for t in timed) * rounds > plan.budget_s:
            break
        fits = batch
    return fits


def saved_bytes(training: Training) -> int:
    """Bytes that autograd keeps from the forward to the backward pass: exact.

    Counted by hooks, each storage once; the weights themselves are there anyway.
    """
    import torch

    own = {p.untyped_storage().data_ptr() for p in training.network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        graph = training.loss()  # while it lives, no address is used twice
    return sum(size for at, size in kept.items() if at not in own) if graph else 0


def untrained(model: str, device: Device, settings: Settings) -> Training:
    """The same weights and batch for a seed, whatever the precision."""
    import torch

    where, mode = torch.device(device.torch_name), str(settings["mode"])
    orders = (torch.preserve_format, torch.channels_last)
    order = orders[bool(settings["channels_last"])]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(settings["seed"]))
        network, shape = _network(model, WIDTHS[model][device.is_real_gpu])
        inputs = torch.randn(int(settings["batch"]), *shape)
    network = network.to(where, memory_format=order)
    inputs = inputs.to(where, memory_format=order)
    labels = torch.arange(len(inputs), device=where) % CLASSES
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(where.type, enabled=mode == "float16")
    return Training(network, inputs, labels, optimizer, scaler, mode)


def _network(model: str, width: int) -> tuple[Any, tuple[int, ...]]:
    """An untrained network, and the shape of one sample."""
    from torch import nn

    layers: list[nn.Module] = []
    if model in LINEAR_LAYERS:
        for _ in range(LINEAR_LAYERS[model]):
            layers += [nn.Linear(width, width), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, CLASSES)), (width,)
    if model == "cnn":
        for here, there in itertools.pairwise((3, width, width, 2 * width)):
            layers += [nn.Conv2d(here, there, 3, stride=1 + (here > 3), padding=1)]
            layers += [nn.BatchNorm2d(there), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        head, shape = nn.Linear(2 * width, CLASSES), (3, PIXELS, PIXELS)
        return nn.Sequential(*layers, head), shape
    for _ in range(BLOCKS):
        layers += [
            nn.TransformerEncoderLayer(width, HEADS, 4 * width, 0.0, batch_first=True)
        ]
    head = nn.Linear(TOKENS * width, CLASSES)
    return nn.Sequential(*layers, nn.Flatten(), head), (TOKENS, width)


def _require_right(training: Training, name: str) -> None:
    """Content before speed: the first loss is that of float32, but for its bits."""
    found = training.loss().item()
    right = replace(training, mode="float32").loss().item()
    if not abs(found - right) <= LOSS_TOLERANCE * abs(right):  # also true for NaN
        words = f"loss {found:.4g}, in float32 {right:.4g}; its speed is not shown"
        raise WrongResult(f"{name}: {words}")


def _bytes(device: Device, what: str) -> int:
    """What `torch.accelerator` says of its memory; 0 where it does not count."""
    import torch

    if device.simulated or device.backend not in COUNTS_MEMORY:
        return 0
    asked = getattr(torch.accelerator, what)
    return int(asked(torch.device(device.torch_name)) or 0)
