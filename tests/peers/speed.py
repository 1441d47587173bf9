"""C8 and C10: how soon an answer comes, and what asking costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from gpu_lab import timing
from gpu_lab.timing.core import FEWEST_ROUNDS
from gpu_lab.timing.samplers import HostSampler, Turns
from peers import rules, work
from peers.report import Progress, Result

SHORT_STEPS = 200  # about two microseconds
SLACK = 1.02


def calls() -> dict[str, Callable[[], Any]]:
    """Calls from a microsecond to a third of the budget, and one beyond it."""
    return {
        "2 us": work.summing(SHORT_STEPS),
        "2 ms": work.summing(200_000),
        "20 ms": work.summing(2_000_000),
        "300 ms": lambda: time.sleep(0.3),
        "1500 ms": lambda: time.sleep(1.5),
    }


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Seconds of whole answers, first estimates, samples; and the peers' answers."""
    times = 6 if full else 3
    answers: list[dict[str, Any]] = []
    peers: list[dict[str, Any]] = []
    for busy in (False, True):
        with work.one_core(busy=busy):
            for _ in progress.of(range(times), f"C8 {'busy' if busy else 'idle'}"):
                answers += [answer(n, c, busy=busy) for n, c in calls().items()]
                peers.append({"busy": busy, **peer(work.summing(SHORT_STEPS))})
    return {"answers": answers, "peers": peers, "costs": costs(times)}


def answer(name: str, call: Callable[[], Any], *, busy: bool) -> dict[str, Any]:
    """How long one answer took, and the longest single sample in it."""
    plan = timing.QUICK
    start = time.perf_counter()
    found = timing.measure(call, device=work.CPU, plan=plan)
    whole_s = time.perf_counter() - start
    first = timing.Plan(rounds=FEWEST_ROUNDS)
    start = time.perf_counter()
    if max(found.times_s) < 0.02:
        timing.measure(call, device=work.CPU, plan=first)
    first_s = time.perf_counter() - start
    return {
        "call": name,
        "busy": busy,
        "whole_s": whole_s,
        "first_s": first_s,
        "sample_s": max(found.times_s) * found.number_per_run,
        "budget_s": plan.budget_s,
    }


def peer(call: Callable[[], Any]) -> dict[str, float]:
    """Seconds until torch's timers answer for the same short call."""
    from torch.utils.benchmark import Timer

    timer = Timer("call()", globals={"call": call}, num_threads=1)
    found = {}
    for name in ("adaptive_autorange", "blocked_autorange"):
        start = time.perf_counter()
        getattr(timer, name)()
        found[name] = time.perf_counter() - start
    return found


def costs(times: int) -> dict[str, list[float]]:
    """Share of a sample that is the clocks' own, and seconds of an empty call."""
    clock = timing.clock_for(work.CPU)
    sampler = HostSampler(clock)
    shares, empty_s = [], []
    for _ in range(times):
        turns = Turns([_nothing])
        nothing = [sampler.samples([(turns, 0)])[0].wall_s for _ in range(1000)]
        shares.append(statistics.median(nothing) / sampler.sample_s)
        found = timing.measure(_nothing, device=work.CPU)
        empty_s.append(statistics.median(found.times_s))
    return {"share": shares, "empty_s": empty_s}


def _nothing() -> None:
    pass


def results(raw: dict[str, Any]) -> list[Result]:
    """C8 and C10."""
    return [soon(raw), cheap(raw["costs"])]


def soon(raw: dict[str, Any]) -> Result:
    """C8: first estimate, the hard budget, the short call when busy."""
    found = raw["answers"]
    late = [a for a in found if a["whole_s"] > SLACK * (a["budget_s"] + a["sample_s"])]
    first = [a["first_s"] for a in found if a["call"] in ("2 us", "2 ms")]
    short = [a["whole_s"] for a in found if a["call"] == "2 us" and a["busy"]]
    texts = [
        f"{name.split('_')[0]} {statistics.median(p[name] for p in raw['peers']):.1f} s"
        for name in ("adaptive_autorange", "blocked_autorange")
    ]
    return Result(
        "C8",
        "answer time",
        "first estimate <= 0.3 s; stop within budget + one sample; 2 us busy <= 1 s",
        f"first at most {max(first):.2f} s; late {rules.share(len(late), len(found))}; "
        f"2 us busy at most {max(short):.2f} s",
        f"2 us: {', '.join(texts)}",
        met=max(first) <= 0.3 and not late and max(short) <= 1.0,
    )


def cheap(raw: dict[str, list[float]]) -> Result:
    """C10: own cost."""
    share, empty_s = statistics.median(raw["share"]), statistics.median(raw["empty_s"])
    return Result(
        "C10",
        "own cost: clocks within a sample; empty call",
        "at most 0.1 % of a sample; at most 60 ns",
        f"{100 * share:.3f} %; {1e9 * empty_s:.0f} ns",
        "not stated",
        met=share <= 0.001 and empty_s <= 60e-9,
    )
