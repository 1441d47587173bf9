"""The core by a clock that only moves when told, and beside real neighbours."""

from __future__ import annotations

import gc
import hashlib
import random
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from gpu_lab import timing
from gpu_lab.records import Device, DeviceLost, Source
from gpu_lab.timing import (
    Arm,
    Plan,
    StandInClock,
    WallClock,
    clocks,
    core,
    flags,
    samplers,
)
from gpu_lab.timing.noise import Evidence

GPU = Device(backend="cuda", name="Test GPU")
CPU = Device(backend="cpu", name="Test CPU")
XPU = Device(backend="xpu", name="Test GPU")


class FakeClock:
    """Stands still, except while `work` runs; writes down who asked for what."""

    source = Source.SIMULATED

    def __init__(self, costs_s: float = 0.0001, *, wall_per_s: float = 1.0) -> None:
        self.wall_per_s = wall_per_s
        self.costs_s = costs_s
        self.now_s = 0.0
        self.anchor_s = 1e-5
        self.log: list[str] = []

    def wall(self) -> float:
        return self.now_s

    def cpu(self) -> float:
        return self.now_s / 2

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def anchor(self) -> None:
        self.log.append("anchor")
        self.now_s += self.anchor_s

    def work(self, name: str = "work", times: float = 1.0) -> None:
        self.log.append(name)
        self.now_s += self.costs_s * times

    def arm(self, name: str, times: float = 1.0) -> Arm:
        """Work under a name of its own, so many times as long."""
        return Arm(name=name, calls=(lambda: self.work(name, times),))


def measure(clock: FakeClock, **plan: Any) -> timing.Timing:
    """Time the clock's own work."""
    given = {"budget_s": 1.0, **plan}
    return timing.measure(clock.work, device=XPU, plan=Plan(**given), clock=clock)


def noisy(clock: FakeClock, scatter: float) -> Callable[[], None]:
    """Work of the clock that takes another time at each call, seeded."""
    source = random.Random(0)
    return lambda: clock.work(times=source.lognormvariate(0, scatter))


def test_times_are_of_one_call() -> None:
    found = measure(FakeClock(0.0001))
    assert found.number_per_run == 5  # half a millisecond a sample
    assert found.times_s == pytest.approx([0.0001] * len(found.times_s))
    assert found.cpu_times_s == pytest.approx([0.00005] * len(found.times_s))
    assert found.source is Source.SIMULATED


# -- when to stop --

COSTS_S = [1e-6, 1e-4, 0.003, 0.02, 0.06, 0.08, 0.3, 0.6, 2, 1000]


@pytest.mark.parametrize("arms", [1, 3, 10])
@pytest.mark.parametrize("budget_s", [0.01, 1.0])
@pytest.mark.parametrize("costs_s", COSTS_S)
def test_never_more_than_the_budget_and_one_round(
    costs_s: float, budget_s: float, arms: int
) -> None:
    clock = FakeClock(costs_s)
    given = [clock.arm(str(i)) for i in range(arms)]
    plan = Plan(budget_s=budget_s, precision=1e-12)
    found = timing.interleave(given, device=XPU, plan=plan, clock=clock)
    sample_s = found[0].number_per_run * costs_s
    round_s = arms * sample_s + core.ANCHOR_S
    assert clock.now_s <= (budget_s + round_s) * (1 + 1e-9)
    rounds = len(found[0].times_s)
    if costs_s * arms >= budget_s:
        assert rounds == 1
        assert set(clock.log) - {"anchor", "synchronize"} == {a.name for a in given}
        assert all(clock.log.count(a.name) == 1 for a in given)
        assert found[0].stopped == "budget: 1 round, no warm-up, fewer than 12"
    elif rounds < core.FEWEST_ROUNDS:
        assert found[0].stopped == f"budget: {rounds} rounds, fewer than 12"


def test_calls_of_a_thirteenth_of_the_budget_get_their_rounds() -> None:
    found = measure(FakeClock(1.0 / 13.1), precision=1e-12)
    assert len(found.times_s) == core.FEWEST_ROUNDS


def test_looks_grow_by_half() -> None:
    assert core.looks(60) == (12, 18, 27, 40, 60)
    assert core.looks(12) == (12,)


