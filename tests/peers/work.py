"""What is timed, and the company it is timed in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpu_lab.records import Device
from gpu_lab.timing import Arm

CPU = Device(backend="cpu", name="this processor")
STEPS = 20_000  # of the work with a known effect: about a quarter of a millisecond
EFFECT = 0.05


def summing(steps: int) -> Callable[[], int]:
    """Work whose time is proportional to its steps, in one thread, in C."""
    numbers = range(steps)
    return lambda: sum(numbers)


def pair(effect: float) -> list[Arm]:
    """Two arms: the second takes that share longer; 0 for A against A."""
    arms = {"a": STEPS, "b": round(STEPS * (1 + effect))}
    return [Arm(name=name, calls=(summing(steps),)) for name, steps in arms.items()]


@contextmanager
def one_core(*, busy: bool) -> Iterator[None]:
    """Everything inside runs on one core; when busy, with a competitor on it."""
    before = os.sched_getaffinity(0)
    core = {max(before)}
    os.sched_setaffinity(0, core)
    competitor = None
    if busy:
        competitor = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        if competitor:
            competitor.kill()
            competitor.wait()
        os.sched_setaffinity(0, before)
