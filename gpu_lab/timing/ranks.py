"""Times of work that several processes do together: the slowest one decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gpu_lab.timing.clocks import Clock
from gpu_lab.timing.core import no_garbage_collection


class Crowd(Protocol):
    """What is needed of a group of processes."""

    def meet(self) -> None:
        """Return when all of them have come."""

    def all(self, value: Any) -> list[Any]:
        """The values of all of them."""


def across_ranks(
    arms: Mapping[str, Callable[[], Any]],
    *,
    clock: Clock,
    crowd: Crowd,
    rounds: int,
    number: Mapping[str, int] | None = None,
    before: Callable[[], Any] | None = None,
    warmup: int = 2,
    seed: int = 0,
) -> dict[str, tuple[float, ...]]:
    """Seconds of one call of each arm, once a round, of the slowest rank.

    All ranks take the arms of a round in the same random order. Inside the clock: a
    block of calls back to back and the wait for the device, as in nccl-tests. Outside:
    the meeting before it.

    Args:
        number: calls of a block, by arm; 1 where nothing is said.
        before: what is to be done before each block, outside the clock.
    """
    order, shuffled = list(arms), random.Random(seed)
    times: dict[str, list[float]] = {name: [] for name in arms}
    for name in order * warmup:
        arms[name]()
    with no_garbage_collection():
        for _ in range(rounds):
            shuffled.shuffle(order)
            for name in order:
                if before:
                    before()
                calls = (number or {}).get(name, 1)
                times[name].append(_block_s(arms[name], calls, clock, crowd) / calls)
    of_all = {
        name: zip(*crowd.all(found), strict=True) for name, found in times.items()
    }
    return {name: tuple(map(max, of_ranks)) for name, of_ranks in of_all.items()}


def _block_s(call: Callable[[], Any], calls: int, clock: Clock, crowd: Crowd) -> float:
    clock.synchronize()
    crowd.meet()
    start = clock.wall()
    for _ in range(calls):
        call()
    clock.synchronize()
    return clock.wall() - start
