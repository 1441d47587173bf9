"""The one simulated device: a launch queue, a cache, a link, heat, on virtual time.

It drives the same core as a real GPU does, with known answers: for tests, and for
learners without a GPU. Whatever is timed on it is SIMULATED. Nothing here waits:
an hour of its time passes in a moment.
"""

from __future__ import annotations

import random
from bisect import bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass

from gpu_lab.records import Device, DeviceState, Source

SIMULATED = Device(backend="cuda", name="Simulated GPU", simulated=True)
HARDWARE_SLOWDOWN, GPU_IDLE = 0x8, 0x1  # event reasons as NVML numbers them
POLL_S = 1e-7  # what looking at a clock or a mark costs the host
IDLE_C, HOT_C = 35.0, 85.0


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the device is like; every field can be planted.

    Attributes:
        launch_s: host seconds to queue one piece of work.
        gap_s: device seconds between two pieces of work.
        depth: pieces of work the queue holds before the host must wait.
        link_start_s, link_bytes_per_s: a copy of n bytes takes t0 + n / B.
        drift_per_s: share by which work takes longer with each second of use.
        throttle_after_s: seconds of use after which the clock falls to `throttle_to`.
        noise: standard deviation of the logarithm of each duration.
    """

    launch_s: float = 5e-6
    gap_s: float = 1e-6
    depth: int = 1024
    flop_per_s: float = 20e12
    memory_bytes_per_s: float = 400e9
    cache_bytes: int = 32 * 2**20
    cache_bytes_per_s: float = 2e12
    link_start_s: float = 12e-6
    link_bytes_per_s: float = 2.8e9
    clock_mhz: int = 2000
    drift_per_s: float = 0.0
    throttle_after_s: float = float("inf")
    throttle_to: float = 0.6
    noise: float = 0.01


class SimulatedEvent:
    """A mark: the moment when the device comes to it is known at once."""

    def __init__(self, gpu: SimulatedGpu, at_s: float) -> None:
        """A mark at that moment of the device."""
        self._gpu = gpu
        self.at_s = at_s

    def done(self) -> bool:
        """Whether the device has come to the mark."""
        return self._gpu.wall() >= self.at_s

    def seconds_to(self, later: SimulatedEvent) -> float:
        """Device seconds from this mark to a later one."""
        return later.at_s - self.at_s


class SimulatedGpu:
    """A GPU on virtual time, with two streams: 0 computes, 1 copies."""

    source = Source.SIMULATED
    wall_per_s = 1.0

    def __init__(self, model: Model | None = None, *, seed: int = 0) -> None:
        """An idle, cold device; the same seed gives the same noise."""
        self.model = model or Model()
        self._random = random.Random(seed)
        self._now_s = 0.0
        self._cpu_s = 0.0
        self._free_s = [0.0, 0.0]  # when each stream has done all that is queued
        self._ends_s: list[float] = []  # of the pieces in the queue, in order
        self._cache: OrderedDict[object, int] = OrderedDict()
        self._used_s = 0.0

    # What a clock with a queue can do.

    def wall(self) -> float:
        """Virtual seconds since the device was made."""
        self._now_s += POLL_S
        return self._now_s

    def cpu(self) -> float:
        """Virtual seconds in which the host worked rather than waited."""
        return self._cpu_s

    def synchronize(self) -> None:
        """Let the host wait until both streams are done."""
        self._now_s = max(self._now_s, *self._free_s)
        self._ends_s.clear()

    def hold(self, hold_s: float) -> None:
        """Keep the device busy for exactly that long."""
        self._queue(hold_s, stream=0, exact=True)

    def mark(self) -> SimulatedEvent:
        """A mark behind all that is queued on the computing stream."""
        return SimulatedEvent(self, max(self._now_s, self._free_s[0]))

    def anchor(self) -> None:
        """The reference work: always the same kernel."""
        self.kernel(50e-6)

    def state(self) -> DeviceState:
        """Clock, heat and event reasons of this moment."""
        slow = self._used_s > self.model.throttle_after_s
        share = self.model.throttle_to if slow else 1.0
        warm = HOT_C - (HOT_C - IDLE_C) / (1 + self._used_s / 20)
        return DeviceState(
            temperature_c=round(warm, 1),
            clock_sm_mhz=round(self.model.clock_mhz * share / self._drifted()),
            event_reasons=HARDWARE_SLOWDOWN if slow else 0,
        )

    # Work.

    def kernel(self, work_s: float) -> None:
        """Queue a kernel that takes that long on the cold device."""
        self._queue(work_s, stream=0)

    def matmul(self, n: int) -> None:
        """Queue a product of two n x n matrices: 2 n**3 operations."""
        self.kernel(2.0 * n**3 / self.model.flop_per_s)

    def touch(self, buffer: object, size_bytes: int) -> None:
        """Queue reading a buffer of that size: fast while it is still in the cache."""
        hit = self._cache.pop(buffer, 0) >= size_bytes
        self._cache[buffer] = size_bytes
        while sum(self._cache.values()) > self.model.cache_bytes:
            self._cache.popitem(last=False)
        model = self.model
        speed = model.cache_bytes_per_s if hit else model.memory_bytes_per_s
        self.kernel(size_bytes / speed)

    def copy(self, size_bytes: int, *, stream: int = 0) -> None:
        """Queue a copy over the link."""
        model = self.model
        self._queue(
            model.link_start_s + size_bytes / model.link_bytes_per_s, stream=stream
        )

    def _queue(self, work_s: float, *, stream: int, exact: bool = False) -> None:
        self._now_s += self.model.launch_s
        self._cpu_s += self.model.launch_s
        self._make_room()
        noise = 0.0 if exact else self._random.gauss(0.0, self.model.noise)
        factor = 1.0 if exact else (1 + noise) * self._slower()
        start_s = max(self._now_s, self._free_s[stream] + self.model.gap_s)
        self._free_s[stream] = start_s + work_s * factor
        self._used_s += work_s * factor
        insort(self._ends_s, self._free_s[stream])

    def _make_room(self) -> None:
        """The host waits while the queue is full."""
        del self._ends_s[: bisect_right(self._ends_s, self._now_s)]
        if len(self._ends_s) >= self.model.depth:
            self._now_s = self._ends_s[-self.model.depth]

    def _drifted(self) -> float:
        return 1 + self.model.drift_per_s * self._used_s

    def _slower(self) -> float:
        slow = self._used_s > self.model.throttle_after_s
        return self._drifted() / (self.model.throttle_to if slow else 1.0)
