"""What a step does, counted on fake tensors: FLOP and bytes of each operator."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

MATMUL, CONV, DEPTHWISE, ATTENTION = "matmul", "conv", "depthwise", "attention"
MOVE = "move"
KINDS = (MATMUL, CONV, DEPTHWISE, ATTENTION)
LOOK_UPS = {"embedding", "index", "gather", "index_select"}  # read what they give
FREE = ("empty", "new_empty", "_unsafe_view")
BACKWARD_ATTENTION = 2.5  # products, beside the forward pass: five instead of two


class Op(NamedTuple):
    """One operator: what kind, in which dtype, FLOP and bytes read and written."""

    kind: str
    dtype: str
    flop: int
    size_bytes: int


def recorder() -> Any:
    """A mode that counts operators in `.work`, each call `.times` times."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.work, self.times = Counter[Op](), 1

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            written = (
                out
                if out is not None
                else (args[0] if func._schema.is_mutable else None)
            )
            free = func.is_view or func._overloadpacket.__name__.startswith(FREE)
            if not free and (tensors := _tensors(written)):
                one = _op(func._overloadpacket, args, kwargs or {}, tensors)
                self.work[one] += self.times
            return out

    return Recorder()


def _op(packet: Any, args: Any, kwargs: Any, written: list[Any]) -> Op:
    read = written if packet.__name__ in LOOK_UPS else _tensors((args, kwargs))
    kind, flop = _flop(packet, args, kwargs, written)
    dtype = str(written[0].dtype).removeprefix("torch.")
    return Op(kind, dtype, int(flop), sum(map(_bytes, read + written)))


def _tensors(tree: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _bytes(tensor: Any) -> int:
    """Bytes of the elements that exist: an expanded size is stored once."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    stored = math.prod(size for size, stride in pairs if stride)
    return int(stored * tensor.element_size())


def _flop(packet: Any, args: Any, kwargs: Any, out: list[Any]) -> tuple[str, float]:
    """Kind and FLOP; torch's formulas, except where they are missing or wrong."""
    from torch.utils import flop_counter

    name = packet.__name__
    backward = name.endswith("backward")
    if "convolution" in name:  # torch's formula takes no notice of groups
        x, weight = args[1:3] if backward else args[:2]
        y, transposed, groups = (
            (args[0], *args[7:10:2]) if backward else (out[0], *args[6:9:2])
        )
        flop = flop_counter.conv_flop_count(x.shape, weight.shape, y.shape, transposed)
        kind = DEPTHWISE if groups == x.shape[1] > 1 else CONV
        return kind, flop * sum(args[10][:2] if backward else [1])
    if name.startswith("_scaled_dot_product"):
        shapes = (t.shape for t in (args[1:4] if backward else args[:3]))
        factor = BACKWARD_ATTENTION if backward else 1
        return ATTENTION, flop_counter.sdpa_flop_count(*shapes) * factor
    if name.startswith("mkldnn_rnn_layer"):  # input, weights of inputs and of states
        positions = args[0].shape[0] * args[0].shape[1] * (2 if backward else 1)
        return MATMUL, 2 * positions * (args[1].numel() + args[2].numel())
    if packet not in flop_counter.flop_registry:
        return MOVE, 0
    formula = flop_counter.flop_registry[packet]
    return MATMUL, formula(*args, **kwargs, out_val=out[0])
