"""measure() by a clock that only moves when told."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpu_lab import timing
from gpu_lab.records import Device, DeviceLost, Source
from gpu_lab.timing import Plan, StandInClock, WallClock, clocks, core

GPU = Device(backend="cuda", name="Test GPU")


class FakeClock:
    """Stands still, except while `work` runs; writes down who asked for what."""

    source = Source.SIMULATED

    def __init__(self, costs_s: float = 0.001, *, wall_per_s: float = 1.0) -> None:
        self.wall_per_s = wall_per_s
        self.costs_s = costs_s
        self.now_s = 100.0
        self.log: list[str] = []

    def wall(self) -> float:
        self.log.append("wall")
        return self.now_s

    def cpu(self) -> float:
        self.log.append("cpu")
        return self.now_s / 2

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def work(self) -> None:
        self.log.append("work")
        self.now_s += self.costs_s

    @property
    def calls(self) -> int:
        """How often the work ran."""
        return self.log.count("work")


def measure(clock: FakeClock, **plan: Any) -> timing.Timing:
    """Time the clock's own work."""
    given = {"budget_s": 1.0, **plan}
    return timing.measure(clock.work, device=GPU, plan=Plan(**given), clock=clock)


def test_times_are_of_one_call() -> None:
    found = measure(FakeClock(0.001))
    assert found.number_per_run == 5  # 5 ms a sample
    assert found.times_s == pytest.approx([0.001] * len(found.times_s))
    assert found.cpu_times_s == pytest.approx([0.0005] * len(found.times_s))
    assert found.source is Source.SIMULATED


@pytest.mark.parametrize(
    ("costs_s", "number"),
    [
        (1.0, 1),
        (0.005, 1),
        (0.0034, 1),
        (0.001, 5),
        (0.0001, 50),
        (1e-6, 5000),
        (1e-12, core.MAX_CALLS),
        (0.0, core.MAX_CALLS),
    ],
)
def test_calls_that_fill_a_sample(costs_s: float, number: int) -> None:
    clock = FakeClock(costs_s)
    plan = Plan(budget_s=1.0)
    assert core._calls_per_sample(clock.work, plan=plan, clock=clock) == number
    assert clock.calls <= 1 + 2 + 4


def test_the_budget_ends_the_samples() -> None:
    found = measure(FakeClock(0.1), budget_s=2.0, max_samples=1000)
    assert len(found.times_s) in (19, 20)  # 20 x 0.1 s, up to rounding


def test_no_more_samples_than_planned() -> None:
    assert len(measure(FakeClock(0.001), max_samples=7).times_s) == 7


def test_the_minimum_of_samples_is_worth_four_budgets() -> None:
    assert len(measure(FakeClock(0.25), min_samples=12).times_s) == 12
    assert len(measure(FakeClock(0.5), min_samples=12).times_s) == 8
    assert len(measure(FakeClock(3.0), min_samples=12).times_s) == 1


def test_one_sample_is_always_taken() -> None:
    clock = FakeClock(1000.0)
    assert measure(clock).times_s == (1000.0,)
    assert clock.calls == 2 + 1 + 1  # warm-up, one probe, one sample


def test_order_of_one_sample() -> None:
    clock = FakeClock()
    core._block(clock.work, 2, clock=clock)
    assert clock.log == [
        "synchronize",
        *("cpu", "wall"),
        *("work", "work"),
        "synchronize",
        *("wall", "cpu"),
    ]


def test_warm_up_is_outside_the_clock() -> None:
    clock = FakeClock()
    measure(clock, warmup=3)
    assert clock.log[:4] == ["work", "work", "work", "synchronize"]


def test_budgets_mean_the_same_patience_on_every_clock() -> None:
    plain = measure(FakeClock(0.1), budget_s=2.05)
    fast = measure(FakeClock(0.001, wall_per_s=100.0), budget_s=2.05)
    assert len(fast.times_s) == len(plain.times_s)
    assert fast.number_per_run == plain.number_per_run
    assert fast.times_s == pytest.approx([t / 100 for t in plain.times_s])


@pytest.fixture
def collector() -> Any:
    """Leave the garbage collector as it was."""
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("before", [True, False])
def test_garbage_collection_rests_meanwhile_and_is_restored(before: bool) -> None:
    (gc.enable if before else gc.disable)()
    clock = FakeClock()
    seen = []
    plan = Plan(budget_s=1.0, warmup=0)

    def work() -> None:
        seen.append(gc.isenabled())
        clock.work()

    timing.measure(work, device=GPU, plan=plan, clock=clock)
    assert gc.isenabled() is before
    assert seen[-1] is False


@pytest.mark.usefixtures("collector")
def test_garbage_collection_is_restored_after_an_error() -> None:
    gc.enable()
    clock = FakeClock()

    def fails_late() -> None:
        clock.work()
        if clock.calls > 20:
            raise OSError("late")

    with pytest.raises(OSError, match="late"):
        timing.measure(fails_late, device=GPU, clock=clock)
    assert gc.isenabled()


def test_cpu_times_are_never_below_zero() -> None:
    clock = FakeClock()
    ticks = iter(range(10**6, 0, -1))
    clock.cpu = lambda: float(next(ticks))  # type: ignore[method-assign]
    assert set(measure(clock).cpu_times_s) == {0.0}


@pytest.mark.parametrize("name", ["quick", "class", "full"])
def test_profiles_have_a_plan(name: str) -> None:
    plan = timing.PLANS[name]
    assert 0 < plan.sample_s < plan.budget_s
    assert 1 < plan.min_samples < plan.max_samples


# -- the two clocks --


class Ticking:
    """A module `time` that moves by one second with each reading."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0

    def perf_counter(self) -> float:
        self.wall_s += 1.0
        return self.wall_s

    def thread_time(self) -> float:
        self.cpu_s += 1.0
        return self.cpu_s


def test_the_stand_in_is_a_hundred_times_faster(
    monkeypatch: pytest.MonkeyPatch, stand_in: Device, cpu: Device
) -> None:
    found = {}
    for device in (cpu, stand_in):
        monkeypatch.setattr(clocks, "time", Ticking())
        found[device.label] = timing.measure(lambda: None, device=device)
    real, simulated = found["cpu"], found["cuda:0"]
    assert real.source is Source.MEASURED
    assert simulated.source is Source.SIMULATED
    assert len(real.times_s) == len(simulated.times_s)
    ratios = [r / s for r, s in zip(real.times_s, simulated.times_s, strict=True)]
    assert ratios == pytest.approx([clocks.STAND_IN_FACTOR] * len(ratios))
    assert clocks.STAND_IN_FACTOR == 100


def test_which_clock_a_device_gets(stand_in: Device, cpu: Device) -> None:
    assert isinstance(timing.clock_for(stand_in), StandInClock)
    assert isinstance(timing.clock_for(cpu), WallClock)
    assert isinstance(timing.clock_for(GPU), WallClock)


def test_a_real_measurement_on_the_cpu(cpu: Device) -> None:
    plan = Plan(budget_s=0.02, min_samples=3, sample_s=0.001)
    found = timing.measure(lambda: sum(range(1000)), device=cpu, plan=plan)
    assert found.source is Source.MEASURED
    assert len(found.times_s) == len(found.cpu_times_s) >= 3
    assert all(0 < t < 1 for t in found.times_s)


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
        timing.measure(lambda: None, device=GPU)
