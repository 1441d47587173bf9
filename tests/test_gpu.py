"""What only a GPU can show: run with `pytest -m gpu` on a machine that has one."""

import pytest

from gpu_lab import bench, fit, hardware
from gpu_lab.bench import amp, amp_numerics, profiling, shapes
from gpu_lab.records import Source
from gpu_lab.timing import Plan

pytestmark = pytest.mark.gpu
SHORT = Plan(budget_s=0.2)


@pytest.fixture(scope="module")
def gpu():
    device = hardware.choose(hardware.detect())
    assert device.is_gpu, "no usable GPU; `gpu-lab doctor` says which rung is missing"
    return device


def test_the_ladder_holds_to_the_top(gpu):
    ladder = hardware.climb(hardware.inspect(gpu), device=gpu.label)
    assert [(r.name, r.answer) for r in ladder.rungs if r.answer != "yes"] == []


def test_every_core_row_is_measured(gpu):
    for name, call in bench.core_suite(device=gpu):
        assert call().source is Source.MEASURED, name


def test_more_bytes_take_longer_over_the_link(gpu):
    small, large = (
        bench.host_to_device(size, device=gpu, plan=SHORT) for size in (2**12, 2**26)
    )
    assert large.median_s > 10 * small.median_s


@pytest.mark.parametrize("model", ["cnn", "transformer", "toy"])
def test_a_training_step_in_each_precision(gpu, model):
    arms = [amp.step_arm(model, device=gpu, mode=mode) for mode in amp.MODES]
    for arm, row in zip(
        arms, bench.together(arms, device=gpu, plan=SHORT), strict=True
    ):
        assert row.available or "needs" in row.reason
        if row.available and gpu.backend in amp.COUNTS_MEMORY:
            # Peak: weights and gradients too, and at least what is kept for backward.
            assert row.observed["peak_bytes"] > row.observed["saved_bytes"], arm.name


def test_numerics_are_those_of_a_cpu(gpu):
    shares = {
        name: amp_numerics.train(**given, device=gpu).zero_share
        for name, given in {
            "bfloat16": {"dtype": "bfloat16"},
            "float16": {"dtype": "float16"},
            "scaled": {"dtype": "float16", "scaled": True},
        }.items()
    }
    assert shares["float16"] > 0.99
    assert shares["scaled"] < 0.01
    assert shares["bfloat16"] < 0.001
    trace = amp_numerics.scaler_trace([1.0, float("inf"), 1.0], device=gpu)
    assert trace == [(2.0**16, -1.0), (2.0**15, -1.0), (2.0**15, -2.0)]
    assert amp_numerics.op_table(device=gpu)["Linear"][1] == "bfloat16"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_predicted_memory_is_what_the_card_counts(gpu, precision):
    """The tensors at least, and no more than what is stated as the most."""
    if gpu.backend not in amp.COUNTS_MEMORY:
        pytest.skip(f"{gpu.backend} does not count its memory")
    import torch

    case = fit.load("torchvision:resnet18", inputs="16x3x224x224")
    setting = fit.Setting(precision=precision)
    module = case.make().to(gpu.torch_name)
    module, optimizer = fit.step.prepared(module, setting)
    inputs = [t.to(gpu.torch_name) for t in case.tensors()]
    for _ in range(2):
        fit.step.micro_step(module, inputs, setting)
        fit.step.finish(optimizer)
    low, high = fit.predict(case, setting).need
    counted = torch.cuda.max_memory_allocated(gpu.torch_name)
    assert 0.9 * (low - 200e6) < counted < high


@pytest.mark.parametrize("fault", profiling.PLANTED)
def test_each_planted_step_is_named_from_kernels_and_copies(gpu, fault):
    if gpu.backend not in profiling.ACTIVITIES:
        pytest.skip(f"torch.profiler records nothing of {gpu.backend}")
    step = profiling.planted(fault, device=gpu)
    step()
    trace = profiling.profiled(step, device=gpu)
    found = shapes.shape(trace)
    assert found.fault == {"good": "none"}.get(fault, fault), found.shares
    assert not any(piece.name.startswith("aten::") for piece in trace.pieces)
