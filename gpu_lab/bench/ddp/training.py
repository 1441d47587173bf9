"""What DistributedDataParallel (DDP) does: gradients, messages, times, overlap."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from gpu_lab.bench.ddp.networks import batch, counting, network, sleeping, wrapped
from gpu_lab.bench.ddp.world import Values, World

ONE_BUCKET_MB = 1000  # larger than any network of the course
MICRO_BATCHES = 4


def gradients(world: World) -> Values:
    """DDP on shards against one process with the whole batch, and two ways to err."""
    import torch

    whole, n = batch(world), world.ranks
    first, end = (len(whole) * r**2 // n**2 for r in (world.rank, world.rank + 1))

    def gradient(part: Any, loss: str = "mean", *, ddp: bool = True) -> Any:
        module = network(world)
        trained = wrapped(module, world) if ddp else module
        getattr(trained(part).square(), loss)().backward()
        return torch.cat([p.grad.flatten() for p in module.parameters()])

    means, sums = (gradient(whole, loss, ddp=False) for loss in ("mean", "sum"))
    shard, uneven = whole[world.rank :: n], whole[first:end]
    error, off = ((gradient(x) - means).norm() / means.norm() for x in (shard, uneven))
    factor = sums.norm() / gradient(shard, "sum").norm()
    return {"error": float(error), "uneven": float(off), "sum": float(factor)}


def step(module: Any, given: Any, *, accumulate: int = 1) -> None:
    """Forward and backward; of several micro-batches the last one communicates."""
    for number in range(accumulate):
        with module.no_sync() if number < accumulate - 1 else nullcontext():
            module(given).square().mean().backward()
    module.zero_grad()


def messages(world: World, *, widths: Sequence[int], bucket_mb: float = 1.0) -> Values:
    """Bytes of the messages of a step, by way, counted by a hook; layer 0 is frozen.

    For each way those of its first step, when DDP does not know yet in which order
    gradients come, and those of its third.
    """
    import torch

    given: Any = {"bucket_cap_mb": bucket_mb}
    found: Values = {"unused": unused(world)}
    for name in ("one bucket", "small buckets", "static graph", "no_sync", "float16"):
        module, seen, ends = network(world, widths), list[int](), [0]
        module[0].requires_grad_(False)
        cap = {"bucket_cap_mb": ONE_BUCKET_MB} if name == "one bucket" else given
        ddp = wrapped(module, world, static_graph=name == "static graph", **cap)
        half = torch.float16 if name == "float16" else None
        ddp.register_comm_hook(None, counting(seen, world, half))
        for _ in range(3):
            times = MICRO_BATCHES if name == "no_sync" else 1
            step(ddp, batch(world, width=widths[0]), accumulate=times)
            ends.append(len(seen))
        found[name] = [seen[: ends[1]], seen[ends[2] :]]
    return found


def unused(world: World) -> dict[str, str]:
    """What the second step says when a layer got no gradient, and what cures it."""
    found = {}
    for cure in ("none", "find_unused_parameters", "static_graph"):
        module = network(world)
        module.forward = module[0].forward  # the second layer is never asked
        ddp = wrapped(module, world, **({} if cure == "none" else {cure: True}))
        try:
            for _ in range(2):
                step(ddp, batch(world))
            found[cure] = "works"
        except RuntimeError as error:
            found[cure] = str(error).split(".")[0]
    return found


def control(world: World, *, steps: int = 5) -> Values:
    """Losses of plain training, and of a group of one under DDP: they must be equal."""
    import torch

    groups = [torch.distributed.new_group([rank]) for rank in range(world.ranks)]
    ddp = wrapped(network(world), world, process_group=groups[world.rank])
    losses: Values = {"plain": [], "ddp": []}
    for name, module in {"plain": network(world), "ddp": ddp}.items():
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for number in range(steps):
            optimizer.zero_grad()
            loss = module(batch(world, seed=number)).square().mean()
            loss.backward()
            optimizer.step()
            losses[name].append(float(loss))
    return losses


def scaling(
    world: World,
    *,
    layers: int = 8,
    width: int = 512,
    compute_s: float = 0.024,
    slow: float = 1.0,
    rounds: int = 12,
) -> Values:
    """Time of a step of one rank alone, and of all under DDP, in several ways.

    Args:
        slow: how many times slower the last rank computes than the others.
    """
    import torch

    mine_s, layer_mb = compute_s * (slow if world.last else 1), width**2 * 4 / 2**20
    make = partial(sleeping, world, layers=layers, width=width, compute_s=mine_s)
    caps = (ONE_BUCKET_MB, layer_mb, layer_mb)
    one, small, half = (wrapped(make(), world, bucket_cap_mb=mb) for mb in caps)
    half.register_comm_hook(None, counting([], world, torch.float16))
    run = partial(step, given=torch.ones(1, width, device=world.device))
    alone = partial(run, make())
    arms = {
        "first alone": idle if world.rank else alone,
        "last alone": alone if world.last else idle,
        "one bucket": partial(run, one),
        "small buckets": partial(run, small),
        "float16": partial(run, half),
        "4 micro-batches": partial(run, small, accumulate=MICRO_BATCHES),
    }
    set_by = {"bytes": layers * width**2 * 4, "compute_s": compute_s}
    return {"rows": world.timed(arms, rounds=rounds), **set_by}


def idle() -> None:
    """What a rank does in an arm of others."""


def overlap(world: World, *, layers: int = 8, compute_s: float = 0.04) -> Values:
    """Spans of one DDP step in a trace of the profiler, in seconds of one clock."""
    import torch

    module = sleeping(world, layers=layers, width=512, compute_s=compute_s)
    ddp = wrapped(module, world, bucket_cap_mb=1)
    run = partial(step, ddp, torch.ones(1, 512, device=world.device))
    for _ in range(2):
        run()
    with torch.profiler.profile() as trace:
        run()
    spans: dict[str, list[tuple[float, float]]] = {"backward": [], "all_reduce": []}
    for event in trace.events():
        if (name := event.name.split(":")[-1]) in spans:
            at = event.time_range
            spans[name].append((at.start / 1e6, at.end / 1e6))
    return {name: sorted(found) for name, found in spans.items()}
