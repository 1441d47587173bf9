"""Samples on the host's clock, and on a device's queue behind a backlog."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from gpu_lab.records import DeviceState, Source
from gpu_lab.timing import Model, SimulatedGpu, samplers
from gpu_lab.timing.samplers import HostSampler, QueueSampler, Turns


class FakeClock:
    """Moves while work runs and, if wanted, with each reading."""

    source, wall_per_s = Source.SIMULATED, 1.0

    def __init__(self, costs_s: float = 0.001, read_s: float = 0.0) -> None:
        self.costs_s, self.read_s = costs_s, read_s
        self.now_s = 0.0
        self.log: list[str] = []

    def wall(self) -> float:
        self.log.append("wall")
        self.now_s += self.read_s
        return self.now_s

    def cpu(self) -> float:
        self.log.append("cpu")
        return self.now_s / 4

    def synchronize(self) -> None:
        self.log.append("synchronize")

    def anchor(self) -> None:
        """No anchor in here."""

    def work(self) -> None:
        self.log.append("work")
        self.now_s += self.costs_s


# -- taking turns --


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_a_block_goes_on_where_the_last_one_ended(names: str) -> None:
    made: list[str] = []
    turns = Turns([lambda n=n: made.append(n) for n in names])
    for number in (0, 1, 4, 2, 0, 5):
        turns.run(number)
    assert "".join(made) == (names * 12)[:12]


# -- the host's clock --


def test_order_of_one_sample() -> None:
    clock = FakeClock()
    sampler = HostSampler(clock)
    clock.log.clear()
    (found,) = sampler.samples([(Turns([clock.work]), 2)])
    assert clock.log == [
        "synchronize",
        *("cpu", "wall"),
        *("work", "work"),
        "synchronize",
        *("wall", "cpu"),
    ]
    assert (found.wall_s, found.cpu_s) == pytest.approx((0.002, 0.0005))


@pytest.mark.parametrize(
    ("read_s", "sample_s"), [(0.0, 0.0005), (1e-7, 0.0005), (1e-5, 0.012)]
)
def test_samples_are_long_against_the_cost_of_the_clock(
    read_s: float, sample_s: float
) -> None:
    found = HostSampler(FakeClock(read_s=read_s)).sample_s
    assert found == pytest.approx(sample_s)


@pytest.mark.parametrize(
    ("costs_s", "number"),
    [
        (1.0, 1),
        (0.001, 1),
        (0.0007, 1),
        (0.0002, 5),
        (0.00002, 50),
        (1e-6, 1000),
        (1e-12, samplers.MAX_CALLS),
        (0.0, samplers.MAX_CALLS),
    ],
)
def test_calls_that_fill_a_sample(costs_s: float, number: int) -> None:
    clock = FakeClock(costs_s)
    assert HostSampler(clock).calls_for(Turns([clock.work]), 0.001) == number
    assert clock.log.count("work") <= 1 + 2 + 4


def test_the_fastest_probe_counts() -> None:
    clock = FakeClock()
    costs = iter([0.0009, *[0.0001] * 2, *[0.0002] * 4])

    def unsteady() -> None:
        clock.now_s += next(costs)

    assert HostSampler(clock).calls_for(Turns([unsteady]), 0.001) == 10


# -- the device's queue --


class Watched(SimulatedGpu):
    """A simulated device that writes down what is asked of it."""

    def __init__(self, model: Model | None = None, *, seed: int = 0) -> None:
        super().__init__(model, seed=seed)
        self.log: list[str] = []
        self.holds_s: list[float] = []

    def synchronize(self) -> None:
        self.log.append("synchronize")
        super().synchronize()

    def hold(self, hold_s: float) -> None:
        self.log.append("hold")
        self.holds_s.append(hold_s)
        super().hold(hold_s)

    def mark(self) -> Any:
        self.log.append("mark")
        return super().mark()

    def work(self) -> None:
        self.log.append("work")
        self.kernel(10e-6)


QUIET = Model(noise=0.0, gap_s=1e-6, launch_s=5e-6)


def test_one_round_waits_once_at_its_end() -> None:
    gpu = Watched(QUIET)
    sampler = QueueSampler(gpu)
    blocks = [(Turns([gpu.work]), 3), (Turns([gpu.work]), 2)]
    sampler.samples(blocks)  # finds out how long to hold
    gpu.log.clear()
    found = sampler.samples(blocks)
    block = ["hold", "mark", *["work"] * 3, "mark"]
    assert gpu.log == [*block, "hold", "mark", "work", "work", "mark", "synchronize"]
    assert [r.wall_s for r in found] == pytest.approx([33e-6, 22e-6])
    assert [r.cpu_s for r in found] == pytest.approx([15e-6, 10e-6])
    assert not any(r.launch_bound for r in found)


def test_the_device_is_held_for_longer_than_queueing_takes() -> None:
    gpu = Watched(QUIET)
    QueueSampler(gpu).samples([(Turns([gpu.work]), 100)])
    assert gpu.holds_s == [pytest.approx(samplers.BACKLOG * 500e-6, rel=0.01)]


def test_a_late_host_doubles_the_hold_once_and_then_says_so() -> None:
    gpu = Watched(Model(noise=0.0, depth=8))  # a queue too short for the block
    sampler = QueueSampler(gpu)
    block = (Turns([gpu.work]), 100)
    for _ in range(3):
        (found,) = sampler.samples([block])
        assert found.launch_bound
    first, *later = gpu.holds_s
    assert later == [2 * first] * 3


def test_a_host_that_was_late_once_is_caught_by_twice_the_hold() -> None:
    gpu = Watched(QUIET)
    turn = count()

    def stumbles() -> None:
        gpu._now_s += 2e-3 if next(turn) == 250 else 0.0
        gpu.work()

    (found,) = QueueSampler(gpu).samples([(Turns([stumbles]), 100)])
    assert len(gpu.holds_s) == 2
    assert not found.launch_bound
    assert found.wall_s == pytest.approx(100 * 11e-6)


@pytest.mark.parametrize(
    ("kernel_s", "number"),
    [(1.0, 1), (1e-3, 1), (99e-6, 10), (1e-6, samplers.MAX_LAUNCHES)],
)
def test_launches_that_fill_a_sample(kernel_s: float, number: int) -> None:
    gpu = SimulatedGpu(QUIET)
    turns = Turns([lambda: gpu.kernel(kernel_s)])
    assert QueueSampler(gpu).calls_for(turns, 0.001) == number


# -- warming up --


def warmed(gpu: SimulatedGpu, kernel_s: Callable[[], float]) -> tuple[float, ...]:
    """Windows of a warm-up with kernels of that length."""
    turns = Turns([lambda: gpu.kernel(kernel_s())])
    return QueueSampler(gpu).warm_up(turns, 10)


def test_two_windows_that_agree_are_warm() -> None:
    gpu = SimulatedGpu(QUIET)
    found = warmed(gpu, lambda: 100e-6)
    assert len(found) == 2
    assert gpu.wall() >= samplers.WARM_MIN_S
    assert found[0] == pytest.approx(101e-6, rel=0.02)


def test_the_curve_from_burst_to_sustained_is_kept() -> None:
    gpu = SimulatedGpu(QUIET)
    found = warmed(gpu, lambda: 100e-6 if gpu._now_s < 0.4 else 150e-6)
    assert len(found) == 4
    assert found[0] < 1.02 * 101e-6
    assert found[-1] == pytest.approx(found[-2], rel=samplers.STEADY)


def test_what_never_settles_ends_after_five_seconds() -> None:
    gpu = SimulatedGpu(QUIET)
    found = warmed(gpu, lambda: 100e-6 * (1 + gpu._now_s))
    assert 5.0 <= gpu.wall() < 5.5
    assert list(found) == sorted(found)


def test_a_clock_that_still_moves_is_not_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = iter([1000, 1500, 1900, 1905, 1905])
    gpu = SimulatedGpu(QUIET)
    states = (DeviceState(clock_sm_mhz=mhz) for mhz in clocks)
    monkeypatch.setattr(gpu, "state", lambda: next(states))
    assert len(warmed(gpu, lambda: 100e-6)) == 4


@pytest.mark.parametrize("state", [None, DeviceState()])
def test_a_clock_that_nobody_tells_does_not_hinder(
    monkeypatch: pytest.MonkeyPatch, state: DeviceState | None
) -> None:
    gpu = SimulatedGpu(QUIET)
    monkeypatch.setattr(gpu, "state", lambda: state)
    assert len(warmed(gpu, lambda: 100e-6)) == 2
