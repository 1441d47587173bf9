"""C1 to C4: false alarms, a known effect, coverage, precision for the time spent."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

from gpu_lab import bench, compare, timing
from gpu_lab.records import Measurement, Verdict
from peers import rules, work
from peers.report import Progress, Result

PLAN = timing.Plan(budget_s=2.0, precision=0.01)
CELLS = {
    "A/A idle": (0.0, False),
    "A/A busy": (0.0, True),
    "+5 % idle": (work.EFFECT, False),
    "+5 % busy": (work.EFFECT, True),
}
POINT = 0.01


@dataclass(frozen=True)
class Trial:
    """One pair of rows: what we say of it, and what others would."""

    speedup: float
    low: float
    high: float
    called: bool
    seconds: float
    pyperf: bool
    asv: bool
    rounds: int


def trial(effect: float, seed: int) -> Trial:
    """Measure a pair once."""
    start = time.perf_counter()
    a, b = bench.together(work.pair(effect), device=work.CPU, plan=PLAN, seed=seed)
    seconds = time.perf_counter() - start
    found = compare.paired(a, b)
    called = found.verdict in (Verdict.FASTER, Verdict.SLOWER)
    return Trial(
        speedup=found.speedup or math.nan,
        low=found.low or math.nan,
        high=found.high or math.nan,
        called=called,
        seconds=seconds,
        pyperf=rules.pyperf(a.times_s, b.times_s),
        asv=rules.asv(a.times_s, b.times_s),
        rounds=len(a.times_s),
    )


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """All trials of all cells, and the peer's pairs, interleaved cell by cell."""
    trials, peers = (120, 40) if full else (40, 12)
    cells: dict[str, list[Trial]] = {name: [] for name in CELLS}
    others: dict[str, list[tuple[float, float]]] = {"idle": [], "busy": []}
    for name, (effect, busy) in CELLS.items():
        with work.one_core(busy=busy):
            trial(effect, 0)  # imports and caches
            for seed in progress.of(range(trials), f"C1-C3 {name}"):
                cells[name].append(trial(effect, seed))
            if effect == 0:
                where = "busy" if busy else "idle"
                for _ in progress.of(range(peers), f"C4 peer {where}"):
                    others[where].append(autorange_pair())
    return {
        "cells": {k: [vars(t) for t in v] for k, v in cells.items()},
        "peer": others,
    }


def autorange_pair() -> tuple[float, float]:
    """Ratio and seconds of two blocked_autorange calls of the same work, in turn."""
    from gpu_lab.bench.peers import torch_timer

    start = time.perf_counter()
    medians = []
    for _ in range(2):
        call = work.summing(work.STEPS)
        timer = torch_timer(call, device=work.CPU, threads=1)
        medians.append(timer.blocked_autorange().median)
    return medians[0] / medians[1], time.perf_counter() - start


def results(raw: dict[str, Any]) -> list[Result]:
    """C1 to C4 from the trials."""
    cells = {k: [Trial(**t) for t in v] for k, v in raw["cells"].items()}
    return [
        false_alarms(cells),
        known_effect(cells["+5 % busy"]),
        coverage(cells),
        precision(cells, raw["peer"]),
    ]


def false_alarms(cells: dict[str, list[Trial]]) -> Result:
    """C1, with the peers' rules on the same samples."""
    same = {k: v for k, v in cells.items() if k.startswith("A/A")}
    ours = [t.called for v in same.values() for t in v]
    peer = ", ".join(
        f"{rule} {k[4:]} {rules.share(sum(getattr(t, rule) for t in v), len(v))}"
        for rule in ("pyperf", "asv")
        for k, v in same.items()
    )
    return Result(
        "C1",
        "false alarms, A against A",
        "at most 5 %",
        rules.share(sum(ours), len(ours)),
        peer,
        met=sum(ours) <= 0.05 * len(ours),
    )


def known_effect(found: list[Trial]) -> Result:
    """C2: +5 % found, and how near; at most 2 s each, busy."""
    hits = sum(t.called and t.speedup < 1 for t in found)
    near = sum(abs(1 / t.speedup - 1 - work.EFFECT) <= POINT for t in found)
    longest = max(t.seconds for t in found)
    return Result(
        "C2",
        "exact +5 % found, busy",
        "95 %; within 1 point in 90 %; 2 s each",
        f"{rules.share(hits, len(found))}; near {rules.share(near, len(found))}; "
        f"longest {longest:.2f} s",
        "one arm after the other: see C4",
        met=hits >= 0.95 * len(found)
        and near >= 0.9 * len(found)
        and longest <= PLAN.budget_s * 1.05,
    )


def coverage(cells: dict[str, list[Trial]]) -> Result:
    """C3: how often the interval holds the truth, by cell and pooled."""
    texts, held, total = [], 0, 0
    for name, trials in cells.items():
        truth = 1 / (1 + CELLS[name][0])
        inside = sum(t.low <= truth <= t.high for t in trials)
        texts.append(f"{name} {100 * inside / len(trials):.1f} %")
        held, total = held + inside, total + len(trials)
    return Result(
        "C3",
        "95 % intervals of ratios hold the truth",
        "93 to 99 % (four cells pooled)",
        f"{rules.share(held, total)}: {', '.join(texts)}",
        "0 to 80 % (measuring notes)",
        met=0.93 <= held / total <= 0.99,
    )


def precision(
    cells: dict[str, list[Trial]], peer: dict[str, list[tuple[float, float]]]
) -> Result:
    """C4: spread of the ratio x sqrt(seconds), A against A, ours and the peer's."""
    texts, gains = [], []
    for where, theirs in peer.items():
        ours = [(t.speedup, t.seconds) for t in cells[f"A/A {where}"]]
        us, them = _cost(ours), _cost(theirs)
        gains.append(them / us)
        texts.append(f"{where} {them / us:.0f}x")
    return Result(
        "C4",
        "half-width x sqrt(seconds) of the ratio, peer over ours",
        "10x smaller",
        ", ".join(texts),
        "two blocked_autorange calls in turn = 1x",
        met=min(gains) >= 10,
    )


def _cost(found: list[tuple[float, float]]) -> float:
    spread = 1.96 * statistics.stdev(math.log(ratio) for ratio, _ in found)
    return spread * math.sqrt(statistics.fmean(seconds for _, seconds in found))


def median_s(row: Measurement) -> float:
    """Median of a row that was timed."""
    assert row.median_s
    return row.median_s
