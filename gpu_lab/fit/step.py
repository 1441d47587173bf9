"""Which module is asked about, and one step of it: on fake tensors and on real ones."""

from __future__ import annotations

import functools
import inspect
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_lab import facts
from gpu_lab.records import GpuLabError

IMAGE = "1x3x224x224"  # what the classifiers of torchvision take
DTYPES = {None: "float32", "int": "int64"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A module with the inputs it gets; no weights are loaded for it.

    Attributes:
        make: builds the module, on whatever device or fake mode is active.
        inputs: (sizes, dtype) of each argument; the first size is the batch.
    """

    name: str
    make: Callable[[], Any]
    inputs: tuple[tuple[tuple[int, ...], str], ...]

    @property
    def batch(self) -> int:
        """Samples of one step."""
        return self.inputs[0][0][0]

    def of_batch(self, batch: int, *, one_token: bool = False) -> Case:
        """The same with so many samples; of texts (rows of integers) one position."""
        sized = tuple(
            ((batch, 1) if one_token and kind == "int64" else (batch, *sizes[1:]), kind)
            for sizes, kind in self.inputs
        )
        return replace(self, inputs=sized)

    def tensors(self) -> list[Any]:
        """The inputs, all ones."""
        import torch

        return [torch.ones(s, dtype=getattr(torch, kind)) for s, kind in self.inputs]

    def __str__(self) -> str:
        """Name and sizes, as the user types them."""
        sizes = ",".join("x".join(map(str, s)) for s, _ in self.inputs)
        return f"{self.name} with inputs {sizes}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a module is run; `data/fit.toml` holds the words.

    Attributes:
        task: "train", or without gradients "infer" and "decode" (one token).
        precision: "fp32"; "bf16" or "fp16" by autocast; "bf16-true" weights too.
        accumulate: micro-batches of one step, each with its share of the samples.
        checkpoint: blocks keep their input only and run again in the backward pass.
        loss: "cross-entropy" over the classes of each output, or their "mean".
        on_cpu: the optimizer takes one parameter after the other, and convolutions
            copy, as torch does on a CPU.
    """

    task: str = "train"
    optimizer: str = "adamw"
    precision: str = "fp32"
    accumulate: int = 1
    checkpoint: bool = False
    loss: str = "cross-entropy"
    on_cpu: bool = False

    def __post_init__(self) -> None:
        """Refuse words that nobody knows, naming those that exist."""
        for what in ("task", "optimizer", "precision", "loss"):
            found, known = getattr(self, what), facts.settings("fit")[what]
            if found not in known:
                raise GpuLabError(f"{what} {found!r}; wanted one of {', '.join(known)}")
        if self.accumulate < 1:
            raise GpuLabError(f"accumulate {self.accumulate}; wanted 1 or more")

    @property
    def trains(self) -> bool:
        """True when there are gradients."""
        return self.task == "train"


def load(spec: str, *, inputs: str = "", batch: int | None = None) -> Case:
    """The case that a specification names; the module itself is made later.

    Args:
        spec: "torchvision:NAME" or "FILE.py:NAME", NAME() giving the module.
        inputs: sizes such as "8x3x224x224", several with commas; ":int" for tokens.
        batch: replaces the first size of each input.

    Raises:
        GpuLabError: a specification or inputs that are none, in one line.
    """
    place, _, name = spec.rpartition(":")
    if place != "torchvision" and not place.endswith(".py"):
        raise GpuLabError(f"model {spec!r}; wanted torchvision:NAME or FILE.py:NAME")
    if batch is not None and batch < 1:
        raise GpuLabError(f"batch {batch}; wanted 1 or more")
    inputs = inputs or (IMAGE if place == "torchvision" else "")
    made = functools.partial(_made, place, name)
    case = Case(name=spec, make=made, inputs=tuple(map(_input, inputs.split(","))))
    return case.of_batch(batch) if batch else case


def _input(text: str) -> tuple[tuple[int, ...], str]:
    import torch

    match = re.fullmatch(r"([1-9]\d*(?:x[1-9]\d*)*)(?::(\w+))?", text.strip())
    kind = DTYPES.get(match[2], match[2]) if match else ""
    if not match or not isinstance(getattr(torch, kind, 0), torch.dtype):
        wanted = "sizes such as --input 8x3x224x224, for tokens 8x128:int"
        raise GpuLabError(f"input {text!r}; wanted {wanted}")
    return tuple(map(int, match[1].split("x"))), kind


def _made(place: str, name: str) -> Any:
    """The module; of torchvision's no weights are fetched, not even for a part."""
    if place == "torchvision":
        from torchvision import models

        builder = models.get_model_builder(name)
        known = {"weights", "weights_backbone"} & set(
            inspect.signature(builder).parameters
        )
        return builder(**dict.fromkeys(known))
    sys.path.insert(0, str(Path(place).parent))  # as `python FILE.py` does
    found = runpy.run_path(place)
    if not callable(found.get(name)):
        raise GpuLabError(f"{place}: no function {name!r} in it")
    return found[name]()


def prepared(model: Any, setting: Setting) -> tuple[Any, Any]:
    """The module in its mode and precision, and its optimizer; None if none learns.

    Raises:
        GpuLabError: no module, or one without blocks to checkpoint.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise GpuLabError(f"wanted a torch.nn.Module, found {type(model).__name__}")
    dtype, whole = _precision(setting)
    for t in (*model.parameters(), *model.buffers()) if whole else ():
        if t.is_floating_point():  # fake ones do not take Module.to
            t.data = t.data.to(dtype)
    if setting.checkpoint and setting.trains:
        _checkpoint(model)
    learning = [p for p in model.parameters() if p.requires_grad]
    if not (setting.trains and learning):
        return model.eval(), None
    given = dict(facts.settings("fit")["optimizer"][setting.optimizer])
    make = getattr(torch.optim, given.pop("class"))
    return model.train(), make(learning, lr=1e-3, foreach=not setting.on_cpu, **given)


def _precision(setting: Setting) -> tuple[Any, bool]:
    """Dtype of products, and whether weights and inputs have it too."""
    import torch

    dtype = getattr(torch, facts.settings("fit")["precision"][setting.precision])
    return dtype, setting.precision.endswith("-true")


def micro_step(model: Any, inputs: Sequence[Any], setting: Setting) -> Any:
    """Forward and, when training, backward pass of one micro-batch; its output."""
    import torch

    kind, (dtype, whole) = inputs[0].device.type, _precision(setting)
    cast = dtype != torch.float32 and not whole
    if whole:
        inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    with torch.set_grad_enabled(setting.trains):
        with torch.autocast(kind, dtype=dtype if cast else None, enabled=cast):
            output = model(*inputs)
            if not setting.trains:
                return output
            loss = loss_of(output, setting.loss)
        (loss / setting.accumulate if setting.accumulate > 1 else loss).backward()
    return None


def finish(optimizer: Any) -> None:
    """What ends a step: new parameters, no gradients."""
    if optimizer:
        optimizer.step()
        optimizer.zero_grad()


def loss_of(output: Any, kind: str) -> Any:
    """A loss of all floating-point outputs; one that is a number already stays.

    Cross-entropy: classes are the second size of maps (N, C, H, W), else the last.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    tensors = [t for t in tree_leaves(output) if isinstance(t, torch.Tensor)]
    losses = [_loss(t, kind) for t in tensors if t.is_floating_point()]
    if not losses:
        raise GpuLabError("the model returns no floating-point tensor to train on")
    return sum(losses[1:], losses[0])


def _loss(output: Any, kind: str) -> Any:
    import torch

    if output.ndim < 2 or kind == "mean":
        return output.float().mean() if output.ndim else output
    rows = output if output.ndim == 4 else output.flatten(0, -2)
    classes = torch.zeros_like(rows[:, 0], dtype=torch.int64)
    return torch.nn.functional.cross_entropy(rows, classes)


def blocks(model: Any) -> list[Any]:
    """Parts worth running twice: members of a Sequential or ModuleList with parts."""
    from torch import nn

    lists, found = (nn.Sequential, nn.ModuleList), []
    for child in model.children():
        listed = type(model) in lists and type(child) not in lists
        found += [child] if listed and list(child.children()) else blocks(child)
    return found


def _checkpoint(model: Any) -> None:
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as torchs

    chosen = blocks(model)
    if not chosen:
        raise GpuLabError("nothing to checkpoint: no list of blocks in this model")
    # Random states are kilobytes, and no fake tensor has any.
    wrap = functools.partial(torchs.checkpoint_wrapper, preserve_rng_state=False)
    torchs.apply_activation_checkpointing(model, wrap, lambda part: part in chosen)
