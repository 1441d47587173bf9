"""The group of processes: how a rank joins it, and what the ranks do together."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu_lab.records import Device
from gpu_lab.timing import across_ranks, clock_for

Values = dict[str, Any]


@dataclass(frozen=True)
class World:
    """One rank's view: which one of how many it is, where it computes."""

    rank: int
    ranks: int
    device: Any

    @property
    def last(self) -> bool:
        """Whether this is the rank with the highest number."""
        return self.rank == self.ranks - 1

    def meet(self) -> None:
        """Return when all ranks have come."""
        import torch.distributed as dist

        dist.barrier()

    def leave(self) -> None:
        """Close the group when all are done, and end this process at once.

        A thread of a group that is still running would abort a normal exit.
        """
        import torch.distributed as dist

        dist.barrier()
        dist.destroy_process_group()
        os._exit(0)

    def all(self, value: Any) -> list[Any]:
        """The values of all ranks, in the order of their numbers."""
        import torch.distributed as dist

        found = [None] * self.ranks
        dist.all_gather_object(found, value)
        return found

    def timed(
        self, arms: Mapping[str, Callable[[], Any]], *, rounds: int, **options: Any
    ) -> dict[str, Values]:
        """Rows by name of arms in the same rounds, on the slowest rank; in seconds.

        Args:
            options: of `across_ranks`.
        """
        kind, index = self.device.type, self.device.index or 0
        clock = clock_for(Device(backend=kind, name=kind, index=index))
        times = across_ranks(arms, clock=clock, crowd=self, rounds=rounds, **options)
        return {name: {"times_s": times_s} for name, times_s in times.items()}


def join(*, device: str = "auto", patience_s: float = 60.0) -> World:
    """Join the group that torchrun prepared: first the device, then the group.

    Each rank takes the GPU of its number where there is one for each, else all take the
    processor. Gloo is the back end of processors, NCCL (RCCL) and XCCL those of GPUs.
    """
    import torch
    import torch.distributed as dist

    mine, here = int(os.environ["LOCAL_RANK"]), torch.device("cpu")
    gpu = torch.accelerator.current_accelerator(check_available=True)
    enough = torch.accelerator.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    if device != "cpu" and gpu and gpu.type in ("cuda", "xpu") and enough:
        torch.accelerator.set_device_index(mine)
        here = torch.device(gpu.type, mine)
    dist.init_process_group(
        dist.get_default_backend_for_device(here),
        timeout=datetime.timedelta(seconds=patience_s),
        device_id=here if here.index is not None else None,
    )
    return World(dist.get_rank(), dist.get_world_size(), here)
