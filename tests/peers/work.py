"""What is timed, and the company it is timed in."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_lab.records import Device
from gpu_lab.timing import Arm

CPU = Device(backend="cpu", name="this processor")
STEPS = 20_000  # of the work with a known effect: about a quarter of a millisecond
TIMES = 20  # that it is divided into
EFFECT = 0.05
SUMMING, SHORT, PRODUCT = "summing", "short", "product"
SHORT_STEPS, PRODUCTS = 150, 400
TESTS = Path(__file__).resolve().parent.parent


def environment() -> dict[str, str]:
    """Of a child that imports this package."""
    return os.environ | {"PYTHONPATH": str(TESTS)}


def call(kind: str) -> Callable[[], Any]:
    """Work of a kind by name, for processes that get only a word."""
    made = {SUMMING: lambda: summing(STEPS), SHORT: lambda: summing(SHORT_STEPS)}
    return made[kind]() if kind in made else product()


def product() -> Callable[[], Any]:
    """A matrix product of a few milliseconds, in NumPy and one thread."""
    import numpy as np

    matrix = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    out = np.empty_like(matrix)

    def chain() -> None:
        for _ in range(PRODUCTS):  # small ones: BLAS takes no second thread
            np.matmul(matrix[:48, :48], matrix[:48, :48], out=out[:48, :48])

    return chain


def summing(steps: int) -> Callable[[], int]:
    """Work in one thread, in C."""
    numbers = range(steps)
    return lambda: sum(numbers)


def repeated(times: int) -> Callable[[], None]:
    """The same work so many times: twice the times take twice as long, exactly.

    A longer sum would not do: its numbers grow, and with them the time of a step.
    """
    numbers = range(STEPS // TIMES)

    def run() -> None:
        for _ in itertools.repeat(None, times):
            sum(numbers)

    return run


def pair(effect: float) -> list[Arm]:
    """Two arms: the second takes that share longer; 0 for A against A."""
    arms = {"a": TIMES, "b": round(TIMES * (1 + effect))}
    return [Arm(name=name, calls=(repeated(times),)) for name, times in arms.items()]


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
