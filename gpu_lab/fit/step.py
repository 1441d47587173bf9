"""One step of any module: the same lines on fake tensors and on real ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpu_lab.records import GpuLabError

# Word -> class of torch.optim and its arguments.
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "rmsprop": ("RMSprop", {}),
    "adafactor": ("Adafactor", {}),
}
# Word -> dtype of autocast; "…-true" also keeps the weights in it.
PRECISIONS = {
    "fp32": "",
    "bf16": "bfloat16",
    "fp16": "float16",
    "bf16-true": "bfloat16",
    "fp16-true": "float16",
}
TASKS = ("train", "infer", "decode")
LOSSES = ("cross-entropy", "mean")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a module is run.

    Attributes:
        task: "train", or without gradients "infer" and "decode" (one token).
        precision: "fp32"; "bf16" or "fp16" by autocast; "bf16-true" weights too.
        accumulate: micro-batches of one step, each with its share of the samples.
        checkpoint: blocks keep their input only and run again in the backward pass.
        loss: "cross-entropy" over the classes of each output, or their "mean".
        foreach: the optimizer takes all parameters at once, as torch does on a GPU.
    """

    task: str = "train"
    optimizer: str = "adamw"
    precision: str = "fp32"
    accumulate: int = 1
    checkpoint: bool = False
    loss: str = "cross-entropy"
    foreach: bool = True

    def __post_init__(self) -> None:
        """Refuse words that nobody knows, naming those that exist."""
        for what, known in (
            ("task", TASKS),
            ("optimizer", tuple(OPTIMIZERS)),
            ("precision", tuple(PRECISIONS)),
            ("loss", LOSSES),
        ):
            if getattr(self, what) not in known:
                raise GpuLabError(
                    f"{what} {getattr(self, what)!r}; wanted one of {', '.join(known)}"
                )
        if self.accumulate < 1:
            raise GpuLabError(f"accumulate {self.accumulate}; wanted 1 or more")

    @property
    def trains(self) -> bool:
        """True when there are gradients."""
        return self.task == "train"

    @property
    def cast(self) -> str:
        """Dtype that inputs and weights are converted to; "" for none."""
        true = self.precision.endswith("-true")
        return PRECISIONS[self.precision] if true else ""


def prepared(model: Any, setting: Setting) -> Any:
    """The module in its mode and precision, its blocks wrapped where asked."""
    import torch

    if setting.cast:
        model = model.to(getattr(torch, setting.cast))
    if not setting.trains:
        return model.eval()
    if setting.checkpoint:
        _checkpoint(model)
    return model.train()


def optimizer_of(model: Any, setting: Setting) -> Any:
    """The optimizer over all parameters that learn; None without training."""
    import torch

    learning = [p for p in model.parameters() if p.requires_grad]
    if not (setting.trains and learning):
        return None
    name, given = OPTIMIZERS[setting.optimizer]
    make = getattr(torch.optim, name)
    return make(learning, lr=1e-3, foreach=setting.foreach, **given)


def micro_step(model: Any, inputs: Sequence[Any], setting: Setting) -> Any:
    """Forward and, when training, backward pass of one micro-batch; its output."""
    import torch

    if setting.cast:
        kind = getattr(torch, setting.cast)
        inputs = [t.to(kind) if t.is_floating_point() else t for t in inputs]
    with torch.set_grad_enabled(setting.trains):
        with _autocast(setting, inputs[0].device.type):
            output = model(*inputs)
            if not setting.trains:
                return output
            loss = loss_of(output, setting.loss)
        (loss / setting.accumulate if setting.accumulate > 1 else loss).backward()
    return None


@contextmanager
def _autocast(setting: Setting, device_type: str) -> Iterator[None]:
    import torch

    name = "" if setting.cast else PRECISIONS[setting.precision]
    kind = getattr(torch, name) if name else None
    with torch.autocast(device_type, dtype=kind, enabled=bool(name)):
        yield


def loss_of(output: Any, kind: str) -> Any:
    """A loss of all floating-point outputs; one that is a number already stays.

    Cross-entropy: classes are the second size of maps (N, C, H, W), else the last.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = [t for t in tree_leaves(output) if isinstance(t, torch.Tensor)]
    parts = [_loss(t, kind) for t in tensors if t.is_floating_point()]
    if not parts:
        raise GpuLabError("the model returns no floating-point tensor to train on")
    return sum(parts[1:], parts[0])


def _loss(output: Any, kind: str) -> Any:
    import torch
    from torch.nn import functional

    if output.ndim == 0:
        return output
    if kind == "mean" or output.ndim == 1:
        return output.float().mean()
    rows = output if output.ndim == 4 else output.flatten(0, -2)
    targets = torch.zeros(
        (rows.shape[0], *rows.shape[2:]), dtype=torch.int64, device=rows.device
    )
    return functional.cross_entropy(rows, targets)


def blocks(model: Any) -> list[Any]:
    """Parts worth running twice: members of a Sequential or ModuleList with parts."""
    from torch import nn

    lists, found = (nn.Sequential, nn.ModuleList), []
    for child in model.children():
        listed = type(model) in lists and type(child) not in lists
        whole = listed and any(True for _ in child.children())
        found += [child] if whole else blocks(child)
    return found


def _checkpoint(model: Any) -> None:
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapper

    chosen = {id(block) for block in blocks(model)}
    if not chosen:
        raise GpuLabError("nothing to checkpoint: no list of blocks in this model")
    wrapper.apply_activation_checkpointing(
        model,
        # Random states are kilobytes, and fake tensors have none.
        lambda m: wrapper.checkpoint_wrapper(m, preserve_rng_state=False),
        check_fn=lambda m: id(m) in chosen,
    )
