"""Starts the ranks as processes of their own, and ends them whatever happens.

Never by forking the notebook: a fork of a process that has used a GPU cannot use it,
and a function of a cell cannot be found by a process that starts afresh.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

from gpu_lab import units
from gpu_lab.bench.ddp.world import Values
from gpu_lab.records import Device, GpuLabError, Measurement, Source

METHOD_VERSION = 1
LOCAL = "127.0.0.1"  # not the host's name, which need not resolve
GRACE_S = 3.0  # what torchrun has to end its ranks before we do
KILLED = re.compile(r"rank\s*: (\d+).*\n\s*exitcode\s*: -(?!15\b)(\d+)")  # 15: by us
Plan = Mapping[str, Mapping[str, Any]]


class LaunchFailed(GpuLabError):
    """A rank failed, or the limit passed; the text names the first cause."""


def launch(
    plan: Plan,
    *,
    device: Device,
    ranks: int = 2,
    limit_s: float = 100.0,
    tell: Callable[[str], Any] = len,
) -> dict[str, Values]:
    """What each named experiment found, on that many ranks, in one launch.

    Times are Measurements under "rows", by name; the other values depend on the
    experiment.

    Args:
        plan: name -> settings, see `python -m gpu_lab.bench.ddp --help`.
        device: the processor, or a GPU: then each rank takes one if there are enough.
        limit_s: hard limit of the whole, in seconds.
        tell: called with the name of each experiment as it ends, such as print.

    Raises:
        LaunchFailed: a rank failed or the limit passed. Then all ranks are ended.
    """
    kind = "auto" if device.is_real_gpu else "cpu"
    words = command(plan, ranks=ranks, device=kind, limit_s=limit_s)
    found: dict[str, Values] = {}
    reports: list[Values] = []
    late, pipe = list[bool](), subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise,
        subprocess.Popen(words, env=_environment(), stderr=noise, stdout=pipe) as run,
    ):
        timer = threading.Timer(limit_s, _end, (run, late))
        timer.start()
        try:
            ours = (text for text in run.stdout or () if text.startswith(b"{"))
            for line in map(json.loads, ours):
                if "failed" in line:
                    reports.append(line)
                    continue
                name = line.pop("experiment")
                found[name] = {**line, "rows": _rows(name, line, device)}
                tell(name)
            if run.wait() == 0 and not late:
                return found
        finally:
            timer.cancel()
            _end(run)
        noise.seek(0)
        cause = first_cause(reports, noise.read(), ranks=ranks)
    limit = f"the limit of {units.duration(limit_s)} passed; " if late else ""
    raise LaunchFailed(f"{limit}{cause}; {len(found)} of {len(plan)} experiments ended")


def command(
    plan: Plan, *, ranks: int, device: str = "auto", limit_s: float = 100.0
) -> list[str]:
    """The words that start torchrun with the Python of this process, on a free port."""
    words = f"-m torch.distributed.run --nnodes=1 --nproc-per-node={ranks} "
    words += f"--rdzv-backend=c10d --rdzv-endpoint={LOCAL}:0 --local-addr={LOCAL} "
    words += "--monitor-interval=0.1 -m gpu_lab.bench.ddp "
    words += f"--device={device} --limit={limit_s:g}"
    experiments = (f"{name}={json.dumps(given)}" for name, given in plan.items())
    return [sys.executable, *words.split(), *experiments]


def first_cause(reports: Sequence[Values], noise: str, *, ranks: int) -> str:
    """The rank that failed by itself, not those that then waited for it in vain.

    Args:
        reports: what ranks said when they failed, in the order in which they did.
        noise: what else was said, torchrun's summary above all.
    """
    for report in reports:
        if not report["alone"]:
            return "rank {rank} failed first, in {failed}: {error}".format(**report)
    if killed := KILLED.search(noise):
        usual = ", as the system does when memory runs out" if killed[2] == "9" else ""
        return f"rank {killed[1]} was killed by signal {killed[2]}{usual}"
    silent = set(range(ranks)) - {report["rank"] for report in reports}
    if reports:
        waited = "rank {rank} waited in {failed}: {error}".format(**reports[0])
        return f"rank {', '.join(map(str, silent)) or '?'} did not come; {waited}"
    return f"no rank said why; the last words: {noise[-500:].strip() or 'none'}"


def _end(run: subprocess.Popen[Any], late: list[bool] | None = None) -> None:
    """End torchrun and its ranks, which live in sessions of their own."""
    if late is not None:
        late.append(True)
    try:
        root = psutil.Process(run.pid)
        tree = [*root.children(recursive=True), root]
        run.terminate()  # torchrun passes it on
    except psutil.NoSuchProcess:
        return
    for left in psutil.wait_procs(tree, timeout=GRACE_S)[1]:
        left.kill()


def _environment() -> dict[str, str]:
    """One thread a rank, the loopback by its name, no talk about host names."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PET_")}
    kept |= {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if os.name == "nt":  # built without libuv, and gloo finds its own way
        return kept | {"USE_LIBUV": "0"}
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == LOCAL for address in addresses):
            kept["GLOO_SOCKET_IFNAME"] = name
    return kept


def _rows(name: str, line: Values, device: Device) -> dict[str, Measurement]:
    """The times of a line as rows, and the reasons of those that there are none for."""
    timed, label = line.get("rows", {}), line["device"]
    known: Values = {"device": "cpu" if label == "cpu" else device.label}
    known |= {"source": Source.MEASURED, "method_version": METHOD_VERSION}
    known |= {
        "settings": {"ranks": line["ranks"]},
        "group": f"{name}: {'|'.join(timed)}",
    }
    rows = {
        arm: Measurement(
            name=f"{name} {arm}", **known | row | {"times_s": tuple(row["times_s"])}
        )
        for arm, row in timed.items()
    }
    for arm, reason in line.get("reasons", {}).items():
        missing = Measurement.not_measurable
        rows[arm] = missing(f"{name} {arm}", device=device, reason=reason)
    return rows
