"""The other half of C3: does an absolute time with its interval hold in a new process?

Unit is the session, a fresh process; five of them make a result, as in a run folder.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from typing import Any

from gpu_lab import compare
from peers import rules, work
from peers.report import Progress, Result

SESSIONS = 5


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Medians of many fresh processes, idle and with a competitor on the core."""
    groups = 24 if full else 6
    found: dict[str, list[list[float]]] = {}
    for name, busy in (("idle", False), ("busy", True)):
        with work.one_core(busy=busy):
            sessions = range(groups * SESSIONS)
            found[name] = [session() for _ in progress.of(sessions, f"C3 {name}")]
    return found


def session() -> list[float]:
    """Median, anchor and the interval from inside of one fresh process."""
    words = [sys.executable, "-m", "peers.session"]
    run = subprocess.run(
        words, cwd=work.TESTS, check=True, capture_output=True, text=True
    )
    return [float(x) for x in json.loads(run.stdout)]


def results(raw: dict[str, Any]) -> list[Result]:
    """C3, absolute: five sessions' interval against the median of all sessions."""
    held, inside, total, processes = 0, 0, 0, 0
    for found in raw.values():
        medians = [f[0] for f in found]
        truth = statistics.median(medians)
        for i in range(0, len(medians), SESSIONS):
            interval = compare.sessions_interval(medians[i : i + SESSIONS])
            held += interval.low <= truth <= interval.high
            total += 1
        inside += sum(low <= truth <= high for _, _, low, high in found)
        processes += len(found)
    spread = {
        k: statistics.stdev(math.log(f[0]) for f in found) for k, found in raw.items()
    }
    texts = ", ".join(f"{k} {100 * s:.1f} %" for k, s in spread.items())
    return [
        Result(
            "C3b",
            "absolute times: interval of five sessions holds the median of all",
            "at least 85 %",
            f"{rules.share(held, total)}; spread between sessions {texts}",
            f"interval from inside one process: {rules.share(inside, processes)}",
            met=held >= 0.85 * total,
        )
    ]
