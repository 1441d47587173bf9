"""C5 and C6: our medians beside torch.utils.benchmark, pyperf, STREAM and memcpy.

The speed of a shared machine wanders by a third within seconds. So the two tools take
turns, briefly and often; what can be an arm is one, in the same rounds as ours.
"""

from __future__ import annotations

import ctypes
import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_lab import bench, timing
from gpu_lab.timing import Arm
from peers import work
from peers.report import Progress, Result

PLAN = timing.Plan(rounds=12)
MEMORY_PLAN = timing.Plan(rounds=90)
TORCH_S = 0.01
PYPERF_LOOPS = {work.PRODUCT: 10, work.SHORT: 20_000}
FACTORS = (2 / 3, 1.0, 3 / 2)  # of stores that read their line first, or not
LIMITS = {
    "matmul, blocked_autorange": 0.02,
    "matmul, pyperf": 0.03,
    "1 to 5 us, blocked_autorange": 0.05,
    "1 to 5 us, pyperf": 0.05,
}


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Ratios peer over ours, each pair taken one right after the other."""
    pairs = {"blocked_autorange": 300, "pyperf": 50} if full else {}
    found: dict[str, list[float]] = {}
    torch.set_num_threads(1)
    for name in LIMITS:
        kind = work.PRODUCT if name.startswith("matmul") else work.SHORT
        peer = name.split(", ")[1]
        ours, theirs = TOOLS[peer]
        found[name] = [
            ratio(functools.partial(ours, kind), functools.partial(theirs, kind))
            for _ in progress.of(range(pairs.get(peer, QUICK[peer])), f"C5 {name}")
        ]
    library = compiled()
    rounds = range(7 if full else 3)
    for name, arms in memory_arms(library).items():
        found[name] = [pair(*arms) for _ in progress.of(rounds, f"C6 {name}")]
    return found


def ratio(ours: Callable[[], float], theirs: Callable[[], float]) -> float:
    """Theirs over ours, ours taken before and after so that drift cancels."""
    before, peer, after = ours(), theirs(), ours()
    return peer / statistics.fmean((before, after))


def measured_s(kind: str) -> float:
    """Our median, with one thread as the peers have."""
    timed = timing.measure(work.call(kind), device=work.CPU, plan=PLAN)
    return statistics.median(timed.times_s)


def session_s(kind: str) -> float:
    """Our median in a fresh process, as pyperf's are."""
    words = [sys.executable, "-m", "peers.session", kind]
    run = subprocess.run(
        words, cwd=work.TESTS, check=True, capture_output=True, text=True
    )
    return float(json.loads(run.stdout)[0])


def torch_s(kind: str) -> float:
    """Median of torch's blocked_autorange."""
    from gpu_lab.bench.peers import torch_timer

    timer = torch_timer(work.call(kind), device=work.CPU, threads=1)
    return float(timer.blocked_autorange(min_run_time=TORCH_S).median)


def pyperf_s(kind: str) -> float:
    """Median that `pyperf timeit` finds for the same call, in a process of its own."""
    import pyperf

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pyperf.json"
        setup = f"from peers import work; call = work.call({kind!r})"
        words = [sys.executable, "-m", "pyperf", "timeit", "--quiet", "-p", "1"]
        words += ["--worker", "-l", str(PYPERF_LOOPS[kind]), "-w", "1", "-n", "3"]
        words += ["-o", str(out)]
        words += ["--inherit-environ", "PYTHONPATH", "-s", setup, "call()"]
        env = work.environment()
        subprocess.run(words, env=env, check=True, capture_output=True)
        return float(pyperf.Benchmark.load(str(out)).median())


QUICK = {"blocked_autorange": 60, "pyperf": 15}
TOOLS = {"blocked_autorange": (measured_s, torch_s), "pyperf": (session_s, pyperf_s)}


def compiled() -> Any:
    """Our C file as a library; None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        return None
    library = Path(tempfile.mkdtemp()) / "stream.so"
    source = Path(__file__).with_name("stream.c")
    flags = ["-O3", "-march=native", "-funroll-loops", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def memory_arms(library: Any) -> dict[str, tuple[Arm, Arm]]:
    """Ours and the peer's pass over arrays of one allocator and size, in one thread."""
    size_bytes = 4 * bench.cache_bytes(work.CPU)
    generator = torch.Generator().manual_seed(0)
    arrays = [torch.randn(size_bytes // 4, generator=generator) for _ in "abc"]
    a, b, c = (ctypes.c_void_p(array.data_ptr()) for array in arrays)
    given = {"device": work.CPU, "on_host": True}
    libc, size = ctypes.CDLL(None), ctypes.c_size_t(size_bytes)
    # `arrays` in each call: ctypes keeps their addresses, not the arrays.
    copy = Arm(name="memcpy", calls=(lambda: (libc.memcpy(a, b, size), arrays),))
    found = {"copy, memcpy": (bench.memory_arm("copy", size_bytes, **given), copy)}
    if library:
        items = ctypes.c_long(size_bytes // 4)
        arm = Arm(name="s", calls=(lambda: (library.triad(a, b, c, items), arrays),))
        ours = bench.memory_arm("triad", size_bytes, **given)
        found["triad, STREAM"] = (ours, arm)
    return found


def pair(ours: Arm, peer: Arm) -> float:
    """Our rate over the peer's: its time over ours, round by round."""
    first, second = timing.interleave([ours, peer], device=work.CPU, plan=MEMORY_PLAN)
    logs = timing.log_ratios(second.times_s, first.times_s)
    return float(np.exp(timing.interval(logs).estimate))


def results(raw: dict[str, Any]) -> list[Result]:
    """C5 and C6."""
    return [compute(raw), memory_result(raw)]


def compute(raw: dict[str, Any]) -> Result:
    """C5: medians of ratios."""
    found = {name: statistics.median(raw[name]) for name in LIMITS}
    return Result(
        "C5",
        "agreement, compute: peer / ours, median of interleaved pairs",
        "within 2 % (autorange), 3 % (pyperf), 5 % (op of 1 to 5 us)",
        ", ".join(f"{name} {spread(raw[name])}" for name in LIMITS),
        "1.02, 1.10 in a trial",
        met=all(abs(found[name] - 1) <= limit for name, limit in LIMITS.items()),
    )


def spread(ratios: list[float]) -> str:
    """Median of ratios, and the interval that it has."""
    found = timing.log_interval(ratios)
    middle = statistics.median(ratios)
    return f"{middle:.3f} ({found.low:.3f} to {found.high:.3f}, n = {len(ratios)})"


def memory_result(raw: dict[str, Any]) -> Result:
    """C6: ours / STREAM, ours / memcpy."""
    copy = statistics.median(raw["copy, memcpy"])
    factor = min(FACTORS, key=lambda f: abs(copy / f - 1))
    found = {"copy": copy / factor}
    if "triad, STREAM" in raw:
        found["triad"] = statistics.median(raw["triad, STREAM"])
    text = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
    return Result(
        "C6",
        "agreement, memory: ours / peer, in the same rounds",
        "triad within 3 % of STREAM, copy within 3 % of memcpy",
        f"{text}; convention factor of the copy {factor:.2f}",
        "0.92 to 1.04 in a trial",
        met=None if len(found) < 2 else all(abs(v - 1) <= 0.03 for v in found.values()),
    )
