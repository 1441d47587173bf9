"""What a step does, counted on fake tensors: FLOP and bytes of each operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

MATMUL, CONV, MOVE = "matmul", "conv", "move"
LOOK_UPS = {"embedding", "index", "gather", "index_select"}  # read what they give
BACKWARD_ATTENTION = 2.5  # products, beside the forward pass: five instead of two


class Op(NamedTuple):
    """One operator: what kind, in which dtype, FLOP and bytes read and written."""

    kind: str
    dtype: str
    flop: int
    size_bytes: int


def recorder() -> Any:
    """A mode that counts operators: `.work`, each call `.times` times."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.work: Counter[Op] = Counter()
            self.times = 1.0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if not _is_free(func):
                self.work[_op(func, args, kwargs or {}, out)] += self.times  # type: ignore[assignment]
            return out

    return Recorder()


def _is_free(func: Any) -> bool:
    """Views and fresh memory: nothing is read or written."""
    name = func._overloadpacket.__name__
    return bool(func.is_view) or name.startswith(("empty", "new_empty", "_unsafe_view"))


def _op(func: Any, args: Any, kwargs: Any, out: Any) -> Op:
    read, written = list(_tensors((args, kwargs))), list(_tensors(out))
    if func._overloadpacket.__name__ in LOOK_UPS:
        read = written
    kind, flop = _flop(func, args, kwargs, out)
    dtype = next((str(t.dtype) for t in written), "torch.float32")
    size_bytes = sum(_bytes(t) for t in read) + sum(_bytes(t) for t in written)
    return Op(kind, dtype.removeprefix("torch."), flop, size_bytes)


def _tensors(tree: Any) -> Iterable[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return (t for t in tree_leaves(tree) if isinstance(t, torch.Tensor))


def _bytes(tensor: Any) -> int:
    """Bytes of the elements that exist: an expanded size is stored once."""
    items = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        items *= size if stride else 1
    return int(items * tensor.element_size())


def _flop(func: Any, args: Any, kwargs: Any, out: Any) -> tuple[str, int]:
    """Kind and FLOP; torch's formulas, except where they are missing or wrong."""
    from torch.utils import flop_counter

    packet = func._overloadpacket
    name = packet.__name__
    if name == "convolution_backward":  # torch's takes no notice of groups
        grad, x, weight, transposed, mask = *args[:3], args[7], args[10]
        shape = x.shape if transposed else grad.shape
        one = flop_counter.conv_flop_count(x.shape, weight.shape, shape, transposed)
        return CONV, one * (bool(mask[0]) + bool(mask[1]))
    if name.startswith("_scaled_dot_product_flash_attention_for_cpu"):
        backward = name.endswith("backward")
        q, k, v = args[1:4] if backward else args[:3]
        flop = flop_counter.sdpa_flop_count(q.shape, k.shape, v.shape)
        return MATMUL, int(flop * (BACKWARD_ATTENTION if backward else 1))
    if name.startswith("mkldnn_rnn_layer"):  # input, weights of inputs and of states
        positions = args[0].shape[0] * args[0].shape[1]
        weights = args[1].numel() + args[2].numel()
        passes = 2 if name.endswith("backward") else 1
        return MATMUL, 2 * positions * weights * passes
    formula = flop_counter.flop_registry.get(packet)
    if formula is None:
        return MOVE, 0
    kind = CONV if "convolution" in name else MATMUL
    return kind, int(formula(*args, **kwargs, out_val=out))