@pytest.mark.parametrize(
    ("scatter", "plan", "stopped"),
    [
        (0.0, {}, "precise: "),
        (0.03, {"precision": 0.1}, "precise: 12 rounds"),
        (0.03, {"precision": 0, "max_rounds": 50}, "most rounds: 50"),
        (0.06, {"precision": 0.02}, "precise: "),
        (0.0, {"rounds": 7}, "fixed: 7 rounds"),
        (0.0, {"rounds": 7, "budget_s": 0.001}, "fixed: 7 rounds"),
        (0.5, {"max_rounds": 30}, "most rounds: 30"),
        (0.1, {"budget_s": 0.2, "precision": 0.01}, "budget: "),
        (0.5, {"budget_s": 0.6}, "futile: 90 rounds, "),
    ],
)
def test_why_no_further_round_is_taken(
    scatter: float, plan: dict[str, Any], stopped: str
) -> None:
    clock = FakeClock(0.005)
    call = noisy(clock, scatter)
    given = Plan(**{"budget_s": 1000.0, **plan})
    found = timing.measure(call, device=XPU, plan=given, clock=clock)
    assert found.stopped.startswith(stopped)
    if stopped.startswith("precise"):
        assert len(found.times_s) in core.looks(1000)
        got = timing.log_interval(found.times_s, confidence=core.LOOK_CONFIDENCE)
        assert got.half_width / got.estimate <= (given.precision or 0.02)
    if stopped.startswith("futile"):
        assert found.stopped.endswith("% reached, 2 % wanted")


def test_what_counts_is_the_precision_of_the_ratio() -> None:
    """Two arms that wander together are precise while each alone is not."""
    clock = FakeClock(0.005)
    alone_arm, *arms = (Arm(name=n, calls=(noisy(clock, 0.5),)) for n in "sab")
    plan = Plan(budget_s=100.0, precision=0.25)
    alone = timing.measure(alone_arm, device=XPU, plan=plan, clock=clock)
    both = timing.interleave(arms, device=XPU, plan=plan, clock=clock)
    assert both[0].times_s == pytest.approx(both[1].times_s)
    assert both[0].stopped == "precise: 12 rounds"
    assert len(alone.times_s) >= 27


def test_budgets_mean_the_same_patience_on_every_clock() -> None:
    plain = measure(FakeClock(0.03), precision=1e-12)
    fast = measure(FakeClock(0.0003, wall_per_s=100.0), precision=1e-12)
    assert len(fast.times_s) == len(plain.times_s)
    assert fast.number_per_run == plain.number_per_run
    assert fast.times_s == pytest.approx([t / 100 for t in plain.times_s])


@pytest.mark.parametrize(("warmup", "calls"), [(0, 2), (1, 2), (2, 3), (5, 6)])
def test_warm_up_is_outside_the_samples(warmup: int, calls: int) -> None:
    clock = FakeClock(0.005)
    measure(clock, warmup=warmup, rounds=1)
    assert clock.log.count("work") == calls + 1  # the first, warm-up, probe; a sample


# -- who comes when --


def order_of(seed: int, rounds: int = 200) -> list[str]:
    """Names of all arms and the anchor, "r" the first, in the order of the rounds."""
    clock = FakeClock(0.005)
    clock.anchor_s = 0.005
    arms = [clock.arm(name) for name in "rst"]
    plan = Plan(rounds=rounds)
    timing.interleave(arms, device=XPU, plan=plan, clock=clock, seed=seed)
    names = [name for name in clock.log if name != "synchronize"]
    return names[-4 * rounds :]


def test_the_first_arm_alternates_and_the_others_are_shuffled() -> None:
    order = order_of(seed=0)
    rounds = [order[i : i + 4] for i in range(0, len(order), 4)]
    assert all(sorted(r) == ["anchor", "r", "s", "t"] for r in rounds)
    places = [r.index("r") for r in rounds]
    assert places == [0, 3] * 100
    others = {tuple(n for n in r if n != "r") for r in rounds}
    assert len(others) == 6  # all orders of three


def test_the_order_is_that_of_the_seed() -> None:
    assert order_of(seed=1) == order_of(seed=1)
    assert order_of(seed=1) != order_of(seed=2)


def test_arms_of_one_group_share_their_rounds_and_the_anchor() -> None:
    clock = FakeClock(0.0004)
    arms = [clock.arm("a"), clock.arm("b", 2.0), clock.arm("c", 0.5)]
    found = timing.interleave(arms, device=XPU, clock=clock)
    assert len({len(f.times_s) for f in found}) == 1
    assert len({(f.anchor_s, f.stopped, f.decided_by) for f in found}) == 1
    assert found[0].anchor_s == pytest.approx([1e-5] * len(found[0].times_s))
    ratios = [f.times_s[0] / found[0].times_s[0] for f in found]
    assert ratios == pytest.approx([1.0, 2.0, 0.5])


