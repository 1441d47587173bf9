"""What ranks do in tests only: faults, a shaped link, training that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gpu_lab.bench.ddp import World
from gpu_lab.bench.ddp.training import (
    batch,
    counting,
    network,
    sleeping,
    step,
    wrapped,
)


def fault(world: World, *, kind: str, rank: int = 1) -> dict[str, Any]:
    """One rank fails in one of four ways while the others wait for it."""
    if world.rank == rank:
        if kind == "raise":
            raise ValueError("planted")
        if kind == "hang":
            time.sleep(1e6)
        if kind == "memory":
            bytearray(2**60)
        os.kill(os.getpid(), signal.SIGKILL)  # as the system when memory runs out
    world.meet()
    return {}


def noisy(world: World) -> dict[str, Any]:
    """Much talk on both streams, half lines too."""
    print("not JSON\n" * 2000, end="{", flush=True)
    print("", flush=True)
    os.write(2, b"x" * 200_000)
    return {"large": list(range(20_000))}


def shape(world: World, *, mbit: int, links: list[str]) -> dict[str, Any]:
    """Limit what leaves this rank's namespace; both ranks do."""
    here = next(name for name in links if Path("/sys/class/net", name).exists())
    words = ["tc", "qdisc", "replace", "dev", here, "root", "tbf"]
    words += ["rate", f"{mbit}mbit", "burst", "128kb", "latency", "400ms"]
    subprocess.run(words, check=True, timeout=20)
    world.meet()
    return {"mbit": mbit}


def steps(
    world: World, *, layers: int = 8, width: int = 256, compute_s: float = 0.06
) -> dict[str, Any]:
    """A step alone, with one bucket, with one for each layer, and in float16."""
    make = partial(sleeping, world, layers=layers, width=width, compute_s=compute_s)
    layer_mb = width**2 * 4 / 2**20
    one, small, half = (
        wrapped(make(), world, bucket_cap_mb=mb) for mb in (1000, layer_mb, layer_mb)
    )
    half.register_comm_hook(None, counting([], world, torch.float16))
    given = torch.ones(1, width)
    arms = {"alone": make(), "one bucket": one, "small buckets": small, "float16": half}
    calls = {name: partial(step, module, given) for name, module in arms.items()}
    return {"rows": world.timed(calls, rounds=10), "bytes": layers * width**2 * 4}


def train(
    world: World, *, steps: int, every: int, folder: str, kill_at: int = -1
) -> dict[str, Any]:
    """Train from the last checkpoint in `folder`, which rank 0 writes now and then.

    Args:
        every: steps between two checkpoints: the most that a restart loses.
        kill_at: steps after which the last rank is killed, in its first life.
    """
    module, path, first = network(world), Path(folder) / "checkpoint.pt", 0
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    if path.is_file():
        kept = torch.load(path, map_location=world.device)
        module.load_state_dict(kept["module"])
        optimizer.load_state_dict(kept["optimizer"])
        first = kept["steps"]
    ddp = wrapped(module, world)
    life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    mark = Path(folder) / "killed"
    for done in range(first + 1, steps + 1):
        optimizer.zero_grad()
        shard = batch(world, seed=done)[world.rank :: world.ranks]
        loss = ddp(shard).square().mean()
        loss.backward()
        optimizer.step()
        if world.rank == 0 and done % every == 0:
            parts = {"module": module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**parts, "steps": done}, f"{path}.part")
            os.replace(f"{path}.part", path)
        if done == kill_at and world.last and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return {
        "loss": sum(world.all(float(loss.detach()))) / world.ranks,
        "first": first,
        "life": life,
    }
