"""C12: what the monitor costs, paired with the same work alone; how it ends."""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from gpu_lab import monitor
from gpu_lab.hardware import nvml
from peers.report import Progress, Result

LIMITS = {2.0: 0.01, 10.0: 0.02}  # samples a second -> share of a core
REPLAYED = Path(__file__).parents[1] / "fixtures" / "standin" / "nvml.json"
LONG_S = 600.0  # of the memory


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """CPU seconds of this process with and without the monitor, round by round.

    A driver's answers are replayed, so that all questions to a GPU are asked.
    """
    rounds, seconds = (20, 3.0) if full else (20, 1.0)
    os.environ[nvml.REPLAY_VARIABLE] = str(REPLAYED)
    costs: dict[str, list[float]] = {f"{rate:g}": [] for rate in LIMITS}
    stops: list[float] = []
    monitor.Reader().read()  # what is loaded once
    try:
        for _ in progress.of(range(rounds), "C12 cost"):
            alone = cpu_share(seconds)
            for rate in LIMITS:
                watcher = monitor.Monitor(1 / rate).start()
                costs[f"{rate:g}"].append(cpu_share(seconds) - alone)
                start = time.monotonic()
                watcher.stop()
                stops.append((time.monotonic() - start) * rate)
        grown = growth(LONG_S if full else 20.0)
    finally:
        del os.environ[nvml.REPLAY_VARIABLE]
    left = sum(thread.name == "monitor" for thread in threading.enumerate())
    return {"costs": costs, "stops": stops, "left": left, "grown": grown}


def cpu_share(seconds: float) -> float:
    """Share of a core that this process used while its main thread slept."""
    cpu, wall = time.process_time(), time.perf_counter()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def growth(seconds: float) -> int:
    """Bytes by which the process grew in the second half, at 10 samples a second."""
    watcher, rss = monitor.Monitor(0.1).start(), []
    for _ in range(2):
        time.sleep(seconds / 2)
        rss.append(psutil.Process().memory_info().rss)
    watcher.stop()
    return int(rss[1] - rss[0])


def results(raw: dict[str, Any]) -> list[Result]:
    """C12."""
    medians = {rate: statistics.median(raw["costs"][f"{rate:g}"]) for rate in LIMITS}
    told = ", ".join(f"{100 * m:.2f} % at {r:g} Hz" for r, m in medians.items())
    longest = max(raw["stops"])
    return [
        Result(
            "C12",
            "monitor: cost, end, memory",
            "<= 1 % of a core at 2 Hz, <= 2 % at 10 Hz; stop <= 1 period; no thread "
            "left; no growth (below 1 MiB)",
            f"{told}; stop {longest:.2f} periods; {raw['left']} threads left; "
            f"{raw['grown'] / 2**20:.2f} MiB",
            "a bare thread: about 1 % at both",
            met=all(m <= LIMITS[r] for r, m in medians.items())
            and longest <= 1.05
            and raw["left"] == 0
            and raw["grown"] < 2**20,
        )
    ]