@pytest.mark.parametrize("names", [("a", "a"), ("a", core.ANCHOR)])
def test_arms_need_names_of_their_own(names: tuple[str, ...]) -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match="wanted arms of different names, found a, "):
        timing.interleave([clock.arm(n) for n in names], device=XPU, clock=clock)


def test_no_arms_no_times() -> None:
    assert timing.interleave([], device=XPU, clock=FakeClock()) == ()


def test_copies_of_the_data_are_taken_in_turn_across_samples() -> None:
    clock = FakeClock(0.005)
    calls = tuple(lambda n=n: clock.work(n) for n in "abc")
    arm = Arm(name="arm", calls=calls)
    timing.measure(arm, device=XPU, plan=Plan(rounds=9), clock=clock)
    names = [name for name in clock.log if name in "abc"]
    assert all(("abc" * 2).find(a + b) >= 0 for a, b in pairwise(names)), names


# -- garbage collection --


@pytest.fixture
def collector() -> Iterator[None]:
    """Leave the garbage collector as it was."""
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("before", [True, False])
def test_garbage_collection_rests_meanwhile_and_is_restored(before: bool) -> None:
    (gc.enable if before else gc.disable)()
    clock = FakeClock()
    seen = set()

    def work() -> None:
        seen.add(gc.isenabled())
        clock.work()

    timing.measure(work, device=XPU, clock=clock)
    assert gc.isenabled() is before
    assert seen == {False}
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("collector")
def test_garbage_collection_is_restored_after_an_error() -> None:
    gc.enable()
    clock = FakeClock()

    def fails_late() -> None:
        clock.work()
        if clock.log.count("work") > 20:
            raise OSError("late")

    with pytest.raises(OSError, match="late"):
        timing.measure(fails_late, device=XPU, clock=clock)
    assert gc.isenabled()


# -- which clock decides: real work beside real neighbours --


def summing() -> int:
    """Work of one thread, some hundred microseconds."""
    return sum(range(20_000))


def test_cpu_time_decides_beside_a_competitor(cpu: Device) -> None:
    with timing.competitor() as bound:
        if not bound:
            pytest.skip("this system cannot bind a process to a core")
        arms = [Arm(name=n, calls=(summing,)) for n in "ab"]
        plan = Plan(rounds=200)
        found = timing.interleave(arms, device=cpu, plan=plan)
    for row in found:
        assert row.decided_by == "cpu"
        assert "busy" in row.flags
        assert "waits" not in row.flags
        assert statistics.fmean(row.times_s) > 1.02 * statistics.fmean(row.cpu_times_s)


def test_a_call_that_sleeps_waits_and_the_wall_clock_decides(cpu: Device) -> None:
    plan = Plan(rounds=20)
    found = timing.measure(lambda: time.sleep(0.002), device=cpu, plan=plan)
    assert statistics.median(found.times_s) >= 0.002
    # What it says must not depend on what else this machine does.
    readings = [samplers.Reading(wall_s=0.002, cpu_s=1e-5)] * 20
    assert flags.decides(readings, {}) == "wall"
    assert flags.waits(readings, {})
    assert not flags.waits(readings, {"delay_share": 0.99})


def test_work_of_several_threads_is_decided_by_wall(cpu: Device) -> None:
    """The thread that measures only waits for the one that works: no finding."""
    data = bytes(2**20)
    with ThreadPoolExecutor(1) as pool:
        found = timing.measure(
            lambda: pool.submit(hashlib.sha256, data).result(),
            device=cpu,
            plan=Plan(rounds=30),
        )
    assert found.decided_by == "wall"
    assert "waits" not in found.flags
    assert found.observed["others_share"] > 0.05


@pytest.mark.parametrize("device", [XPU, timing.SIMULATED])
def test_waiting_for_a_device_is_no_finding(device: Device) -> None:
    clock = FakeClock(0.005)
    plan = Plan(rounds=12)
    found = timing.measure(clock.work, device=device, clock=clock, plan=plan)
    assert found.decided_by == "wall"
    assert "waits" not in found.flags


