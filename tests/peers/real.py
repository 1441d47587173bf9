"""One real step in a fresh process: allocator's peak, resident peak, seconds a step."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile

from gpu_lab.fit import model, step

STEPS = 2  # the second has the optimizer's states


def main(words: list[str]) -> None:
    """Print a JSON object with what the setting of the command line really takes."""
    given = json.loads(words[0])
    case = model.load(given["model"], inputs=given["inputs"])
    setting = step.Setting(**given["setting"])
    print(json.dumps(once(case, setting, seconds=given["seconds"])))


def once(case: model.Case, setting: step.Setting, *, seconds: float) -> dict[str, Any]:
    """Both peaks in bytes and the times of steps in seconds."""
    before = psutil.Process().memory_info().rss
    times_s = timed(case, setting, seconds)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        steps(case, setting, STEPS)
    return {"peak": peak(found), "resident": resident, "times_s": times_s}


def peak(found: Any) -> int:
    """Highest running total of the allocator's events."""
    events = found.profiler.kineto_results.events()
    moves = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    total = most = 0
    for _, size_bytes in sorted(moves, key=lambda move: move[0]):
        total += size_bytes
        most = max(most, total)
    return most


def steps(case: model.Case, setting: step.Setting, number: int) -> None:
    """A model from nothing, and so many of its steps."""
    torch.manual_seed(0)
    part = case.of_batch(-(-case.batch // setting.accumulate))
    module = step.prepared(part.make(), setting)
    optimizer = step.optimizer_of(module, setting)
    inputs = part.tensors()
    for _ in range(number):
        whole(module, inputs, setting, optimizer)


def whole(
    module: Any, inputs: list[Any], setting: step.Setting, optimizer: Any
) -> None:
    """One step with all its micro-batches."""
    for _ in range(setting.accumulate):
        step.micro_step(module, inputs, setting)
    if optimizer:
        optimizer.step()
        optimizer.zero_grad()


def timed(case: model.Case, setting: step.Setting, seconds: float) -> list[float]:
    """Seconds of each step after the first two, for about so long."""
    torch.manual_seed(0)
    module = step.prepared(case.make(), setting)
    optimizer = step.optimizer_of(module, setting)
    inputs = case.tensors()
    found: list[float] = []
    while len(found) < 5 or sum(found) < seconds:
        start = time.perf_counter()
        whole(module, inputs, setting, optimizer)
        found.append(time.perf_counter() - start)
    return found[STEPS:]


if __name__ == "__main__":
    main(sys.argv[1:])
