"""Peak memory of a step, without the device: torch's tracker on fake tensors.

Fake CPU tensors, because fake CUDA tensors need a driver in the backward pass. What
they cannot show is an allowance, stated in `data/fit.toml`.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from gpu_lab import facts
from gpu_lab.fit import step, work
from gpu_lab.fit.step import Case, Setting
from gpu_lab.records import GpuLabError, first_line

PARTS = ("parameters", "gradients", "optimizer", "activations", "temporaries")
LOSS_BYTES, TOKEN_BYTES = 4, 8
# What a recurrent layer keeps for each number of its output: oneDNN's, read there.
RNN_BYTES, RNN_NUMBERS = 26.4, 9.1


@dataclass(frozen=True)
class Prediction:
    """Bytes of tensors at the fullest moment of a step, and the step's operators.

    Attributes:
        parameters: with buffers.
        work: how often each operator runs in one step.
        link_bytes: what a step brings to the card and takes from it.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    temporaries: int
    work: Counter[work.Op]
    link_bytes: int

    @property
    def peak(self) -> int:
        """Bytes of all tensors together."""
        return sum(getattr(self, part) for part in PARTS)

    @property
    def need(self) -> tuple[float, float]:
        """Least and most bytes that a card needs: tensors and the allowance."""
        given = facts.settings("fit")["allowance"]
        low, high = (c + s * self.peak for c, s in zip(*given.values(), strict=True))
        return low, high

    @property
    def flop(self) -> float:
        """FLOP of one step."""
        return float(sum(op.flop * times for op, times in self.work.items()))


def predict(case: Case, setting: Setting) -> Prediction:
    """Peak bytes of one step in the steady state, when optimizer states exist.

    Raises:
        GpuLabError: inputs that do not match, sizes that depend on data, in one line.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    share, decodes = -(-case.batch // setting.accumulate), setting.task == "decode"
    with _one_line(case), FakeTensorMode(allow_non_fake_inputs=True):
        return _tracked(case.of_batch(share, one_token=decodes), setting)


def _tracked(case: Case, setting: Setting) -> Prediction:
    import torch
    from torch.distributed._tools.mem_tracker import _MemRefType as Kind

    tracker, recorder = _tracker(on_cpu=setting.on_cpu), work.recorder()
    inputs = case.tensors()
    # torch draws until all numbers are small enough: fake ones never say that they are.
    undrawn = mock.Mock(side_effect=lambda t, *_, **__: t)
    with mock.patch.object(torch.nn.init, "_no_grad_trunc_normal_", undrawn):
        model, optimizer = step.prepared(case.make(), setting)
    for p in model.parameters() if optimizer else ():
        p.grad = torch.zeros_like(p)
    step.finish(optimizer)  # now the states exist
    tracker.track_external(model, optimizer, inputs)
    rounds = min(2, setting.accumulate)  # two micro-batches stand for all of them
    recorder.times = setting.accumulate / rounds
    with tracker, recorder:
        for _ in range(rounds):
            tracker.reset_mod_stats()
            output = step.micro_step(model, inputs, setting)
        recorder.times = 1
        step.finish(optimizer)
    held = tracker.get_tracker_snapshot("peak")[inputs[0].device]
    states = _bytes([*optimizer.state.values()]) if optimizer else 0
    read = {"train": LOSS_BYTES, "decode": TOKEN_BYTES * case.batch}
    link_bytes = setting.accumulate * _bytes(inputs)
    link_bytes += read.get(setting.task) or _bytes(output)
    parameters = held[Kind.PARAM] + held[Kind.BUFFER], held[Kind.GRAD], states
    spare = held[Kind.TEMP] + held[Kind.OPT] - states
    others = held[Kind.ACT] + held[Kind.OTH], spare
    return Prediction(*parameters, *others, recorder.work, link_bytes)


def _bytes(tree: Any) -> int:
    from torch.utils._pytree import tree_leaves

    return sum(t.nbytes for t in tree_leaves(tree) if hasattr(t, "nbytes"))


def _tracker(*, on_cpu: bool) -> Any:
    """MemTracker that also sees what two operators take inside."""
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    rnn = torch.ops.aten.mkldnn_rnn_layer.default
    convolved = torch.ops.aten.convolution_backward.default

    class Tracker(MemTracker):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out: Any = super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
            with self:
                if func is rnn and args[15]:  # kept for the backward pass
                    one = RNN_BYTES + RNN_NUMBERS * out[0].element_size()
                    kept = torch.empty(int(one * out[0].numel()), dtype=torch.uint8)
                    return (*out[:3], kept)
                if func is convolved and on_cpu:
                    spare = _copies(args[0], args[1], args[2], args[9])
                    torch.empty(spare, dtype=torch.uint8)
            return out

    return Tracker()


def _copies(grad: Any, x: Any, weight: Any, groups: int) -> int:
    """Bytes that oneDNN's backward convolution takes beside its results, as seen."""
    if groups == x.shape[1] > 1:  # weights and their gradient in blocks of 16 x 16
        whole = weight.element_size() == 4
        return int(256 * weight.nbytes if whole else 768 * weight.nbytes + 9 * x.nbytes)
    return int(max(2 * x.nbytes - weight.nbytes, x.nbytes + grad.nbytes, weight.nbytes))


@contextmanager
def _one_line(case: Case) -> Iterator[None]:
    """Whatever a module does wrong on fake tensors, said in one line."""
    from torch._subclasses import fake_tensor as fake

    logging.getLogger(fake.__name__).disabled = True  # prints a stack besides raising
    reads = (fake.DataDependentOutputException, fake.DynamicOutputShapeException)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except GpuLabError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, reads):
            what = f"reads values of a tensor ({error.func}); they need real data"
        raise GpuLabError(f"{case}: {what}") from error