@pytest.mark.parametrize(("device", "decides"), [(XPU, "wall"), (CPU, "cpu")])
def test_waiting_for_a_device_is_no_loss_to_neighbours(
    monkeypatch: pytest.MonkeyPatch, device: Device, decides: str
) -> None:
    monkeypatch.setattr(Evidence, "since", lambda *_: {"delay_share": 0.5})
    clock = FakeClock(0.005)
    plan = Plan(rounds=12)
    found = timing.measure(clock.work, device=device, clock=clock, plan=plan)
    assert found.decided_by == decides
    assert found.flags == ("busy",)


def test_half_of_the_time_lost_by_itself_is_waiting_on_a_cpu(cpu: Device) -> None:
    clock = FakeClock(0.005)
    plan = Plan(rounds=12)
    found = timing.measure(clock.work, device=cpu, clock=clock, plan=plan)
    assert "waits" in found.flags


def test_a_real_measurement_on_the_cpu(cpu: Device) -> None:
    plan = Plan(budget_s=0.1)
    found = timing.measure(summing, device=cpu, plan=plan)
    assert found.source is Source.MEASURED
    assert len(found.times_s) == len(found.cpu_times_s) == len(found.anchor_s) >= 12
    assert all(0 < t < 1 for t in found.times_s)
    assert {"delay_share", "others_share"} <= set(found.observed)


def test_profiles_differ_in_patience_only() -> None:
    plans = [timing.PLANS[name] for name in ("quick", "class", "full")]
    budgets_s = [plan.budget_s for plan in plans]
    assert budgets_s == sorted(set(budgets_s))
    assert 0.5 <= budgets_s[0] <= budgets_s[-1] <= 5.0
    assert len({replace(plan, budget_s=1.0) for plan in plans}) == 1


# -- the two clocks --


class Ticking:
    """A module `time` that moves by a millisecond with each reading."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        self.now_s += 0.001
        return self.now_s

    thread_time = perf_counter


def test_the_stand_in_is_a_hundred_times_faster(
    monkeypatch: pytest.MonkeyPatch, stand_in: Device, cpu: Device
) -> None:
    found = {}
    for device in (cpu, stand_in):
        monkeypatch.setattr(clocks, "time", Ticking())
        plan = Plan(sample_s=0.005)
        found[device.label] = timing.measure(lambda: None, device=device, plan=plan)
    real, simulated = found["cpu"], found["cuda:0"]
    assert real.source is Source.MEASURED
    assert simulated.source is Source.SIMULATED
    assert len(real.times_s) == len(simulated.times_s)
    ratios = [r / s for r, s in zip(real.times_s, simulated.times_s, strict=True)]
    assert ratios == pytest.approx([clocks.STAND_IN_FACTOR] * len(ratios))
    assert clocks.STAND_IN_FACTOR == 100


def test_which_clock_a_device_gets(stand_in: Device, cpu: Device) -> None:
    assert isinstance(timing.clock_for(stand_in), StandInClock)
    assert type(timing.clock_for(cpu)) is WallClock
    assert type(timing.clock_for(XPU)) is WallClock


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_anchor_is_always_the_same_product(device: str) -> None:
    clocks._anchor_matrices.cache_clear()
    matrix, out, product = clocks._anchor_matrices(device)
    clocks._anchor_product(device)
    assert clocks._anchor_matrices(device)[0] is matrix
    assert out.shape == matrix.shape
    if device == "cpu":
        assert abs(out - product(matrix, matrix)).max() == 0
        assert len(matrix) < 64  # BLAS takes no threads for it
    clocks._anchor_matrices.cache_clear()


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let torch.accelerator.synchronize do something else."""

    def use(function: Callable[..., None]) -> None:
        monkeypatch.setattr(torch.accelerator, "synchronize", function)

    return use


def test_a_gpu_is_waited_for_by_its_own_number(
    accelerator: Callable[..., None], cpu: Device
) -> None:
    waited: list[str] = []
    accelerator(lambda device: waited.append(str(device)))
    WallClock(Device(backend="cuda", name="x", index=1)).synchronize()
    WallClock(Device(backend="rocm", name="x")).synchronize()
    WallClock(cpu).synchronize()
    StandInClock().synchronize()
    assert waited == ["cuda:1", "cuda:0"]


def test_a_gpu_that_answers_no_more_is_lost(accelerator: Callable[..., None]) -> None:
    def fails(_device: Any) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure\nmore lines")

    accelerator(fails)
    wanted = (
        r"^cuda:0 \(Test GPU\) failed while it was in use: "
        r"CUDA error: unspecified launch failure; `gpu-lab doctor` says"
    )
    with pytest.raises(DeviceLost, match=wanted):
        WallClock(GPU).synchronize()
