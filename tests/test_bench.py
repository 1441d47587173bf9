"""Benchmarks at tiny sizes: positive times, right work, wrong results refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpu_lab import bench
from gpu_lab.bench import rows, suite
from gpu_lab.bench.rows import WrongResult
from gpu_lab.records import Device, Measurement, Source
from gpu_lab.timing import SIMULATED, Model, Plan, SimulatedGpu

memory = sys.modules["gpu_lab.bench.memory"]  # the name is the function's as well
TINY = Plan(rounds=3, sample_s=0.0001, warmup=1)
Bench = Callable[..., Measurement]
COPIES: list[tuple[Bench, str, float]] = [
    (bench.host_copy, "host_copy", 2.0),
    (bench.device_copy, "device_copy", 2.0),
    (bench.host_to_device, "h2d", 1.0),
    (bench.device_to_host, "d2h", 1.0),
]
each_copy = pytest.mark.parametrize(("copy", "name", "factor"), COPIES)


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that a few tiny arrays drive out."""
    monkeypatch.setattr(rows.host, "cache_bytes", lambda: 2**16)


def require_whole(row: Measurement, device: Device, source: Source) -> None:
    """Positive samples with as many CPU times, on that device."""
    assert row.available
    assert row.source is source
    assert row.device == device.label
    assert 1 <= len(row.times_s) <= 3
    assert len(row.cpu_times_s) == len(row.times_s)
    assert row.number_per_run >= 1
    assert row.method_version >= 1
    assert row.rate
    assert row.rate > 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_matmul(cpu: Device, dtype: str) -> None:
    row = bench.matmul(16, device=cpu, dtype=dtype, plan=TINY, seed=3)
    require_whole(row, cpu, Source.MEASURED)
    assert row.name == f"matmul_{dtype}_16"
    assert (row.work, row.work_unit) == (2 * 16**3, "FLOP")
    assert row.tflops
    assert row.settings["n"] == 16
    assert row.settings["dtype"] == dtype
    assert row.settings["seed"] == 3
    assert row.settings["threads"] == torch.get_num_threads()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_matmul_smaller_than_the_rows_it_checks(cpu: Device, n: int) -> None:
    require_whole(bench.matmul(n, device=cpu, plan=TINY), cpu, Source.MEASURED)


@pytest.mark.parametrize(
    ("n", "dtype"), [(0, "float32"), (-4, "float32"), (4, "float64"), (4, "int8")]
)
def test_matmul_refuses(cpu: Device, n: int, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"found {n}, '{dtype}'"):
        bench.matmul(n, device=cpu, dtype=dtype, plan=TINY)


@pytest.mark.parametrize("fault", [1.1, 0.0, float("nan"), float("inf")])
def test_a_wrong_product_is_not_timed(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, fault: float
) -> None:
    honest = torch.mm

    def wrong(a: Any, b: Any, out: Any = None) -> Any:
        return honest(a, b) * fault

    monkeypatch.setattr(torch, "mm", wrong)
    with pytest.raises(WrongResult, match=r"relative error .* do not trust"):
        bench.matmul(16, device=cpu, plan=TINY)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_product_of_a_seed_is_always_the_same(cpu: Device, dtype: str) -> None:
    before = torch.random.get_rng_state()
    bench.matmul(8, device=cpu, dtype=dtype, plan=TINY, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())  # no global state


@each_copy
def test_copies_on_the_stand_in(
    stand_in: Device, copy: Bench, name: str, factor: float
) -> None:
    row = copy(4096, device=stand_in, plan=TINY)
    require_whole(row, stand_in, Source.SIMULATED)
    assert row.name == name
    assert (row.work, row.work_unit) == (factor * 4096, "byte")
    assert row.gb_per_s
    assert row.settings["size_bytes"] == 4096


@each_copy
def test_copies_on_a_cpu(cpu: Device, copy: Bench, name: str, factor: float) -> None:
    row = copy(4096, device=cpu, plan=TINY)
    if name == "host_copy":
        require_whole(row, cpu, Source.MEASURED)
        assert row.work == factor * 4096
    else:
        assert row.source is Source.NOT_MEASURABLE
        assert (row.name, row.times_s) == (name, ())
        assert "needs a GPU" in row.reason


@each_copy
@pytest.mark.parametrize("size_bytes", [0, -1])
def test_copies_refuse_nothing(
    stand_in: Device, copy: Bench, name: str, factor: float, size_bytes: int
) -> None:
    with pytest.raises(ValueError, match=f"at least . bytes?.*{size_bytes}"):
        copy(size_bytes, device=stand_in, plan=TINY)


