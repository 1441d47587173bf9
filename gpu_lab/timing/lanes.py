"""What host and device do while work is queued: the two lanes of one picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpu_lab.records import Source
from gpu_lab.timing.clocks import Clock, Queue

Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """Seconds since the start of a loop that queues work.

    Attributes:
        host_s: when each call was made and when it came back.
        device_s: when the device worked on each; one span for all of them where the
            device has no clock of its own.
        early_s: when a timer stops that does not wait.
        waited_s: when one stops that waits for the device.
    """

    host_s: Spans
    device_s: Spans
    early_s: float
    waited_s: float
    source: Source

    @property
    def too_fast(self) -> float:
        """How many times too fast the timer is that does not wait."""
        return self.waited_s / self.early_s


def lanes(call: Callable[[], Any], *, clock: Clock, number: int = 20) -> Lanes:
    """Queue `number` calls and watch both lanes, in seconds since the start."""
    clock.synchronize()
    queue = clock if isinstance(clock, Queue) else None
    marks = [queue.mark()] if queue else []
    start = clock.wall()
    host = []
    for _ in range(number):
        began = clock.wall()
        call()
        host.append((began - start, clock.wall() - start))
        marks += [queue.mark()] if queue else []
    early_s = clock.wall() - start
    clock.synchronize()
    waited_s = clock.wall() - start
    ends = [marks[0].seconds_to(mark) for mark in marks] or [0.0, waited_s]
    return Lanes(
        host_s=tuple(host),
        device_s=tuple(pairwise(ends)),
        early_s=early_s,
        waited_s=waited_s,
        source=clock.source,
    )
