"""C7: our all-reduce beside an independent loop in the manner of nccl-tests.

Both run in the same two processes and take turns, because two launches of one machine
differ by more than what is asked for.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from peers import rules, work
from peers.agreement import spread
from peers.report import Progress, Result

SIZES = {16 * 2**20: 12, 64 * 2**20: 6}  # bytes: pairs of a short round
CALLS, WARM = 20, 2
LIMIT_S = 280


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Pairs of busbw, ours and the script's, by size; one launch."""
    factor = 4 if full else 1
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1"]
    words += ["--nproc-per-node=2", "--rdzv-backend=c10d"]
    words += ["--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    words += ["-m", "peers.allreduce", str(factor)]
    env = work.environment() | {"OMP_NUM_THREADS": "1"}
    root = str(Path(work.TESTS).parent)
    env["PYTHONPATH"] = os.pathsep.join((env["PYTHONPATH"], root))
    for _ in progress.of(range(1), "C7 all-reduce"):
        done = subprocess.run(
            words, env=env, check=True, capture_output=True, text=True, timeout=LIMIT_S
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1]))


def script_busbw(size_bytes: int) -> float:
    """GB/s as all_reduce_perf prints it: mean of 20 calls back to back, slowest rank.

    Independent of gpu_lab: its own buffers, clock and formula.
    """
    import torch
    import torch.distributed as dist

    data = torch.rand(size_bytes // 4)
    for _ in range(WARM):
        dist.all_reduce(data)
    data.uniform_()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(CALLS):
        dist.all_reduce(data)
    mean_s = torch.tensor((time.perf_counter() - start) / CALLS, dtype=torch.float64)
    dist.all_reduce(mean_s, op=dist.ReduceOp.MAX)
    ranks = dist.get_world_size()
    return size_bytes / float(mean_s) / 1e9 * 2 * (ranks - 1) / ranks


def our_busbw(world: Any, size_bytes: int) -> float:
    """GB/s of one round of `gpu_lab.bench.ddp`, which is a block of calls as well."""
    from gpu_lab.bench import ddp
    from gpu_lab.bench.ddp.collectives import all_reduce

    given = {"sizes": [size_bytes], "rounds": 1, "block_bytes": CALLS * size_bytes}
    (row,) = all_reduce(world, **given)["rows"].values()
    median_s = statistics.median(row["times_s"])
    return float(row["work"] / median_s / 1e9 * ddp.bus_factor(world.ranks))


def main() -> None:
    """On each rank: ours, the script, ours, and so on; rank 0 prints."""
    from gpu_lab.bench import ddp

    world = ddp.join(device="cpu")
    found: dict[str, list[list[float]]] = {}
    for size, count in SIZES.items():
        pairs = []
        for _ in range(count * int(sys.argv[1])):
            before, peer = our_busbw(world, size), script_busbw(size)
            pairs.append([statistics.fmean((before, our_busbw(world, size))), peer])
        found[str(size)] = pairs
    if world.rank == 0:
        print(json.dumps(found), flush=True)


def results(raw: dict[str, Any]) -> list[Result]:
    """C7: ratios of rates, size by size."""
    ratios = {k: [ours / peer for ours, peer in pairs] for k, pairs in raw.items()}
    middle = {k: statistics.median(r) for k, r in ratios.items()}
    texts = [f"{int(k) // 2**20} MiB {spread(r)}" for k, r in ratios.items()]
    rates = [f"{statistics.median(p for _, p in v):.2f} GB/s" for v in raw.values()]
    above = sum(r > 1 for found in ratios.values() for r in found)
    total = sum(map(len, ratios.values()))
    return [
        Result(
            "C7",
            "agreement, all-reduce: busbw ours / script, in the same processes",
            "within 3 % at 16 MiB and more",
            f"{', '.join(texts)}; above the script's {rules.share(above, total)}",
            f"nccl-tests style: {', '.join(rates)}",
            met=all(abs(value - 1) <= 0.03 for value in middle.values()),
        )
    ]


if __name__ == "__main__":
    main()
