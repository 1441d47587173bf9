"""How long a DDP step takes behind a link, and what each rank holds when sharded.

    step = forward + max(backward, messages) + what the first bucket cannot hide

Messages overlap only the backward pass. The sum is made event by event: a bucket is
sent when its gradients are ready and the one before it has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_lab.bench import LinkFit, ddp, fit_link
from gpu_lab.records import Measurement

FORWARD = 1 / 3  # of the computing; backward takes the rest


@dataclass(frozen=True)
class Step:
    """One training step: seconds of computing, bytes of all gradients and a bucket."""

    compute_s: float
    gradient_bytes: float
    bucket_bytes: float

    def time_s(self, link: LinkFit, ranks: int) -> float:
        """Seconds of the step on that many ranks, each with such a link to the next."""
        forward_s, left, arrived_s = FORWARD * self.compute_s, self.gradient_bytes, 0.0
        backward_s = self.compute_s - forward_s
        while left > 0 and ranks > 1:
            size = min(self.bucket_bytes, left)
            left -= size
            ready_s = backward_s * (1 - left / self.gradient_bytes)
            sending_s = link.time_s(ddp.bus_factor(ranks) * size)
            arrived_s = max(ready_s, arrived_s) + sending_s
        return forward_s + max(backward_s, arrived_s)

    def speedup(self, link: LinkFit, ranks: int) -> float:
        """Samples a second on that many ranks, over those of one."""
        return ranks * self.compute_s / self.time_s(link, ranks)


def link_of(rows: Sequence[Measurement]) -> LinkFit:
    """t0, and the bytes a second that a rank sends, from all-reduces of many sizes."""
    factors = [ddp.bus_factor(int(row.settings["ranks"])) for row in rows]
    sent = [f * (row.work or 0) for f, row in zip(factors, rows, strict=True)]
    pairs = [(n, t) for n, row in zip(sent, rows, strict=True) for t in row.times_s]
    return fit_link(*zip(*pairs, strict=True))


def zero_bytes(stage: int, *, parameters: float, ranks: int) -> dict[str, float]:
    """Bytes on each rank with Adam in float32, between forward and step, by stage.

    ZeRO (Rajbhandari et al. 2020): stage 1 shards the state of the optimizer, stage 2
    the gradients too, stage 3 also the parameters; stage 0 copies everything.
    """
    held = {"parameters": (4, 3), "gradients": (4, 2), "optimizer": (8, 1)}
    return {
        name: parameters * each / (ranks if stage >= sharded_from else 1)
        for name, (each, sharded_from) in held.items()
    }
