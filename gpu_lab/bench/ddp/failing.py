"""Faults made on purpose: what is said when a rank errs, is late or disagrees."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

from gpu_lab.bench.ddp.world import Values, World


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
    group, before = dist.new_group(backend="gloo"), dist.get_debug_level()
    time.sleep(2 * patience_s * world.last)
    late = _said(lambda: dist.monitored_barrier(group, timeout=wait))
    dist.set_debug_level(dist.DebugLevel.DETAIL)  # as TORCH_DISTRIBUTED_DEBUG does
    careful, tensor = dist.new_group(backend="gloo"), torch.ones(4 + world.rank)
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
