"""Which module is asked about: `torchvision:resnet50` or `my_model.py:make_model`."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpu_lab.records import GpuLabError, first_line

IMAGE = "1x3x224x224"  # what the classifiers of torchvision take
DTYPES = {"": "float32", "float": "float32", "int": "int64"}
INPUT = re.compile(r"(\d+(?:x\d+)*)(?::(\w*))?")


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

    def of_batch(self, batch: int) -> Case:
        """The same module with another number of samples."""
        sized = tuple(((batch, *sizes[1:]), kind) for sizes, kind in self.inputs)
        return replace(self, inputs=sized)

    def one_token(self) -> Case:
        """The same module with one position of each sequence: a step of decoding."""
        sized = tuple(
            ((s[0], 1, *s[2:]) if kind == "int64" and len(s) > 1 else s, kind)
            for s, kind in self.inputs
        )
        return replace(self, inputs=sized)

    def described(self) -> str:
        """Sizes of the inputs as the user types them."""
        return ",".join("x".join(map(str, sizes)) for sizes, _ in self.inputs)

    def tensors(self) -> list[Any]:
        """The inputs: random floats, and small integers that any table has."""
        import torch

        return [
            torch.randn(sizes, dtype=getattr(torch, kind))
            if getattr(torch, kind).is_floating_point
            else torch.randint(2, sizes, dtype=getattr(torch, kind))
            for sizes, kind in self.inputs
        ]


def load(spec: str, *, inputs: str = "", batch: int | None = None) -> Case:
    """The case that a specification names.

    Args:
        spec: "torchvision:NAME" or "FILE.py:NAME", NAME() giving the module.
        inputs: sizes such as "8x3x224x224", several with commas; ":int" for tokens.
        batch: replaces the first size of each input.

    Raises:
        GpuLabError: no such module or inputs that are none, in one line.
    """
    place, _, name = spec.rpartition(":")
    if place == "torchvision":
        make, inputs = _from_torchvision(name), inputs or IMAGE
    elif place.endswith(".py"):
        make = _from_file(Path(place), name)
    else:
        raise GpuLabError(
            f"model {spec!r}; wanted torchvision:NAME or FILE.py:FUNCTION"
        )
    if not inputs:
        raise GpuLabError(f"{spec}: its inputs are not known; try --input 8x3x224x224")
    case = Case(name=spec, make=make, inputs=parse_inputs(inputs))
    if batch is None:
        return case
    if batch < 1:
        raise GpuLabError(f"batch {batch}; wanted 1 or more")
    return case.of_batch(batch)


def parse_inputs(text: str) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Sizes and dtypes of "8x3x224x224" or "8x128:int,8x128:int".

    Raises:
        GpuLabError: a part that is not sizes, or a dtype that torch does not have.
    """
    import torch

    found = []
    for part in text.split(","):
        match = INPUT.fullmatch(part.strip())
        sizes = tuple(map(int, match[1].split("x"))) if match else (0,)
        kind = (match[2] or "") if match else ""
        kind = DTYPES.get(kind, kind)
        if min(sizes) < 1 or not isinstance(getattr(torch, kind, None), torch.dtype):
            raise GpuLabError(
                f"input {part!r}; wanted sizes above 0 such as 8x3x224x224, for tokens "
                "8x128:int"
            )
        found.append((sizes, kind))
    return tuple(found)


def _from_torchvision(name: str) -> Callable[[], Any]:
    """A builder of torchvision's, told to fetch no weights at all."""
    from torchvision import models

    known = models.list_models()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3) or known[:3]
        raise GpuLabError(f"no model {name!r} in torchvision; near: {', '.join(near)}")
    builder = models.get_model_builder(name)
    given = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        given["weights_backbone"] = None
    return lambda: _quietly(builder, **given)


def _from_file(path: Path, name: str) -> Callable[[], Any]:
    if not path.is_file():
        raise GpuLabError(f"{path}: no such file; wanted FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise GpuLabError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GpuLabError(f"{path}: {_named(error)}") from error
    make = getattr(module, name, None)
    if not callable(make):
        there = ", ".join(k for k in vars(module) if not k.startswith("_")) or "nothing"
        raise GpuLabError(f"{path}: no function {name!r}; found: {there}")
    return lambda: _quietly(make)


def _quietly(make: Callable[..., Any], **given: Any) -> Any:
    """The module that a builder returns, without its advice on weights."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make(**given)
    if not isinstance(module, torch.nn.Module):
        found = type(module).__name__
        raise GpuLabError(f"wanted a function that returns a Module, found {found}")
    return module


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
