"""C16: the same suite again and again on an unchanged machine, and a planted change.

About half an hour, so only when asked for: `make bench ONLY=C16`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_lab import compare, store
from gpu_lab.course import fresh
from gpu_lab.records import Verdict
from peers import work
from peers.report import Progress, Result

RUNS, SESSIONS, PLANTED = 21, 5, 10
ROW, EXTRA = "matmul_fp32", 0.10
FOLDER = Path("build") / "repeat"
SURE = (Verdict.FASTER, Verdict.SLOWER)


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Runs in a row, every second of the first ones followed by a planted one."""
    for number in progress.of(range(RUNS), "C16 run"):
        for _ in range(SESSIONS - len(_there(f"{number}"))):
            cause = fresh.session(
                device="cpu", profile="quick", seed=0, out=FOLDER / f"{number}"
            )
            if cause:
                raise RuntimeError(cause)
    for number in progress.of(range(PLANTED), "C16 planted"):
        for _ in range(SESSIONS - len(_there(f"planted-{number}"))):
            words = [sys.executable, "-m", "peers.planted"]
            words += [str(FOLDER / f"planted-{number}")]
            subprocess.run(words, check=True, cwd=Path.cwd(), env=work.environment())
    same = [_verdicts(f"{n}", f"{n + 1}") for n in range(RUNS - 1)]
    # The planted ones came after all others: each against one of the last runs.
    first = RUNS - PLANTED
    planted = [_verdicts(f"{first + n}", f"planted-{n}") for n in range(PLANTED)]
    return {"same": same, "planted": planted}


def results(raw: dict[str, Any]) -> list[Result]:
    """How many neighbours differ, and how many planted changes were found."""
    alarms = [pair for pair in raw["same"] if set(pair.values()) & set(SURE)]
    words = [f"{k} {v}" for pair in alarms for k, v in pair.items() if v in SURE]
    found = sum(pair[ROW] == Verdict.SLOWER for pair in raw["planted"])
    reached = f"{len(alarms)} of {len(raw['same'])} pairs"
    reached += f" ({', '.join(words) or 'none'}); "
    return [
        Result(
            "C16",
            "repeat: neighbouring runs of an unchanged machine; +10 % planted",
            "at most 1 of 20 pairs differs; planted found in 9 of 10",
            f"{reached}planted found in {found} of {len(raw['planted'])}",
            "not stated",
            met=len(alarms) <= 1 and found >= 9,
        )
    ]


def _there(name: str) -> list[Path]:
    return sorted((FOLDER / name / "sessions").glob("core*.json"))


def _verdicts(reference: str, candidate: str) -> dict[str, str]:
    pair = [store.load_run(str(FOLDER / name)) for name in (reference, candidate)]
    rows = compare.versus(pair[0], pair[1])
    return {row.name: str(row.comparison.verdict) for row in rows}