@each_copy
def test_a_wrong_copy_is_not_timed(
    stand_in: Device,
    monkeypatch: pytest.MonkeyPatch,
    copy: Bench,
    name: str,
    factor: float,
) -> None:
    honest = torch.Tensor.copy_

    def wrong(target: Any, source: Any, non_blocking: bool = False) -> Any:
        honest(target, source)
        target[-1] += 1
        return target

    monkeypatch.setattr(torch.Tensor, "copy_", wrong)
    with pytest.raises(WrongResult, match=f"{name}: the copy is not bit-equal"):
        copy(64, device=stand_in, plan=TINY)


def test_pinned_or_pageable_is_a_setting(stand_in: Device) -> None:
    for pinned in (True, False):
        row = bench.host_to_device(64, device=stand_in, pinned=pinned, plan=TINY)
        assert row.settings["pinned"] is pinned


def test_launch(stand_in: Device, cpu: Device) -> None:
    row = bench.launch(device=stand_in, plan=TINY)
    require_whole(row, stand_in, Source.SIMULATED)
    assert (row.work, row.work_unit) == (1, "launch")
    assert (row.gb_per_s, row.tflops) == (None, None)
    none = bench.launch(device=cpu, plan=TINY)
    assert none.source is Source.NOT_MEASURABLE
    assert "launches nothing" in none.reason


NAMES = ["launch", "launch_host", "launch_gap"]


def test_three_names_for_launch_where_there_is_no_queue(
    stand_in: Device, cpu: Device
) -> None:
    for device, measured in ((cpu, []), (stand_in, ["launch"])):
        found = bench.launches(device=device, plan=TINY)
        assert [row.name for row in found] == NAMES
        assert [row.name for row in found if row.available] == measured
        assert all(row.reason for row in found if not row.available)


def test_three_launch_times_of_the_simulated_device() -> None:
    gpu = SimulatedGpu(Model(noise=0.0))
    complete, host, gap = bench.launches(device=SIMULATED, plan=TINY, clock=gpu)
    model = gpu.model
    assert host.median_s == pytest.approx(model.launch_s)
    assert gap.median_s == pytest.approx(1e-6 + model.gap_s)
    assert complete.median_s == pytest.approx(model.launch_s + 1e-6, rel=0.2)
    assert [row.decided_by for row in (complete, host, gap)] == [
        "wall",
        "cpu",
        "events",
    ]


