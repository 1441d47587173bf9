"""torch.profiler around a training step: its trace, and steps with planted faults."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpu_lab.bench.shapes import Piece, Trace
from gpu_lab.records import Device, Source
from gpu_lab.timing import clock_for, completed

LOAD = "load"  # name of the record_function around whatever prepares data
LOADERS = (LOAD, "enumerate(DataLoader)")
DEVICE_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
COPIES = ("aten::copy_", "aten::to", "aten::_to_copy", "aten::clone")
# What torch.profiler records of a device; of others (mps) nothing but the host.
ACTIVITIES = {"cuda": "CUDA", "rocm": "CUDA", "xpu": "XPU"}
PLANTED = ("slow loader", ".item()", "small kernels", "host copy", "good")
# Of a CPU and of a GPU, also samples a batch; a fault must outweigh the work.
GOOD_WIDTHS, FAULTY_WIDTHS = (384, 4096), (128, 1024)
LOAD_S, ITEMS, LOOPS, COPY_BYTES, COPIED = 0.1, 5000, 4000, 2**26, 2


def profiled(
    step: Callable[[], Any],
    *,
    device: Device,
    name: str = "step",
    steps: int = 5,
    folder: Path | None = None,
) -> Trace:
    """A trace of some steps, after one that is not recorded, in seconds.

    Works with CPU activity alone; on CUDA, ROCm and XPU the device's kernels and copies
    count instead of operators. Each step ends when the device is done.

    Args:
        folder: keep the trace there as well, for ui.perfetto.dev or chrome://tracing.
    """
    from torch.profiler import ProfilerActivity, profile, schedule

    name_there = "" if device.simulated else ACTIVITIES.get(device.backend, "")
    kinds = [getattr(ProfilerActivity, n) for n in ("CPU", name_there) if n]
    clock = clock_for(device)
    whole = completed([step], clock)
    # repeat=1: otherwise one step() too many begins a new cycle and an empty trace.
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    with tempfile.TemporaryDirectory(prefix="gpu-lab-") as inside:
        path = Path(inside) / "trace.json"
        with silent(), profile(activities=kinds, schedule=plan) as seen:
            for _ in range(1 + steps):
                whole()
                seen.step()
            seen.export_chrome_trace(str(path))
        tree = json.loads(path.read_text(encoding="utf-8"))
    events = [e for e in tree["traceEvents"] if e.get("ph") == "X" and "cat" in e]
    if folder:
        _keep(events, folder / f"{name.replace(' ', '_').strip('.()')}.json")
    return read(events, name=name, on_gpu=bool(name_there), source=clock.source)


def read(
    events: list[dict[str, Any]], *, name: str, on_gpu: bool, source: Source
) -> Trace:
    """The trace of spans in Chrome's format, which counts in µs.

    Args:
        on_gpu: what the device did is in it, and counts instead of the operators.
    """
    marks = [(*_span(e), e["name"]) for e in events if e["cat"] == "user_annotation"]
    steps = sorted((a, b) for a, b, text in marks if text.startswith("ProfilerStep#"))
    loads = [(a, b) for a, b, text in marks if text.startswith(LOADERS)]
    # Of a host: aten operators with all that they call, but not those of a loader.
    found = [Piece(LOAD, "load", *span) for span in loads]
    for event in events:
        text, (start_s, stop_s) = str(event["name"]), _span(event)
        there = event["cat"] in DEVICE_KINDS
        loading = any(a <= start_s < b for a, b in loads)
        if there if on_gpu else text.startswith("aten::") and not loading:
            found.append(Piece(text, _kind(text), start_s, stop_s))
    calls = Counter(str(e["name"]) for e in events if e["cat"] == "cpu_op")
    return Trace(name, tuple(found), tuple(steps), dict(calls), source)


def planted(fault: str, *, device: Device, seed: int = 0) -> Callable[[], None]:
    """One training step with that fault of `PLANTED`; "good" has none.

    Raises:
        ValueError: unknown fault.
    """
    import torch

    if fault not in PLANTED:
        raise ValueError(f"wanted one of {', '.join(PLANTED)}, found {fault!r}")
    widths = GOOD_WIDTHS if fault == "good" else FAULTY_WIDTHS
    width = widths[device.is_real_gpu]
    there = torch.device(device.torch_name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(width, width) for _ in range(2)]
        x = torch.randn(width, width).to(there)
    network = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]).to(there)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    on_host = torch.zeros(COPY_BYTES * (fault == "host copy"), dtype=torch.uint8)
    target = on_host.clone().to(there)
    logged = x.flatten()[: ITEMS * (fault == ".item()")].unbind()

    def step() -> None:
        if fault == "slow loader":
            with torch.profiler.record_function(LOAD):
                time.sleep(LOAD_S)
        for _ in range(COPIED * (fault == "host copy")):
            target.copy_(on_host)
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()
        few = x[0, :8]
        for _ in range(LOOPS * (fault == "small kernels")):
            few = few.neg()
        for value in logged:
            value.item()

    return step


def _span(event: dict[str, Any]) -> tuple[float, float]:
    return 1e-6 * event["ts"], 1e-6 * (event["ts"] + event["dur"])


def _kind(name: str) -> str:
    copy = name in COPIES or "HtoD" in name or "DtoH" in name
    return "copy" if copy else "compute"


def _keep(events: list[dict[str, Any]], path: Path) -> None:
    """Names and times alone: the rest names the host and its folders."""
    keys = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
    events = [{key: event[key] for key in keys} for event in events]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep the remarks of the profiler's native code off the file descriptor 2."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
