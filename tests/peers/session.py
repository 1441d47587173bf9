"""One session: a fresh process that measures once. Imports no more than it needs."""

from __future__ import annotations

import json
import statistics
import sys

from gpu_lab import timing
from peers import work

PLAN = timing.Plan(budget_s=0.5, precision=0.01)
BRIEF = timing.Plan(rounds=60)  # about as long as pyperf's three values


def main(kind: str = work.SUMMING) -> None:
    """Print the deciding median, the anchor's, and the interval from inside, in s."""
    plan = PLAN if kind == work.SUMMING else BRIEF
    found = timing.measure(work.call(kind), device=work.CPU, plan=plan)
    cpu = found.decided_by == "cpu"
    times_s = found.cpu_times_s if cpu else found.times_s
    interval = timing.log_interval(times_s)
    row = [statistics.median(times_s), statistics.median(found.anchor_s)]
    print(json.dumps([*row, interval.low, interval.high]))


if __name__ == "__main__":
    main(*sys.argv[1:])
