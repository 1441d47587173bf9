"""What is trained, and what DDP makes of it: gradients, messages, times, overlap."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from typing import Any

from gpu_lab.bench.ddp.world import Values, World

ONE_BUCKET_MB = 1000  # larger than any network of the course
MICRO_BATCHES = 4


def network(world: World, widths: Sequence[int] = (64, 256, 64)) -> Any:
    """Linear layers of these widths, the same numbers on every rank."""
    import torch

    torch.manual_seed(0)
    layers = (torch.nn.Linear(*pair) for pair in pairwise(widths))
    return torch.nn.Sequential(*layers).to(world.device)


def batch(world: World, *, seed: int = 0, size: int = 32, width: int = 64) -> Any:
    """The whole batch, the same numbers on every rank."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, width, generator=generator).to(world.device)


def wrapped(module: Any, world: World, **options: Any) -> Any:
    """A module under DDP; device_ids only where it lives on a GPU."""
    import torch

    ids = None if world.device.type == "cpu" else [world.device]
    return torch.nn.parallel.DistributedDataParallel(module, device_ids=ids, **options)


def sleeping(
    world: World, *, layers: int = 8, width: int = 512, compute_s: float = 0.024
) -> Any:
    """Layers that compute for a set time: a third of it forward, two thirds backward.

    Sleeping takes no processor, so ranks that share one do not disturb each other.
    """
    import torch

    def sleep(layer: Any, given: Any, output: Any) -> None:
        def backward(gradient: Any) -> None:
            with torch.profiler.record_function("layer:backward"):
                time.sleep(2 * compute_s / 3 / layers)

        time.sleep(compute_s / 3 / layers)
        output.register_hook(backward)

    found = network(world, [width] * (layers + 1))
    for layer in found:
        layer.bias = None
        layer.register_forward_hook(sleep)
    return found


def counting(seen: list[int], world: World, dtype: Any = None) -> Callable[..., Any]:
    """A communication hook: averages a bucket, in a dtype, and notes its bytes.

    DDP calls it once for each bucket of gradients that is ready.
    """
    import torch.distributed as dist

    # DDP refuses hooks with annotations other than its own, and takes these as texts.
    def hook(state, bucket):  # type: ignore[no-untyped-def]
        gradient = bucket.buffer()
        wire = gradient.to(dtype or gradient.dtype) / world.ranks
        seen.append(wire.nbytes)
        sent = dist.all_reduce(wire, async_op=True).get_future()
        return sent.then(lambda done: done.value()[0].to(gradient.dtype))

    return hook


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
            losses[name].append(float(loss.detach()))
    return losses


def scaling(
    world: World,
    *,
    compute_s: float = 0.024,
    width: int = 512,
    slow: float = 1.0,
    **how: int,
) -> Values:
    """Time of a step of one rank alone, and of all under DDP, in several ways.

    Args:
        compute_s: what eight layers of that width take, a third of it forward.
        slow: how many times slower the last rank computes than the others.
        how: rounds.
    """
    import torch

    mine_s, layer_mb = compute_s * (slow if world.last else 1), width**2 * 4 / 2**20
    make = partial(sleeping, world, width=width, compute_s=mine_s)
    caps = (ONE_BUCKET_MB, layer_mb, layer_mb)
    one, small, half = (wrapped(make(), world, bucket_cap_mb=mb) for mb in caps)
    half.register_comm_hook(None, counting([], world, torch.float16))
    run = partial(step, given=torch.ones(1, width, device=world.device))
    alone = partial(run, make())
    arms: dict[str, Callable[[], Any]] = {
        "first alone": idle if world.rank else alone,
        "last alone": alone if world.last else idle,
        "one bucket": partial(run, one),
        "small buckets": partial(run, small),
        "float16": partial(run, half),
        "4 micro-batches": partial(run, small, accumulate=MICRO_BATCHES),
    }
    set_by = {"bytes": 8 * width**2 * 4, "compute_s": compute_s}
    return {"rows": world.timed(arms, **how), **set_by}


def idle() -> None:
    """What a rank does in an arm of others."""


def overlap(world: World, *, compute_s: float = 0.04) -> Values:
    """Spans of one DDP step in a trace of the profiler, in seconds of one clock."""
    import torch

    ddp = wrapped(sleeping(world, compute_s=compute_s), world, bucket_cap_mb=1)
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
