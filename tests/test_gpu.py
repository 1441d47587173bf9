"""What only a GPU can show: run with `pytest -m gpu` on a machine that has one."""

import pytest

from gpu_lab import bench, hardware
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
