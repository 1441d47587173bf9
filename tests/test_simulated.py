"""The simulated device, and the core driven by it: planted values must come back."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from gpu_lab import bench, compare
from gpu_lab.records import Comparison, Measurement, Source, Verdict
from gpu_lab.timing import (
    SIMULATED,
    Arm,
    Model,
    Plan,
    SimulatedGpu,
    interval,
    log_interval,
    log_ratios,
)
from gpu_lab.timing.clocks import Queue
from gpu_lab.timing.simulated import HARDWARE_SLOWDOWN, POLL_S

MIB = 2**20
QUIET = Model(noise=0.0)
HOLDS, HOLDS_ALONE, SEEDS = 93, 89, 100
FEWER = 20


# -- the device by itself --


def test_a_launch_comes_back_at_once_and_synchronize_waits() -> None:
    gpu = SimulatedGpu(QUIET)
    gpu.kernel(1.0)
    assert gpu.wall() == pytest.approx(QUIET.launch_s + POLL_S)
    mark = gpu.mark()
    assert not mark.done()
    gpu.synchronize()
    assert mark.done()
    assert gpu.wall() == pytest.approx(1.0, rel=1e-4)
    assert gpu.cpu() == pytest.approx(QUIET.launch_s)  # waiting is no work
    assert isinstance(gpu, Queue)
    assert gpu.source is Source.SIMULATED


def test_one_kernel_after_the_other_costs_work_and_gap() -> None:
    gpu = SimulatedGpu(Model(noise=0.0, gap_s=2e-6))
    gpu.hold(1.0)
    start = gpu.mark()
    for _ in range(10):
        gpu.kernel(50e-6)
    assert start.seconds_to(gpu.mark()) == pytest.approx(10 * 52e-6)


def test_an_idle_device_waits_for_its_host() -> None:
    gpu = SimulatedGpu(Model(noise=0.0, launch_s=50e-6, gap_s=1e-6))
    start = gpu.mark()
    for _ in range(10):
        gpu.kernel(10e-6)
    assert start.seconds_to(gpu.mark()) == pytest.approx(10 * 50e-6 + 10e-6)


@pytest.mark.parametrize(("depth", "waits"), [(8, True), (100, False)])
def test_a_full_queue_keeps_the_host_waiting(depth: int, waits: bool) -> None:
    gpu = SimulatedGpu(Model(noise=0.0, depth=depth))
    for _ in range(20):
        gpu.kernel(1.0)
    assert (gpu.wall() > 10.0) is waits
    assert sum(end > gpu.wall() for end in gpu._ends_s) <= depth


@pytest.mark.parametrize(
    ("order", "hits"),
    [
        ("aaa", 2),  # fits
        ("abab", 2),  # both fit
        ("abcabc", 0),  # the third one drives out the first
        ("abcb", 1),  # the last but one is still there
    ],
)
def test_the_cache_keeps_what_was_touched_last(order: str, hits: int) -> None:
    model = Model(noise=0.0, gap_s=0.0, cache_bytes=32 * MIB)
    size = 16 * MIB
    gpu = SimulatedGpu(model)
    start = gpu.mark()
    for name in order:
        gpu.touch(name, size)
    hot_s, cold_s = size / model.cache_bytes_per_s, size / model.memory_bytes_per_s
    wanted_s = hits * hot_s + (len(order) - hits) * cold_s
    spent_s = start.seconds_to(gpu.mark())
    assert spent_s == pytest.approx(wanted_s + model.launch_s, rel=1e-6)


@pytest.mark.parametrize("size", [4096, MIB, 256 * MIB])
def test_a_copy_starts_and_then_flows(size: int) -> None:
    model = Model(noise=0.0, link_start_s=20e-6, link_bytes_per_s=1e9)
    gpu = SimulatedGpu(model)
    gpu.copy(size)
    began = gpu.wall()
    gpu.synchronize()
    assert gpu.wall() - began == pytest.approx(20e-6 + size / 1e9, rel=1e-3)


def test_two_streams_work_at_once() -> None:
    gpu = SimulatedGpu(QUIET)
    gpu.kernel(1.0)
    gpu.copy(2_800_000_000, stream=1)
    gpu.synchronize()
    assert gpu.wall() == pytest.approx(1.0, rel=1e-3)


def test_a_product_takes_its_operations_over_the_rate() -> None:
    gpu = SimulatedGpu(Model(noise=0.0, flop_per_s=2e12))
    gpu.matmul(1000)
    gpu.synchronize()
    assert gpu.wall() == pytest.approx(1e-3, rel=0.01)


def used(model: Model, seconds: float) -> tuple[float, SimulatedGpu]:
    """Seconds of a kernel of 1 ms after that much use, and the device."""
    gpu = SimulatedGpu(model)
    gpu.hold(seconds)
    start = gpu.mark()
    gpu.kernel(1e-3)
    return start.seconds_to(gpu.mark()) - model.gap_s, gpu


def test_use_makes_it_warm_slow_and_says_so() -> None:
    model = Model(noise=0.0, drift_per_s=0.1, throttle_after_s=5.0, throttle_to=0.5)
    cases = [(1e-3, 1.0, 0), (2.0, 1.2, 0), (6.0, 1.6 / 0.5, HARDWARE_SLOWDOWN)]
    heat = []
    for seconds, slower, reasons in cases:
        spent_s, gpu = used(model, seconds)
        state = gpu.state()
        assert spent_s == pytest.approx(slower * 1e-3, rel=1e-3)
        assert state.clock_sm_mhz == pytest.approx(2000 / slower, rel=1e-2)
        assert state.event_reasons == reasons
        heat.append(state.temperature_c)
    assert heat == sorted(set(heat))


def test_the_same_seed_gives_the_same_noise() -> None:
    def spent_s(seed: int) -> float:
        gpu = SimulatedGpu(seed=seed)
        gpu.kernel(1.0)
        gpu.synchronize()
        return gpu.wall()

    assert spent_s(1) == spent_s(1)
    assert spent_s(1) != spent_s(2)
    scatter = statistics.stdev(spent_s(seed) for seed in range(300))
    assert scatter == pytest.approx(Model().noise, rel=0.15)


# -- the core on it: planted values lie in the interval --


def rows(arms: list[Arm], gpu: SimulatedGpu, seed: int = 0) -> list[Measurement]:
    """Arms measured on the device."""
    given = {"device": SIMULATED, "plan": Plan(), "clock": gpu, "seed": seed}
    return bench.together(arms, **given)


def kernel(gpu: SimulatedGpu, work_s: float, name: str = "kernel") -> Arm:
    """An arm that is one kernel."""
    return Arm(name=name, calls=(functools.partial(gpu.kernel, work_s),))


def read(gpu: SimulatedGpu, size: int, sets: int, *, hot: bool = False) -> Arm:
    """An arm that reads so many buffers in turn."""
    calls = tuple(functools.partial(gpu.touch, i, size) for i in range(sets))
    return Arm(name="read", calls=calls, hot=hot)


def copied(gpu: SimulatedGpu) -> Arm:
    """An arm that copies 1 MiB over the link."""
    return Arm(name="copy", calls=(functools.partial(gpu.copy, MIB),))


MODEL = Model(cache_bytes_per_s=600e9)
GAP_S = MODEL.gap_s  # belongs to one call after the other, as on a real device
LINK_S = MODEL.link_start_s + MIB / MODEL.link_bytes_per_s
PLANTED: dict[str, tuple[Callable[[SimulatedGpu], Arm], float]] = {
    "kernel": (lambda gpu: kernel(gpu, 200e-6), 200e-6),
    "long kernel": (lambda gpu: kernel(gpu, 20e-3), 20e-3),
    "cold read": (lambda gpu: read(gpu, 48 * MIB, 3), 48 * MIB / 400e9),
    "cold small read": (lambda gpu: read(gpu, 20 * MIB, 5), 20 * MIB / 400e9),
    "hot read": (lambda gpu: read(gpu, 31 * MIB, 1), 31 * MIB / 600e9),
    "copy": (copied, LINK_S),
}


def test_planted_seconds_lie_in_the_interval() -> None:
    """In 93 of 100 over all kinds; one kind alone may have bad luck."""
    held: Counter[str] = Counter()
    for name, (make, truth_s) in PLANTED.items():
        for seed in range(SEEDS):
            gpu = SimulatedGpu(MODEL, seed=seed)
            (row,) = rows([make(gpu)], gpu)
            found = log_interval(row.times_s)
            held[name] += found.low <= truth_s + GAP_S <= found.high
            said = (row.source, row.decided_by, row.flags)
            assert said == (Source.SIMULATED, "events", ())
    assert min(held.values()) >= HOLDS_ALONE
    assert held.total() >= HOLDS * len(PLANTED)


def five_percent(seed: int, model: Model, effect: float = 0.05) -> Comparison:
    """A kernel beside one that takes longer by the effect."""
    gpu = SimulatedGpu(model, seed=seed)
    arms = [kernel(gpu, 100e-6, "a"), kernel(gpu, 100e-6 * (1 + effect), "b")]
    return compare.paired(*rows(arms, gpu, seed))


@pytest.mark.parametrize("drift_per_s", [0.0, 0.03])
def test_five_percent_are_found_and_lie_in_the_interval(drift_per_s: float) -> None:
    model = Model(gap_s=0.0, drift_per_s=drift_per_s)
    found = [five_percent(seed, model) for seed in range(SEEDS)]
    assert all(f.verdict is Verdict.SLOWER for f in found)
    assert sum(f.low <= 1 / 1.05 <= f.high for f in found) >= HOLDS


def test_nothing_is_found_where_nothing_is() -> None:
    found = [five_percent(seed, Model(), effect=0.0) for seed in range(SEEDS)]
    assert {f.verdict for f in found} == {Verdict.EQUIVALENT}


def test_the_same_seed_gives_the_same_rows() -> None:
    def measured(seed: int) -> Measurement:
        gpu = SimulatedGpu(seed=seed)
        return rows([kernel(gpu, 100e-6)], gpu)[0]

    assert measured(3) == measured(3)
    assert measured(3).times_s != measured(4).times_s


def test_what_runs_beside_a_simulation_is_not_seen() -> None:
    gpu = SimulatedGpu()
    waited = Arm(name="a", calls=(gpu.synchronize,), queued=False)
    for arm in (kernel(gpu, 100e-6), waited):
        (row,) = rows([arm], gpu)
        assert row.observed == {}
        assert row.flags == ()


# -- each flag by its planted cause, and not without --


def flags_of(make: Callable[[SimulatedGpu], Arm], model: Model | None = None) -> list:
    """Flags of the arm on FEWER devices."""
    found = []
    for seed in range(FEWER):
        gpu = SimulatedGpu(model, seed=seed)
        found.append(set(rows([make(gpu)], gpu)[0].flags))
    return found


def two_paces(gpu: SimulatedGpu) -> Arm:
    """An arm whose kernels are at times long, at times short."""
    turn = count()

    def call() -> None:
        gpu.kernel(1e-3 if next(turn) // 3 % 2 else 1.3e-3)

    return Arm(name="two paces", calls=(call,))


def steady(gpu: SimulatedGpu) -> Arm:
    return kernel(gpu, 100e-6)


CAUSES = {
    "throttled": (steady, Model(throttle_after_s=0.1)),
    "launch-bound": (steady, Model(depth=4)),
    "bimodal": (two_paces, None),
    "hot-cache": (lambda gpu: read(gpu, 28 * MIB, 1, hot=True), MODEL),
    "drifting": (steady, Model(drift_per_s=4.0)),
}


@pytest.mark.parametrize("flag", CAUSES)
def test_each_flag_by_its_cause_and_no_other(flag: str) -> None:
    make, model = CAUSES[flag]
    assert flags_of(make, model) == [{flag}] * FEWER


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.05])
def test_noise_alone_raises_no_flag(noise: float) -> None:
    found = flags_of(steady, Model(noise=noise))
    assert sum(bool(flags) for flags in found) <= 1


def test_ratios_of_rounds_cancel_what_hits_both() -> None:
    """Alone, a drifting device has no time; its ratio is exact."""
    gpu = SimulatedGpu(Model(drift_per_s=3.0, gap_s=0.0))
    a, b = rows([kernel(gpu, 1e-3, "a"), kernel(gpu, 1.05e-3, "b")], gpu)
    found = interval(log_ratios(b.times_s, a.times_s))
    alone = log_interval(a.times_s)
    assert found.half_width < 0.3 * alone.half_width / alone.estimate
