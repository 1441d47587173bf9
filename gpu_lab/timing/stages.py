"""One epoch of loading and computing: who was busy when, and who waited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_lab.records import Source
from gpu_lab.timing.clocks import Clock
from gpu_lab.timing.lanes import Spans


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Seconds since the start of an epoch.

    Attributes:
        loader_s: spans in which each worker loaded a batch; () where nobody told.
        device_s: spans of the steps.
    """

    name: str
    loader_s: tuple[Spans, ...]
    device_s: Spans
    source: Source

    @property
    def waiting(self) -> float:
        """Share of the epoch in which the device had nothing to do."""
        busy_s = sum(stop - start for start, stop in self.device_s)
        return 1 - busy_s / self.device_s[-1][1]


@dataclass(frozen=True)
class Sleeper:
    """Dataset whose samples take a set time that is slept: no core is needed.

    A sample is (worker, start, end) in seconds of the wall clock.
    """

    count: int
    delay_s: float

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import numpy as np
        from torch.utils.data import get_worker_info

        info, start_s = get_worker_info(), time.perf_counter()
        time.sleep(self.delay_s)
        return np.array([info.id if info else 0, start_s, time.perf_counter()])


def loaded(batch: Any) -> tuple[int, float, float]:
    """Worker, start and end of loading a batch of a Sleeper."""
    return int(batch[0, 0]), float(batch[:, 1].min()), float(batch[:, 2].max())


def stages(
    name: str,
    batches: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    clock: Clock,
    loaded: Callable[[Any], tuple[int, float, float]] | None = None,
) -> Stages:
    """Watch one epoch; each step is waited for.

    Args:
        loaded: what a batch tells of its own loading: worker, start and end on the
            wall clock.
    """
    lanes: dict[int, list[tuple[float, float]]] = {}
    steps = []
    start = clock.wall()
    for batch in batches:
        began = clock.wall()
        step(batch)
        clock.synchronize()
        steps.append((began - start, clock.wall() - start))
        if loaded:
            worker, first, last = loaded(batch)
            lanes.setdefault(worker, []).append((first - start, last - start))
    return Stages(
        name=name,
        loader_s=tuple(tuple(lanes[worker]) for worker in sorted(lanes)),
        device_s=tuple(steps),
        source=clock.source,
    )


def simulated_stages(
    name: str,
    loads_s: Sequence[float],
    step_s: float,
    *,
    workers: int,
    prefetch: int = 2,
) -> Stages:
    """One epoch of a DataLoader, event by event: SIMULATED and exact.

    Batches go to the workers in turn and are taken in order; each one that is taken
    makes room for another: `prefetch` a worker.

    Args:
        loads_s: seconds to load each batch.
    """
    lanes: list[list[tuple[float, float]]] = [[] for _ in range(max(1, workers))]
    steps: list[tuple[float, float]] = []
    ahead = workers * prefetch
    for i, load_s in enumerate(loads_s):
        lane, done_s = lanes[i % len(lanes)], steps[-1][1] if steps else 0.0
        asked_s = 0.0 if workers else done_s
        if workers and i >= ahead:
            asked_s = steps[i - ahead][0]
        start_s = max(asked_s, lane[-1][1] if lane else 0.0)
        lane.append((start_s, start_s + load_s))
        taken_s = max(start_s + load_s, done_s)
        steps.append((taken_s, taken_s + step_s))
    loader = tuple(tuple(lane) for lane in lanes if lane)
    return Stages(
        name=name, loader_s=loader, device_s=tuple(steps), source=Source.SIMULATED
    )
