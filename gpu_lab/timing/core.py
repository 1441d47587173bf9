"""measure(): repeated times of one call, by the clock of its device."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpu_lab.records import Device, Source
from gpu_lab.timing.clocks import Clock, clock_for

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBES = 3  # growing blocks to find how many calls fill one sample
MAX_CALLS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to measure: budget in wall seconds, samples, seconds a sample."""

    budget_s: float
    min_samples: int = 12
    max_samples: int = 60
    sample_s: float = 0.005
    warmup: int = 2


QUICK = Plan(budget_s=1.0)
CLASS = Plan(budget_s=2.0)
FULL = Plan(budget_s=5.0, max_samples=200)
PLANS = {"quick": QUICK, "class": CLASS, "full": FULL}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of one call, one entry per sample, wall and CPU."""

    times_s: tuple[float, ...]
    cpu_times_s: tuple[float, ...]
    number_per_run: int
    source: Source


def measure(
    call: Callable[[], Any],
    *,
    device: Device,
    plan: Plan = QUICK,
    clock: Clock | None = None,
) -> Timing:
    """Wall and CPU time of one call, in seconds, repeated.

    Inside the clock: a block of calls and the wait for the device after the block.
    Outside: warm-up, finding the block length, garbage collection.

    Args:
        call: prepared work without arguments; allocate its data before.
        plan: budget and samples. One sample is always taken; fewer than
            `min_samples` only when the budget does not allow more.
        clock: for tests; otherwise the clock that belongs to `device`.

    Raises:
        DeviceLost: the device vanished during the run.
    """
    clock = clock or clock_for(device)
    plan = _in_seconds_of(clock, plan)
    for _ in range(plan.warmup):
        call()
    number = _calls_per_sample(call, plan=plan, clock=clock)
    wall, cpu = _samples(call, number, plan=plan, clock=clock)
    return Timing(
        times_s=tuple(w / number for w in wall),
        cpu_times_s=tuple(c / number for c in cpu),
        number_per_run=number,
        source=clock.source,
    )


def _in_seconds_of(clock: Clock, plan: Plan) -> Plan:
    """The plan, whose seconds are those of the wall, in seconds of this clock."""
    return replace(
        plan,
        budget_s=plan.budget_s / clock.wall_per_s,
        sample_s=plan.sample_s / clock.wall_per_s,
    )


def _calls_per_sample(call: Callable[[], Any], *, plan: Plan, clock: Clock) -> int:
    """Calls that fill one sample, from the fastest of growing blocks."""
    number, fastest = 1, float("inf")
    for _ in range(PROBES):
        wall, _cpu = _block(call, number, clock=clock)
        fastest = min(fastest, wall / number)
        if wall >= plan.sample_s:
            break
        number *= 2
    wanted = plan.sample_s / max(fastest, 1e-9)
    return min(MAX_CALLS, max(1, round(wanted)))


def _samples(
    call: Callable[[], Any], number: int, *, plan: Plan, clock: Clock
) -> tuple[list[float], list[float]]:
    wall: list[float] = []
    cpu: list[float] = []
    with _no_garbage_collection():
        start = clock.wall()
        while len(wall) < plan.max_samples:
            one_wall, one_cpu = _block(call, number, clock=clock)
            wall.append(one_wall)
            cpu.append(max(one_cpu, 0.0))
            if _over(clock.wall() - start, wall, plan=plan):
                break
    return wall, cpu


def _over(spent_s: float, wall: list[float], *, plan: Plan) -> bool:
    """Stop after the budget, but take the minimum of samples if 4 budgets allow it."""
    limit_s = plan.budget_s if len(wall) >= plan.min_samples else 4 * plan.budget_s
    return spent_s + wall[-1] > limit_s


def _block(
    call: Callable[[], Any], number: int, *, clock: Clock
) -> tuple[float, float]:
    """Wall and CPU seconds of `number` calls and the wait for the device."""
    clock.synchronize()
    cpu_start, start = clock.cpu(), clock.wall()
    for _ in range(number):
        call()
    clock.synchronize()
    stop = clock.wall()
    return stop - start, clock.cpu() - cpu_start


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
