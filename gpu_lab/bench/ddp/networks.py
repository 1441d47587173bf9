"""What is trained: small networks, and layers that compute for a set time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from gpu_lab.bench.ddp.world import World


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


def sleeping(world: World, *, layers: int, width: int, compute_s: float) -> Any:
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
