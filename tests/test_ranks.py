"""Times across ranks, with a clock and a crowd of the test's own."""

from __future__ import annotations

from typing import Any

from gpu_lab.records import Source
from gpu_lab.timing import across_ranks


class Clock:
    """A clock that moves only when work is done."""

    source, wall_per_s = Source.SIMULATED, 1.0

    def __init__(self) -> None:
        self.now, self.log = 0.0, list[str]()

    def wall(self) -> float:
        return self.now

    def cpu(self) -> float:
        return self.now

    def synchronize(self) -> None:
        self.log.append("wait")

    def anchor(self) -> None:
        return None

    def work(self, seconds: float, name: str) -> None:
        self.now += seconds
        self.log.append(name)


class Crowd:
    """This rank and one that is always twice as slow in odd rounds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def meet(self) -> None:
        self.clock.work(100.0, "meet")

    def all(self, value: Any) -> list[Any]:
        return [value, [t * (2 if i % 2 else 0.5) for i, t in enumerate(value)]]


def taken(**options: Any) -> tuple[dict[str, tuple[float, ...]], list[str]]:
    clock = Clock()
    arms = {
        "a": lambda: clock.work(1.0, "a"),
        "b": lambda: clock.work(3.0, "b"),
    }
    times = across_ranks(arms, clock=clock, crowd=Crowd(clock), rounds=4, **options)
    return times, clock.log


def test_the_slowest_rank_of_each_round_counts_and_meeting_does_not() -> None:
    times, _ = taken()
    assert times == {"a": (1.0, 2.0, 1.0, 2.0), "b": (3.0, 6.0, 3.0, 6.0)}


def test_a_block_is_timed_between_two_waits_after_the_meeting() -> None:
    _, log = taken(number={"a": 2}, warmup=0)
    text = " ".join(log)
    assert text.count("wait meet a a wait") == text.count("wait meet b wait") == 4
    assert text.count("meet") == 8


def test_calls_back_to_back_are_divided_and_all_ranks_share_the_order() -> None:
    times, first = taken(number={"a": 5}, seed=1)
    _, second = taken(number={"a": 5}, seed=1)
    assert times["a"] == (1.0, 2.0, 1.0, 2.0)
    assert first == second


def test_what_is_to_be_done_before_a_block_is_outside_the_clock() -> None:
    clock = Clock()
    times = across_ranks(
        {"a": lambda: clock.work(1.0, "a")},
        clock=clock,
        crowd=Crowd(clock),
        rounds=1,
        before=lambda: clock.work(7.0, "before"),
    )
    assert times == {"a": (1.0,)}
    assert "before" in clock.log
