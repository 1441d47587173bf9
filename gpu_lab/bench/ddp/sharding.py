"""What is not copied: sharded state, split layers, stages; the older DataParallel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpu_lab.bench.ddp.training import batch, idle, network, step, wrapped
from gpu_lab.bench.ddp.world import Values, World

STAGES = ("copied", "stage 1", "stage 2", "stage 3")
CARD_BYTES = 2**26


def sharding(world: World, *, layers: int = 4, width: int = 256) -> Values:
    """Bytes held by each rank under DDP and in the three stages of ZeRO, with Adam.

    Stage 1 is ZeroRedundancyOptimizer; 2 and 3 are FSDP2 (fully_shard) without and
    with giving the parameters back after the forward pass. Parameters are counted
    between forward and backward, gradients after backward, the state after a step.
    """
    widths = [width] * (layers + 1)
    return {stage: world.all(_held(stage, world, widths)) for stage in STAGES}


def _held(stage: str, world: World, widths: list[int]) -> dict[str, int]:
    import torch
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer

    module, adam = network(world, widths), torch.optim.Adam
    if stage in STAGES[2:]:
        for part in (*module, module):
            fully_shard(
                part, mesh=_mesh(world), reshard_after_forward=stage == STAGES[3]
            )
    else:
        module = wrapped(module, world)
    optimizer: Any = adam(module.parameters())
    if stage == "stage 1":
        optimizer = ZeroRedundancyOptimizer(module.parameters(), adam)
    output = module(batch(world, width=widths[0]))
    held = {"parameters": _bytes(module.parameters())}
    output.sum().backward()
    held["gradients"] = _bytes(p.grad for p in module.parameters())
    optimizer.step()
    state = getattr(optimizer, "optim", optimizer).state.values()
    moments = (of_one[name] for of_one in state for name in ("exp_avg", "exp_avg_sq"))
    return {**held, "optimizer": _bytes(moments)}


def _bytes(tensors: Iterable[Any]) -> int:
    """Bytes on this rank of tensors, sharded ones or whole ones."""
    return sum(getattr(t, "to_local", lambda t=t: t)().nbytes for t in tensors)


def _mesh(world: World) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(world.device.type, (world.ranks,))


def tensor_parallel(world: World) -> Values:
    """Two layers split over the ranks against the same layers whole (DTensor).

    The first is split by columns, the second by rows: one sum for the pair. Each rank
    holds a share of the weights; activations travel in every pair.
    """
    from torch.distributed.tensor import parallel

    plan = {"0": parallel.ColwiseParallel(), "1": parallel.RowwiseParallel()}
    dense = network(world)
    split = parallel.parallelize_module(network(world), _mesh(world), plan)
    wanted, found = (module(batch(world)) for module in (dense, split))
    error = float((found - wanted).abs().max() / wanted.abs().max())
    held = world.all(_bytes(split.parameters()))
    return {"error": error, "dense": _bytes(dense.parameters()), "split": held}


def pipeline(world: World, *, micro_batches: int = 4) -> Values:
    """A layer on each rank, one after the other (GPipe), against the whole network."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    whole, x = network(world, [64] * (world.ranks + 1)), batch(world)
    mine = PipelineStage(whole[world.rank], world.rank, world.ranks, world.device)
    found = ScheduleGPipe(mine, micro_batches).step(*([] if world.rank else [x]))
    error = float((found - whole(x)).abs().max()) if world.last else 0.0
    share = (world.ranks - 1) / (micro_batches + world.ranks - 1)
    return {"error": max(world.all(error)), "idle share": share}


def data_parallel(world: World, *, width: int = 1024, rounds: int = 12) -> Values:
    """DataParallel in rank 0 beside DDP on all, and a copy from card to card.

    The same whole batch for both. Each step of DataParallel sends all parameters from
    the first card to the others, and all gradients back to it.
    """
    import torch

    names = ("DataParallel", "DDP, same batch", "card to card")
    if world.device.type != "cuda" or world.ranks < 2:
        return {"reasons": dict.fromkeys(names, "needs two GPUs: one for each rank")}
    old = torch.nn.DataParallel(network(world, [width] * 5))
    whole = batch(world, size=1024, width=width)
    new = wrapped(network(world, [width] * 5), world)
    there, back = (torch.ones(CARD_BYTES // 4, device=f"cuda:{i}") for i in (0, 1))
    calls = (
        idle if world.rank else lambda: step(old, whole),
        lambda: step(new, whole[world.rank :: world.ranks]),
        idle if world.rank else lambda: back.copy_(there),
    )
    rows = world.timed(dict(zip(names, calls, strict=True)), rounds=rounds)
    rows[names[2]] |= {"work": CARD_BYTES, "work_unit": "byte"}
    return {"rows": rows, "peer access": torch.cuda.can_device_access_peer(0, 1)}