def test_random_bytes_are_seeded_and_not_zero() -> None:
    one, same, other = (rows.random_bytes(1000, seed=s) for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert len(one.unique()) > 200
    assert one.dtype == torch.uint8


# -- kinds of memory passes --


@pytest.mark.parametrize(
    ("kind", "factor", "words"),
    [
        ("copy", 2, "1 read + 1 written"),
        ("triad", 3, "2 read + 1 written"),
        ("read", 1, "1 read"),
        ("write", 1, "1 written"),
    ],
)
@pytest.mark.parametrize("on_host", [True, False])
def test_memory_passes(
    stand_in: Device, kind: str, factor: int, words: str, on_host: bool
) -> None:
    row = bench.memory(kind, 4096, device=stand_in, on_host=on_host, plan=TINY)
    require_whole(row, stand_in, Source.SIMULATED)
    assert row.name == f"{'host' if on_host else 'device'}_{kind}"
    assert row.work == factor * 4096
    assert row.settings["counted"] == words


@pytest.mark.parametrize(("kind", "size_bytes"), [("scale", 4096), ("copy", 3)])
def test_memory_refuses(cpu: Device, kind: str, size_bytes: int) -> None:
    with pytest.raises(ValueError, match=f"found '{kind}' and {size_bytes}"):
        bench.memory(kind, size_bytes, device=cpu, on_host=True, plan=TINY)


@pytest.mark.parametrize("kind", ["triad", "read", "write"])
def test_a_wrong_pass_is_not_timed(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(memory, "TOLERANCE", -1.0)
    with pytest.raises(WrongResult, match="its speed is not shown"):
        bench.memory(kind, 4096, device=cpu, on_host=True, plan=TINY)


def test_small_arrays_rotate_and_large_ones_need_not(cpu: Device) -> None:
    small = bench.memory_arm("copy", 2**13, device=cpu, on_host=True)
    assert len(small.calls) == 2 * 2**16 / 2**14 + 1
    assert (small.hot, small.observed["cache"]) == (False, "cold")
    large = bench.memory_arm("copy", 2**17, device=cpu, on_host=True)
    assert len(large.calls) == 1
    assert not large.hot


def test_what_may_lie_in_the_cache_is_flagged(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = bench.memory_arm("copy", 2**13, device=cpu, on_host=True, cold=False)
    assert "hot-cache" in bench.measured(arm, device=cpu, plan=TINY).flags
    monkeypatch.setattr(rows, "_free_bytes", lambda device: 0)
    full = bench.memory_arm("copy", 2**13, device=cpu, on_host=True)
    assert (full.hot, len(full.calls)) == (True, 1)


def test_zeros_are_refused(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randn", lambda *s, **_: torch.zeros(*s))
    for call in (
        lambda: bench.matmul(8, device=cpu, plan=TINY),
        lambda: bench.host_copy(4096, device=cpu, plan=TINY),
    ):
        with pytest.raises(WrongResult, match="all inputs are 0; wanted random"):
            call()


@pytest.mark.parametrize(
    ("backend", "capability", "dtype", "words"),
    [
        ("cpu", None, "tf32", "needs an NVIDIA GPU of compute capability 8.0"),
        ("rocm", "gfx1100", "float8", "needs an NVIDIA GPU of compute capability 8.9"),
        ("cuda", "7.5", "tf32", "needs compute capability 8.0, this GPU has 7.5"),
        ("cuda", "8.6", "float8", "needs compute capability 8.9, this GPU has 8.6"),
    ],
)
def test_dtypes_that_a_device_lacks(
    backend: str, capability: str | None, dtype: str, words: str
) -> None:
    device = Device(backend=backend, name="x", capability=capability)
    row = bench.matmul(8, device=device, dtype=dtype, plan=TINY)
    assert row.source is Source.NOT_MEASURABLE
    assert words in row.reason


@pytest.mark.parametrize("dtype", ["float8", "tf32"])
def test_other_dtypes_are_right_on_the_stand_in(stand_in: Device, dtype: str) -> None:
    row = bench.matmul(32, device=stand_in, dtype=dtype, plan=TINY)
    require_whole(row, stand_in, Source.SIMULATED)


def test_rows_taken_together_share_their_rounds(cpu: Device) -> None:
    arms = [bench.matmul_arm(n, device=cpu) for n in (8, 16)]
    arms.append(bench.matmul_arm(8, device=cpu, dtype="tf32"))
    first, second, missing = bench.together(arms, device=cpu, plan=TINY)
    assert first.group == second.group == "matmul_float32_8|matmul_float32_16"
    assert len(first.times_s) == len(second.times_s) == len(first.anchor_s) == 3
    assert missing.source is Source.NOT_MEASURABLE
    assert bench.measured(arms[0], device=cpu, plan=TINY).group == ""


# -- the core suite --


def test_the_core_suite_has_the_same_rows_everywhere(
    cpu: Device, stand_in: Device
) -> None:
    gpu = Device(backend="cuda", name="real")
    for device in (cpu, stand_in, gpu):
        names = [name for name, _ in bench.core_suite(device=device)]
        assert names == list(bench.CORE)
    assert len(bench.CORE) == len(set(bench.CORE)) == 8


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core suite with sizes and budgets of a test."""
    for name in ("CPU_MATMUL_N", "CPU_HALF_N", "GPU_MATMUL_N"):
        monkeypatch.setattr(suite, name, 8)
    for name in ("COPY_BYTES", "TRANSFER_BYTES"):
        monkeypatch.setattr(suite, name, 1024)
    for name in ("CPU_PLAN", "GPU_PLAN"):
        short = replace(getattr(suite, name), budget_s=0.002, sample_s=None)
        monkeypatch.setattr(suite, name, short)


@pytest.mark.usefixtures("small")
def test_the_core_suite_on_a_cpu(cpu: Device) -> None:
    found = {name: call() for name, call in bench.core_suite(device=cpu, seed=2)}
    measured = {name for name, row in found.items() if row.available}
    assert measured == {"matmul_fp32", "matmul_fp16", "matmul_bf16", "host_copy"}
    assert all(found[name].source is Source.MEASURED for name in measured)
    assert all(found[name].reason for name in set(found) - measured)
    assert found["host_copy"].settings["seed"] == 2


@pytest.mark.usefixtures("small")
def test_the_core_suite_on_the_stand_in(stand_in: Device) -> None:
    found = [call() for _, call in bench.core_suite(device=stand_in)]
    assert [row.source for row in found] == [Source.SIMULATED] * 8
    assert all(row.device == "cuda:0" for row in found)


def test_sizes_of_the_core_suite(cpu: Device, stand_in: Device) -> None:
    gpu = Device(backend="cuda", name="real")
    assert suite._matmul_sizes(gpu) == (suite.GPU_MATMUL_N, suite.GPU_MATMUL_N)
    for device in (cpu, stand_in):
        assert suite._matmul_sizes(device) == (suite.CPU_MATMUL_N, suite.CPU_HALF_N)
