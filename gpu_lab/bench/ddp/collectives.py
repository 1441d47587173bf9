"""All-reduce: value, time as nccl-tests has it, by hand; and ranks that are late."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gpu_lab import units
from gpu_lab.bench.ddp.world import Values, World
from gpu_lab.bench.rows import WrongResult

MOST_CALLS = 20  # back to back, as nccl-tests makes them


def bus_factor(ranks: int) -> float:
    """Bytes that a rank must send to all-reduce one byte: 2 (n - 1) / n.

    algbw = bytes / time; busbw = algbw x this factor, which does not depend on n where
    the hardware is the limit (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    """
    return 2 * (ranks - 1) / ranks


def all_reduce(
    world: World, *, sizes: Sequence[int], rounds: int = 12, block_bytes: int = 2**26
) -> Values:
    """Time of one float32 all-reduce over sizes in bytes; its value is checked before.

    A sample is the mean of up to 20 calls back to back, on the slowest rank; of fewer
    where they would move more than `block_bytes`.

    Raises:
        WrongResult: a sum is wrong; then its speed means nothing.
    """
    import torch
    import torch.distributed as dist

    given = torch.arange(max(sizes) // 4, device=world.device) % 1000 + 1.0
    mine = given * (world.rank + 1)
    data = {units.size(n): mine[: n // 4].clone() for n in sizes}
    for name, numbers in data.items():
        dist.all_reduce(numbers)
        factor = world.ranks * (world.ranks + 1) / 2
        if not torch.equal(numbers, given[: len(numbers)] * factor):
            raise WrongResult(f"all-reduce of {name}: the sum is wrong")

    def again() -> None:  # sums of sums of sums would overflow
        for numbers in data.values():
            numbers.copy_(given[: len(numbers)])

    arms = {name: partial(dist.all_reduce, numbers) for name, numbers in data.items()}
    most = {name: block_bytes // numbers.nbytes for name, numbers in data.items()}
    number = {name: max(2, min(MOST_CALLS, calls)) for name, calls in most.items()}
    rows = world.timed(arms, rounds=rounds, number=number, before=again)
    for name, row in rows.items():
        row |= {"number_per_run": number[name], "work": data[name].nbytes}
        row |= {"work_unit": "byte"}
    return {"rows": rows}


def ring_all_reduce(tensor: Any, *, rank: int, ranks: int) -> int:
    """Sum over all ranks in place, by messages to the right neighbour only.

    In the first half of the steps sums travel round the ring until each piece of the
    tensor is complete on one rank; in the second half the complete pieces travel.

    Returns:
        Bytes that this rank sent: 2 (n - 1) / n of the tensor.
    """
    import torch
    import torch.distributed as dist

    pieces, sent = tensor.view(-1).chunk(ranks), 0
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    for step in range(2 * (ranks - 1)):
        mine, theirs = pieces[(rank - step) % ranks], pieces[(rank - step - 1) % ranks]
        arrived = torch.empty_like(theirs)
        send = dist.P2POp(dist.isend, mine, right)
        receive = dist.P2POp(dist.irecv, arrived, left)
        for message in dist.batch_isend_irecv([send, receive]):
            message.wait()
        theirs.copy_(theirs + arrived if step < ranks - 1 else arrived)
        sent += mine.nbytes
    return sent


def ring(world: World, *, size: int) -> Values:
    """The ring by hand against dist.all_reduce, on random numbers; bytes sent."""
    import torch

    torch.manual_seed(world.rank)
    mine = torch.randn(size // 4, device=world.device)
    theirs = mine.clone()
    sent = ring_all_reduce(mine, rank=world.rank, ranks=world.ranks)
    torch.distributed.all_reduce(theirs)
    error = float((mine - theirs).abs().max() / theirs.abs().max())
    return {"error": error, "sent": world.all(sent), "size": size}


def fault(world: World, *, rank: int = 1) -> Values:
    """One rank fails while the others wait for it."""
    if world.rank == rank:
        raise IndexError("planted: label 10 where there are 10 classes")
    world.meet()
    return {}


def faults_named(world: World, *, patience_s: float = 0.5) -> Values:
    """What is said of a rank that is late, and of shapes that differ under DETAIL."""
    import torch
    import torch.distributed as dist

    wait = datetime.timedelta(seconds=patience_s)
    group: Any = dist.new_group(backend="gloo")
    before = dist.get_debug_level()
    time.sleep(2 * patience_s * world.last)
    late = _said(lambda: dist.monitored_barrier(group, timeout=wait))
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # as TORCH_DISTRIBUTED_DEBUG does
    careful: Any = dist.new_group(backend="gloo")
    tensor = torch.ones(4 + world.rank)
    differ = _said(lambda: dist.all_reduce(tensor, group=careful))
    dist.set_debug_level(before)
    return {"late": world.all(late)[0], "mismatch": differ}


def _said(call: Callable[[], Any]) -> str:
    """First line of the error that a call raises; "" when it raises none."""
    try:
        call()
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return ""
