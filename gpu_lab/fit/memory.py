"""Peak memory of a step, without the device: torch's tracker on fake tensors.

Fake CPU tensors, because fake CUDA tensors need a driver in the backward pass. What
they cannot show is a stated allowance (`ALLOWANCE_LOW`, `ALLOWANCE_HIGH`).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpu_lab.fit import step, work
from gpu_lab.fit.model import Case
from gpu_lab.fit.step import Setting
from gpu_lab.records import GpuLabError, first_line

# CUDA context 0.2 to 1 GB (pytorch/pytorch#28113, #28394), and the share that blocks
# of 512 bytes, segments of 2 and 20 MiB and the kernels' workspaces add. Stated, not
# measured by us.
CONTEXT_LOW, CONTEXT_HIGH = 200 * 10**6, 10**9
ROUNDING_LOW, ROUNDING_HIGH = 1.0, 1.1
RNN_RESERVE = 6  # workspace of a recurrent layer: gates and states of each position


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Bytes of tensors at the fullest moment of a step, and the step's operators.

    Attributes:
        work: how often each operator runs in one step.
        input_bytes: what a step brings over the link; `output_bytes` what it takes.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    temporaries: int
    work: Counter[work.Op]
    input_bytes: int
    output_bytes: int

    @property
    def peak(self) -> int:
        """Bytes of all tensors together."""
        states = self.parameters + self.gradients + self.optimizer
        return states + self.activations + self.temporaries

    @property
    def low(self) -> float:
        """Least bytes that a card needs: tensors, the smallest context."""
        return ROUNDING_LOW * self.peak + CONTEXT_LOW

    @property
    def high(self) -> float:
        """Most bytes that a card needs: rounding and the largest context too."""
        return ROUNDING_HIGH * self.peak + CONTEXT_HIGH

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

    micro = case.of_batch(-(-case.batch // setting.accumulate))
    if setting.task == "decode":
        micro = micro.one_token()
    with _one_line(micro), FakeTensorMode(allow_non_fake_inputs=True):
        model = step.prepared(micro.make(), setting)
        return _tracked(model, micro.tensors(), setting)


def _tracked(model: Any, inputs: list[Any], setting: Setting) -> Prediction:
    tracker, recorder = _tracker(), work.recorder()
    tracker.track_external(model, inputs)
    optimizer = step.optimizer_of(model, setting)
    with tracker:
        if optimizer:
            _make_states(optimizer)
        with recorder:
            output_bytes = _step(model, inputs, setting, optimizer, tracker, recorder)
        found = tracker.get_tracker_snapshot("peak")
    held = {kind.value: sum(s[kind] for s in found.values()) for kind in _kinds()}
    states = sum(_size(t) for t in _states(optimizer))
    return Prediction(
        parameters=held["Parameter"] + held["Buffer"],
        gradients=held["Gradient"],
        optimizer=states,
        activations=held["Activation"] + held["Other"],
        temporaries=held["Temp"] + held["Optstate"] - states,
        work=recorder.work,
        input_bytes=setting.accumulate * sum(_size(t) for t in inputs),
        output_bytes=output_bytes,
    )


def _step(
    model: Any,
    inputs: list[Any],
    setting: Setting,
    optimizer: Any,
    tracker: Any,
    recorder: Any,
) -> int:
    """One whole step; two micro-batches stand for all. Bytes that a user reads."""
    from torch.utils._pytree import tree_leaves

    rounds = min(2, setting.accumulate)
    recorder.times = setting.accumulate / rounds
    for _ in range(rounds):
        tracker.reset_mod_stats()
        output = step.micro_step(model, inputs, setting)
    recorder.times = 1.0
    if optimizer:
        optimizer.step()
        optimizer.zero_grad()
        return 4  # the loss
    if setting.task == "decode":
        return 8 * inputs[0].shape[0]  # one token for each sequence
    return sum(_size(t) for t in tree_leaves(output) if hasattr(t, "element_size"))


def _make_states(optimizer: Any) -> None:
    """The states that exist after a first step, without its passes."""
    import torch

    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    optimizer.step()
    optimizer.zero_grad()


def _states(optimizer: Any) -> Iterator[Any]:
    for states in optimizer.state.values() if optimizer else ():
        yield from (t for t in states.values() if hasattr(t, "element_size"))


def _size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _kinds() -> Any:
    from torch.distributed._tools.mem_tracker import _MemRefType

    return _MemRefType


def _tracker() -> Any:
    """MemTracker without its statistics of each module, which take half the time."""
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    rnn = torch.ops.aten.mkldnn_rnn_layer.default

    class Tracker(MemTracker):
        def _update_peak_stats(self, peak_state: Any) -> None:
            for device, held in self._curr_mem_snap.items():
                if held["Total"] > self._peak_mem.get(device, 0):
                    self._peak_mem[device] = held["Total"]
                    self._peak_mem_snap[device] = dict(held)

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = super().__torch_dispatch__(func, types, args, kwargs)
            if func is not rnn or not args[15]:
                return out
            # The fake layer keeps nothing for the backward pass; a real one does.
            with self:
                kept = torch.empty(RNN_RESERVE * out[0].numel(), dtype=out[0].dtype)
            return (*out[:3], kept)

    return Tracker()


@contextmanager
def _one_line(case: Case) -> Iterator[None]:
    """Whatever a module does wrong on fake tensors, said in one line."""
    from torch._subclasses import fake_tensor

    reads = (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except reads as error:
        raise GpuLabError(
            f"{case.name}: reads values out of a tensor ({error.func}); what depends on "
            "data cannot be predicted without data"
        ) from error
    except (GpuLabError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise GpuLabError(
            f"{case.name} with inputs {case.described()}: {type(error).__name__}: "
            f"{first_line(error)}"
        ) from error
