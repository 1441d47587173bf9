"""C9: flags with and without a cause, no percentage above 102, planted faults named."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from gpu_lab import bench, compare, hardware, timing
from gpu_lab.bench import ceiling
from gpu_lab.records import Ceiling, CeilingKind, Session
from peers import rules, work
from peers.report import Progress, Result

PLAN = timing.Plan(budget_s=0.5)
SHARES = (0.2, 0.999, 1.019, 1.021, 1.5, 10.0)


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Flags of many runs, idle and with a competitor; what each fault is called."""
    trials = 100 if full else 20
    flagged = {}
    for name, busy in (("idle", False), ("busy", True)):
        with work.one_core(busy=busy):
            flagged[name] = [
                "busy" in timing.measure(call, device=work.CPU, plan=PLAN).flags
                for call in [work.summing(work.STEPS)]
                for _ in progress.of(range(trials), f"C9 {name}")
            ]
    shares = [
        ceiling.share(s, Ceiling(value=1.0, kind=CeilingKind.DERIVED, how="planted"))
        for s in SHARES
    ]
    return {"flagged": flagged, "shares": shares, "faults": faults()}


def faults() -> dict[str, str]:
    """What our code says of each planted fault; empty when it says nothing."""
    return {name: make() for name, make in FAULTS.items()}


def zeros() -> str:
    """Zeros as input."""
    with mock.patch.object(torch, "randn", lambda *s, **k: torch.zeros(*s)):
        try:
            bench.matmul(64, device=work.CPU, plan=PLAN)
        except bench.rows.WrongResult as error:
            return str(error) if "all inputs are 0" in str(error) else ""
    return ""


def threads() -> str:
    """Another number of threads."""
    before = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            found.append(bench.matmul(64, device=work.CPU, plan=PLAN))
    finally:
        torch.set_num_threads(before)
    return "; ".join(d for d in compare.differences(*found) if "threads" in d)


def cached() -> str:
    """A working set that lies in the cache, quoted as bandwidth."""
    arm = bench.memory_arm("copy", 2**16, device=work.CPU, on_host=True, cold=False)
    return "; ".join(
        f for f in bench.measured(arm, device=work.CPU).flags if f == "hot-cache"
    )


def sleeps() -> str:
    """A sleep in the timed call."""
    found = timing.measure(lambda: time.sleep(0.002), device=work.CPU, plan=PLAN)
    return "; ".join(f for f in found.flags if f == "waits")


def version() -> str:
    """Another torch."""
    machine = hardware.detect()
    old = replace(machine, versions={**machine.versions, "torch": "2.0.0"})
    first, second = (
        Session(suite="core", created="", profile="", device="cpu", seed=0, machine=m)
        for m in (machine, old)
    )
    return "; ".join(compare.conditions([first, second]))


FAULTS: dict[str, Callable[[], str]] = {
    "zeros as input": zeros,
    "other thread count": threads,
    "cached working set": cached,
    "sleep in the call": sleeps,
    "other torch": version,
}


def results(raw: dict[str, Any]) -> list[Result]:
    """C9."""
    busy, idle = raw["flagged"]["busy"], raw["flagged"]["idle"]
    above = [t for s, t in zip(SHARES, raw["shares"], strict=True) if s > 1.02]
    silent = [name for name, text in raw["faults"].items() if not text]
    percentages = [t for t in above if "%" in t]
    named = len(raw["faults"]) - len(silent)
    return [
        Result(
            "C9",
            "honesty: busy flag, ceilings, planted faults",
            "busy flag >= 99 % busy, absent >= 95 % idle; nothing above 102 %; 5 named",
            f"flagged busy {rules.share(sum(busy), len(busy))}, idle "
            f"{rules.share(sum(idle), len(idle))}; percentages above 102: "
            f"{len(percentages)}; {named} faults named",
            "none of these",
            met=sum(busy) >= 0.99 * len(busy)
            and sum(idle) <= 0.05 * len(idle)
            and not percentages
            and not silent,
        )
    ]
