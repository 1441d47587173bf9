"""Who waits for whom: the pace of loading and computing, from two measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass

PAYS = 0.05  # one more worker must save that share of the time
BUSY = 0.5  # loading in which a core works more than that share is computing


@dataclass(frozen=True)
class LoaderModel:
    """Seconds from batch to batch, by number of workers.

    Without workers the loop loads, then steps. With workers both go on at the same
    time and the slowest sets the pace: workers together, step, or cores.

    Attributes:
        load_s: one batch by one process; step_s: one step.
        busy_s: of both, seconds in which a core works; the rest is waiting.
        load_busy: share of loading in which a core works.
    """

    load_s: float
    step_s: float
    busy_s: float = 0.0
    load_busy: float = 0.0
    cores: int = 1

    def batch_s(self, workers: int) -> float:
        """Seconds from batch to batch with so many workers."""
        if not workers:
            return self.load_s + self.step_s
        return max(self.load_s / workers, self.step_s, self.busy_s / self.cores)

    @property
    def knee(self) -> int:
        """Fewest workers after which nothing more is gained."""
        enough_s = (1 + PAYS) * max(self.step_s, self.busy_s / self.cores)
        if self.batch_s(0) <= enough_s:
            return 0
        spread = max(1, math.ceil(self.load_s / enough_s))
        return min(spread, self.cores) if self.load_busy > BUSY else spread

    def limit(self, workers: int, *, link_s: float = 0.0) -> str:
        """What sets the pace now: "step", "link", "cores", "disk" or "workers"."""
        loader = "cores" if self.load_busy > BUSY else "disk"
        if 0 < workers < self.knee:
            loader = "workers"
        parts = {"step": self.step_s, "link": link_s, "cores": self.busy_s / self.cores}
        load_s = self.load_s / max(1, workers)
        slowest = max(parts, key=lambda name: parts[name])
        return slowest if parts[slowest] * (1 + PAYS) >= load_s else loader
