"""Taking one sample: on the host's clock, or on the device's own behind a backlog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from typing import Any, Protocol

from gpu_lab.timing.clocks import Clock, Event, Queue

# A sample is so many times as long as one of nothing: the clocks are below 0.1 %.
SHORTEST_S, OWN_COSTS, EMPTY_SAMPLES = 0.0005, 1200.0, 20
PROBES = 3  # growing blocks to find how many calls fill one sample
MAX_CALLS = 1_000_000
MAX_LAUNCHES = 500  # a driver's queue has an end; nvbench warns about its depth
BACKLOG = 1.5  # hold the device for that many times what queueing takes
WINDOW_S, WARM_MIN_S, WARM_MAX_S, STEADY = 0.25, 0.3, 5.0, 0.01


class Turns:
    """Calls taken in turn: each block goes on where the last one ended.

    Otherwise a block would begin with the data that the last one has left in a cache.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        """One call to be repeated, or several to be taken in turn."""
        self._only = calls[0] if len(calls) == 1 else None
        self._all = cycle(calls)

    def run(self, number: int) -> None:
        """Make that many calls."""
        if self._only:
            call = self._only
            for _ in repeat(None, number):
                call()
        else:
            for call in islice(self._all, number):
                call()


Block = tuple[Turns, int]


@dataclass(frozen=True)
class Reading:
    """One sample: seconds of the whole block of calls.

    `launch_bound`: the device had caught up with the host before the block began.
    """

    wall_s: float
    cpu_s: float = 0.0
    launch_bound: bool = False


class Sampler(Protocol):
    """How samples are taken."""

    sample_s: float
    precision: float

    def block_s(self, turns: Turns, number: int) -> float:
        """Seconds of one block, by itself."""

    def calls_for(self, turns: Turns, target_s: float) -> int:
        """Number of calls that fill a sample."""

    def samples(self, blocks: Sequence[Block]) -> list[Reading]:
        """One round: a sample of each block, in that order."""


class HostSampler:
    """Wall and CPU time of a block, up to the moment when the device is done."""

    precision = 0.02

    def __init__(self, clock: Clock) -> None:
        """Samples by this clock, long against what reading it costs.

        Not longer: on a machine whose speed wanders, twice as many rounds of half the
        length agree better, because neighbours in time see the same speed.
        """
        self._clock = clock
        nothing = Turns([clock.cpu])
        empty_s = min(self._sample(nothing, 0).wall_s for _ in range(EMPTY_SAMPLES))
        self.sample_s = max(SHORTEST_S, OWN_COSTS * empty_s)

    def block_s(self, turns: Turns, number: int) -> float:
        """Wall seconds of one block."""
        return self._sample(turns, number).wall_s

    def calls_for(self, turns: Turns, target_s: float) -> int:
        """Number of calls that fill a sample, from the fastest of growing blocks."""
        return _calls_for(lambda n: self.block_s(turns, n), target_s, MAX_CALLS)

    def samples(self, blocks: Sequence[Block]) -> list[Reading]:
        """One sample of each block, one after the other."""
        return [self._sample(turns, number) for turns, number in blocks]

    def _sample(self, turns: Turns, number: int) -> Reading:
        clock = self._clock
        clock.synchronize()
        cpu, wall = clock.cpu(), clock.wall()
        turns.run(number)
        clock.synchronize()
        wall = clock.wall() - wall
        return Reading(wall, clock.cpu() - cpu)


class QueueSampler:
    """Device time of a block between two marks, queued while the device is held.

    The device must still be busy with the hold when the block is queued; otherwise
    the time between the marks contains the host's pace: the sample is launch-bound.
    """

    sample_s = 0.001
    precision = 0.005

    def __init__(self, queue: Queue) -> None:
        """Samples on this device's queue."""
        self._queue = queue
        self._hold_s: dict[Block, float] = {}
        self._late: set[Block] = set()  # the hold was doubled once; never again

    def block_s(self, turns: Turns, number: int) -> float:
        """Device seconds of one block."""
        return self.samples([(turns, number)])[0].wall_s

    def calls_for(self, turns: Turns, target_s: float) -> int:
        """Number of calls that fill a sample, and never more than a queue holds."""
        return _calls_for(lambda n: self.block_s(turns, n), target_s, MAX_LAUNCHES)

    def samples(self, blocks: Sequence[Block]) -> list[Reading]:
        """Queue all blocks of a round, wait once at its end, then read the marks."""
        waiting = [self._enqueue(block) for block in blocks]
        self._queue.synchronize()
        return [
            Reading(start.seconds_to(stop), cpu_s, launch_bound=not pending)
            for start, stop, pending, cpu_s in waiting
        ]

    def warm_up(self, turns: Turns, number: int) -> tuple[float, ...]:
        """Repeat a block until two windows agree and the clock is steady.

        Returns:
            Seconds of one call in each window, for the curve from burst to sustained.
        """
        windows: list[float] = []
        clocks: list[int | None] = []
        start = self._queue.wall()
        while self._queue.wall() - start < WARM_MAX_S:
            windows.append(self._window(turns, number))
            state = self._queue.state()
            clocks.append(state.clock_sm_mhz if state else None)
            long_enough = self._queue.wall() - start >= WARM_MIN_S
            if long_enough and _steady(windows) and _steady(clocks):
                break
        return tuple(windows)

    def _window(self, turns: Turns, number: int) -> float:
        start, blocks = self._queue.wall(), 0
        while self._queue.wall() - start < WINDOW_S:
            turns.run(number)
            self._queue.synchronize()
            blocks += 1
        return (self._queue.wall() - start) / (blocks * number)

    def _enqueue(self, block: Block) -> tuple[Event, Event, bool, float]:
        """Queue one block behind a hold; once more behind twice the hold if late."""
        found = self._attempt(block)
        if found[2] or block in self._late:
            return found
        self._late.add(block)
        self._hold_s[block] *= 2
        return self._attempt(block)

    def _attempt(self, block: Block) -> tuple[Event, Event, bool, float]:
        turns, number = block
        if block not in self._hold_s:
            self._hold_s[block] = BACKLOG * self._queueing_s(turns, number)
        self._queue.hold(self._hold_s[block])
        cpu = self._queue.cpu()
        start = self._queue.mark()
        turns.run(number)
        pending = not start.done()
        stop = self._queue.mark()
        return start, stop, pending, self._queue.cpu() - cpu

    def _queueing_s(self, turns: Turns, number: int) -> float:
        """Host seconds that queueing this block takes."""
        turns.run(number)  # the very first call loads libraries, and is no queueing
        self._queue.synchronize()
        start = self._queue.wall()
        turns.run(number)
        spent_s = self._queue.wall() - start
        self._queue.synchronize()
        return spent_s


def _calls_for(block_s: Callable[[int], float], target_s: float, most: int) -> int:
    number, fastest = 1, float("inf")
    for _ in range(PROBES):
        taken_s = block_s(number)
        fastest = min(fastest, taken_s / number)
        if taken_s >= target_s:
            break
        number *= 2
    return min(most, max(1, round(target_s / max(fastest, 1e-9))))


def _steady(values: Sequence[float | None]) -> bool:
    """Whether the last two values agree; unknown ones do not disagree."""
    if len(values) < 2:
        return False
    last, before = values[-1], values[-2]
    if last is None or before is None:
        return True
    return abs(last - before) <= STEADY * before
