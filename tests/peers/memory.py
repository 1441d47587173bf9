"""F1 and F2: predicted memory and step time beside one real step of the same kind.

Predicted on fake tensors; measured by another instrument, the allocator's own events,
in a fresh process. The times are predicted from curves that are measured here first.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from typing import Any

import torch

from gpu_lab import fit, timing, units
from peers import rules, work
from peers.probe import probe
from peers.report import Progress, Result

MODELS = "tests/peers/models.py"
INPUTS = {
    "torchvision:resnet50": "4x3x224x224",
    "torchvision:vit_b_16": "4x3x224x224",
    "torchvision:convnext_tiny": "4x3x224x224",
    f"{MODELS}:gpt": "4x256:int",
    f"{MODELS}:lstm": "16x64:int",
    f"{MODELS}:mlp": "1024x512",
}
# Setting of each pair: precision, optimizer, checkpointing.
SETTINGS = {
    "resnet50": ("fp32 sgd", "bf16 adamw", "fp32 adamw ckpt"),
    "vit_b_16": ("fp32 adamw", "bf16 adamw", "fp32 sgd ckpt"),
    "convnext_tiny": ("fp32 adamw", "bf16 sgd", "bf16 adamw ckpt"),
    "gpt": ("fp32 sgd", "fp32 adamw ckpt", "bf16 adamw"),
    "lstm": ("fp32 sgd", "fp32 adamw", "bf16 adamw"),
    "mlp": ("fp32 sgd", "bf16 adamw", "fp32 adamw ckpt"),
}
PREDICTION_S = 15.0
MEDIAN, WORST = 0.01, 0.05
LOG, HELD = 0.25, 0.8


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Each pair predicted and run, with the speed of this machine measured first."""
    torch.set_num_threads(1)  # as the real steps have
    speed = fit.of_rows("here", probe(device=work.CPU, plan=PLAN[full]), queues=False)
    pairs = [(name, words) for name in INPUTS for words in SETTINGS[short(name)]]
    return {
        f"{short(name)} {words}": pair(name, words, speed, 3.0 if full else 0.5)
        for name, words in progress.of(pairs, "F1 F2")
    }


PLAN = {False: timing.QUICK, True: timing.CLASS}


def short(name: str) -> str:
    """Name of a model without its place."""
    return name.rpartition(":")[2]


def setting(words: str) -> fit.Setting:
    """The setting that three words name; the optimizer as torch runs it on a CPU."""
    precision, optimizer, *more = words.split()
    return fit.Setting(
        precision=precision,
        optimizer=optimizer,
        checkpoint="ckpt" in more,
        on_cpu=True,
    )


def pair(name: str, words: str, speed: fit.Speed, seconds: float) -> dict[str, Any]:
    """Predicted and measured bytes and seconds of one model in one setting."""
    chosen = setting(words)
    spec = name.replace(MODELS, str(work.TESTS / "peers" / "models.py"))
    start = time.perf_counter()
    found = fit.predict(fit.load(spec, inputs=INPUTS[name]), chosen)
    took_s = time.perf_counter() - start
    given = {
        "model": spec,
        "inputs": INPUTS[name],
        "seconds": seconds,
        "setting": vars(chosen),
    }
    child = subprocess.run(
        [sys.executable, "-m", "peers.real", json.dumps(given)],
        cwd=work.TESTS,
        check=True,
        capture_output=True,
        text=True,
    )
    real = json.loads(child.stdout.splitlines()[-1])
    return {
        "predicted": found.peak,
        "peak": real["peak"],
        "resident": real["resident"],
        "predicted_s": speed.step_s(found.work),
        "times_s": real["times_s"],
        "factor": speed.factor,
        "took_s": took_s,
    }


def results(raw: dict[str, Any]) -> list[Result]:
    """F1 and F2, with a line for each pair."""
    return [memory(raw), seconds(raw)]


def memory(raw: dict[str, Any]) -> Result:
    """F1: predicted over measured peak."""
    off = {name: p["predicted"] / p["peak"] - 1 for name, p in raw.items()}
    sizes = sorted(abs(v) for v in off.values())
    middle = statistics.median(sizes)
    slow = max(p["took_s"] for p in raw.values())
    each = "; ".join(
        f"{name} {units.memory(p['predicted'])} / {units.memory(p['peak'])} "
        f"({100 * off[name]:+.1f} %), resident {units.memory(p['resident'])}"
        for name, p in raw.items()
    )
    return Result(
        "F1",
        f"peak memory without running, {len(raw)} pairs: predicted / measured",
        "median error at most 1 %, worst at most 5 %, each within 15 s",
        f"median {100 * middle:.2f} %, worst {100 * sizes[-1]:.1f} %, "
        f"slowest prediction {slow:.1f} s. {each}",
        "the allocator's own events of a real step, in a fresh process",
        met=middle <= MEDIAN and sizes[-1] <= WORST and slow <= PREDICTION_S,
    )


def seconds(raw: dict[str, Any]) -> Result:
    """F2: predicted over measured seconds of a step."""
    real = {name: statistics.median(p["times_s"]) for name, p in raw.items()}
    off = {name: math.log(p["predicted_s"] / real[name]) for name, p in raw.items()}
    held = sum(abs(off[n]) <= math.log(p["factor"]) for n, p in raw.items())
    middle = statistics.median(abs(v) for v in off.values())
    each = "; ".join(
        f"{name} {1e3 * p['predicted_s']:.0f} / {1e3 * real[name]:.0f} ms"
        for name, p in raw.items()
    )
    return Result(
        "F2",
        f"seconds of a step without running, {len(raw)} pairs: predicted / measured",
        "median |log| at most 0.25; 80 % of the measured times within the interval",
        f"median |log| {middle:.2f}; held {rules.share(held, len(raw))}. {each}",
        "CPU time of real steps in one thread, in a fresh process",
        met=middle <= LOG and held >= HELD * len(raw),
    )
