"""One real step in a fresh process: allocator's peak, resident peak, seconds a step."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile

from gpu_lab.fit import step

STEPS = 2  # the second has the optimizer's states
FEWEST = 4


def main(words: list[str]) -> None:
    """Print a JSON object with what the setting of the command line really takes."""
    torch.set_num_threads(1)  # then CPU time is what a step takes on an idle machine
    given = json.loads(words[0])
    case = step.load(given["model"], inputs=given["inputs"])
    setting = step.Setting(**given["setting"])
    print(json.dumps(once(case, setting, seconds=given["seconds"])))


def once(case: step.Case, setting: step.Setting, *, seconds: float) -> dict[str, Any]:
    """Both peaks in bytes and the times of steps in seconds."""
    before = psutil.Process().memory_info().rss
    times_s = timed(case, setting, seconds)
    resident = most_resident() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        steps(case, setting, STEPS)
    return {"peak": peak(found), "resident": resident, "times_s": times_s}


def most_resident() -> int:
    """Highest resident bytes of this process; getrusage's begins with its parent's."""
    status = Path("/proc/self/status").read_text("utf-8").splitlines()
    line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def peak(found: Any) -> int:
    """Highest running total of the allocator's events."""
    events = found.profiler.kineto_results.events()
    moves = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    total = most = 0
    for _, size_bytes in sorted(moves, key=lambda move: move[0]):
        total += size_bytes
        most = max(most, total)
    return most


def made(case: step.Case, setting: step.Setting) -> tuple[Any, Any, list[Any]]:
    """A model from nothing, its optimizer, and random inputs of one micro-batch."""
    torch.manual_seed(0)
    part = case.of_batch(-(-case.batch // setting.accumulate))
    module, optimizer = step.prepared(part.make(), setting)
    inputs = [
        t.normal_() if t.is_floating_point() else t.random_(2) for t in part.tensors()
    ]
    return module, optimizer, inputs


def steps(case: step.Case, setting: step.Setting, number: int) -> None:
    """So many steps of a new model."""
    module, optimizer, inputs = made(case, setting)
    for _ in range(number):
        whole(module, inputs, setting, optimizer)


def whole(
    module: Any, inputs: list[Any], setting: step.Setting, optimizer: Any
) -> None:
    """One step with all its micro-batches."""
    for _ in range(setting.accumulate):
        step.micro_step(module, inputs, setting)
    step.finish(optimizer)


def timed(case: step.Case, setting: step.Setting, seconds: float) -> list[float]:
    """CPU seconds of each step but the first, for about so long."""
    module, optimizer, inputs = made(case, setting)
    found: list[float] = []
    while len(found) < FEWEST or sum(found) < seconds:
        start = time.process_time()
        whole(module, inputs, setting, optimizer)
        found.append(time.process_time() - start)
    return found[1:]


if __name__ == "__main__":
    main(sys.argv[1:])
