"""measure() and interleave(): rounds of samples of one or more arms, and an anchor."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpu_lab.records import Device, DeviceState, Settings, Source
from gpu_lab.timing import flags
from gpu_lab.timing.clocks import Clock, Queue, StandInClock, clock_for
from gpu_lab.timing.noise import Evidence
from gpu_lab.timing.plans import QUICK, Plan
from gpu_lab.timing.samplers import HostSampler, QueueSampler, Reading, Sampler, Turns
from gpu_lab.timing.simulated import SimulatedGpu
from gpu_lab.timing.stats import interval, log_ratios

if TYPE_CHECKING:
    from collections.abc import Iterator

FEWEST_ROUNDS = 12
GROWTH = 1.5  # looks at 12, 18, 27, 40, 60, …: few, so that peeking does no harm
LOOK_CONFIDENCE = 0.989  # Pocock's for ten looks
# Futile: the rest of the budget would leave more than 4 times the asked half-width, so
# that reaching it would take 16 times as long.
PATIENCE = 16.0
FUTILE_ROUNDS = 90  # fewer cannot say how many more would be needed
PREPARING = 3  # calls of an arm before the rounds: the first one, warm-up, a probe
ANCHOR, ANCHOR_S = "anchor", 0.0003


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One thing to time: prepared calls without arguments, and what a call does.

    Attributes:
        calls: taken in turn; several, over copies of the data, keep a cache cold.
        queued: False when a call waits for the device itself (pageable copies).
        hot: True when the data of a call may still lie in a cache.
        helpers: True when other processes do part of it: the wall clock decides.
        work: amount of work of one call, in `work_unit`.
        settings: everything that must be equal for two rows to be comparable.
        reason: why this device cannot do it; then there are no calls.
    """

    name: str
    calls: tuple[Callable[[], Any], ...] = ()
    queued: bool = True
    hot: bool = False
    helpers: bool = False
    work: float | None = None
    work_unit: str = ""
    version: int = 1
    settings: Settings = field(default_factory=dict)
    observed: Settings = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of one call of one arm, one entry per round.

    Attributes:
        times_s: wall seconds, or device seconds where `decided_by` is "events".
        decided_by: clock that decides comparisons: "wall", "cpu" or "events".
        anchor_s: seconds of the reference arm in the same rounds; () without one.
        flags: busy, throttled, launch-bound, bimodal, hot-cache, drifting, waits.
        stopped: why no further round was taken.
    """

    times_s: tuple[float, ...]
    cpu_times_s: tuple[float, ...]
    number_per_run: int
    source: Source
    decided_by: str = "wall"
    anchor_s: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()
    observed: Settings = field(default_factory=dict)
    states: tuple[DeviceState, ...] = ()
    warmup_s: tuple[float, ...] = ()
    stopped: str = ""


def measure(
    call: Callable[[], Any] | Arm,
    *,
    device: Device,
    plan: Plan = QUICK,
    clock: Clock | None = None,
) -> Timing:
    """Time of one call, in seconds, once a round, beside a fixed reference arm.

    Inside the clock: a block of calls and, without a queue, the wait for the device.
    Outside: warm-up, finding the block length, garbage collection.

    Args:
        call: prepared work without arguments, or an Arm; allocate its data before.
        clock: for tests; otherwise the clock that belongs to `device`.

    Raises:
        DeviceLost: the device vanished during the run.
    """
    arm = call if isinstance(call, Arm) else Arm(name="call", calls=(call,))
    return interleave([arm], device=device, plan=plan, clock=clock)[0]


def interleave(
    arms: Sequence[Arm],
    *,
    device: Device,
    plan: Plan = QUICK,
    clock: Clock | None = None,
    seed: int = 0,
) -> tuple[Timing, ...]:
    """Times of several arms, one sample of each a round: round i belongs together.

    The order within a round is random, and the first arm of the list alternates
    between early and late, so that drift and neighbours hit all arms alike. A fixed
    reference arm, the anchor, takes part in each round.

    Raises:
        ValueError: two arms of one name.
        DeviceLost: the device vanished during the run.
    """
    names = [arm.name for arm in arms]
    if len({*names, ANCHOR}) <= len(names):
        raise ValueError(f"wanted arms of different names, found {', '.join(names)}")
    if not arms:
        return ()
    clock = clock or clock_for(device)
    rounds = _Rounds(arms, device=device, plan=plan, clock=clock, seed=seed)
    # Virtual time does not see a collection, and collecting takes a tenth of a second.
    with nullcontext() if rounds.virtual else no_garbage_collection():
        rounds.run()
    return tuple(rounds.timing(arm) for arm in arms)


class _Rounds:
    """All that is known while arms are being timed."""

    def __init__(
        self,
        arms: Sequence[Arm],
        *,
        device: Device,
        plan: Plan,
        clock: Clock,
        seed: int,
    ) -> None:
        self.plan = replace(plan, budget_s=plan.budget_s / clock.wall_per_s)
        self.clock = clock
        self.arms = list(arms)
        self.anchor = Arm(name=ANCHOR, calls=(clock.anchor,))
        self.virtual = isinstance(clock, SimulatedGpu)
        self.on_cpu = not device.is_gpu or isinstance(clock, StandInClock)
        self.sampler: Sampler = HostSampler(clock)
        if isinstance(clock, Queue) and all(arm.queued for arm in arms):
            self.sampler = QueueSampler(clock)
        sample_s = plan.sample_s or self.sampler.sample_s
        self.sample_s = sample_s / clock.wall_per_s
        asked = plan.precision
        self.precision = self.sampler.precision if asked is None else asked
        self.random = random.Random(seed)
        self.turns = {arm.name: Turns(arm.calls) for arm in self._all()}
        self.number: dict[str, int] = {}
        self.readings: list[dict[str, Reading]] = []
        self.states: list[DeviceState] = []
        self.warmup_s: tuple[float, ...] = ()
        self.before = Evidence.now()
        self.shares: dict[str, float] = {}
        self.stopped = ""

    def run(self) -> None:
        """Warm up, find the block lengths, take rounds until a rule says stop."""
        self.clock.anchor()  # the first one loads libraries: nobody's budget
        self.clock.synchronize()
        start = self.clock.wall()
        first = {arm.name: self._prepare(arm) for arm in self._all()}
        taken_s = sum(r.wall_s for r in first.values())
        if taken_s >= self.plan.budget_s and not self.plan.rounds:
            self.readings, self.number = [first], dict.fromkeys(first, 1)
            self.stopped = f"budget: 1 round, no warm-up, fewer than {FEWEST_ROUNDS}"
        elif isinstance(self.sampler, QueueSampler):
            name = self.arms[0].name
            self.warmup_s = self.sampler.warm_up(self.turns[name], self.number[name])
            start = self.clock.wall()
        self.before = self.before if self.stopped else Evidence.now()
        while not self.stopped:
            began = self.clock.wall()
            self._round()
            now = self.clock.wall()
            self.stopped = self._why_stop(now - start, now - began)
        self.shares = self._shares()

    def _shares(self) -> dict[str, float]:
        """What else the machine did since the rounds began; virtual time has none."""
        return {} if self.virtual else Evidence.now().since(self.before)

    def _all(self) -> list[Arm]:
        return [*self.arms, self.anchor]

    def _prepare(self, arm: Arm) -> Reading:
        """Warm up an arm and find how many calls fill a sample; its first call.

        Where the first call is long, it is all the warm-up there is.
        """
        target_s = ANCHOR_S / self.clock.wall_per_s
        target_s = target_s if arm is self.anchor else self.sample_s
        turns = self.turns[arm.name]
        (first,) = self.sampler.samples([(turns, 1)])
        needed = (FEWEST_ROUNDS + PREPARING) * len(self.arms)
        if first.wall_s * needed < self.plan.budget_s:
            turns.run(max(0, self.plan.warmup - 1))
        elif first.wall_s > target_s:
            self.number[arm.name] = 1
            return first
        self.number[arm.name] = self.sampler.calls_for(turns, target_s)
        return first

    def _round(self) -> None:
        order = self._all()[1:]
        self.random.shuffle(order)
        place = 0 if len(self.readings) % 2 == 0 else len(order)
        order.insert(place, self.arms[0])
        names = [arm.name for arm in order]
        read = self.sampler.samples([(self.turns[n], self.number[n]) for n in names])
        self.readings.append(dict(zip(names, read, strict=True)))
        if isinstance(self.clock, Queue) and (state := self.clock.state()):
            self.states.append(state)

    def _why_stop(self, spent_s: float, round_s: float) -> str:
        """The rule that ends the rounds now, or nothing."""
        n, budget_s = len(self.readings), self.plan.budget_s
        if self.plan.rounds:
            return f"fixed: {n} rounds" if n >= self.plan.rounds else ""
        if n >= self.plan.max_rounds:
            return f"most rounds: {n}"
        if spent_s + round_s > budget_s:
            few = f", fewer than {FEWEST_ROUNDS}" if n < FEWEST_ROUNDS else ""
            return f"budget: {n} rounds{few}"
        if not self.precision or n not in looks(self.plan.max_rounds):
            return ""
        return self._why_stop_at_look(budget_s - spent_s, round_s)

    def _why_stop_at_look(self, left_s: float, round_s: float) -> str:
        """Precise enough, or never going to be; infinite: no interval of so few."""
        n, reached = len(self.readings), self._half_width()
        if reached <= self.precision:
            return f"precise: {n} rounds"
        more_s = round_s * n * ((reached / self.precision) ** 2 - 1)
        if n >= FUTILE_ROUNDS and PATIENCE * left_s < more_s < math.inf:
            wanted = f"{100 * self.precision:g} % wanted"
            return f"futile: {n} rounds, {100 * reached:.1f} % reached, {wanted}"
        return ""

    def _half_width(self) -> float:
        """Widest half-width of what will be reported: each ratio, or the one time."""
        first, *others = (self._deciding_s(arm) for arm in self.arms)
        others = others or [[1.0] * len(first)]
        return max(
            interval(log_ratios(first, times), confidence=LOOK_CONFIDENCE).half_width
            for times in others
        )

    def _deciding_s(self, arm: Arm) -> list[float]:
        """Seconds of the samples of an arm by the clock that decides so far."""
        readings = [r[arm.name] for r in self.readings]
        cpu = self._decided_by(self._shares()) == "cpu"
        return [max(r.cpu_s if cpu else r.wall_s, 1e-12) for r in readings]

    def _decided_by(self, shares: dict[str, float]) -> str:
        if not isinstance(self.sampler, HostSampler):
            return "events"
        if not self.on_cpu or any(arm.helpers for arm in self.arms):
            return "wall"
        arms = [r[arm.name] for r in self.readings for arm in self.arms]
        return flags.decides(arms, shares)

    def timing(self, arm: Arm) -> Timing:
        """What was found for one arm."""
        number = self.number[arm.name]
        readings = [r[arm.name] for r in self.readings]
        timing = Timing(
            times_s=_times_s(readings, number),
            cpu_times_s=tuple(max(r.cpu_s, 0.0) / number for r in readings),
            number_per_run=number,
            source=self.clock.source,
            decided_by=self._decided_by(self.shares),
            anchor_s=_times_s([r[ANCHOR] for r in self.readings], self.number[ANCHOR]),
            states=tuple(self.states),
            warmup_s=self.warmup_s,
            observed={**arm.observed, **self.shares},
            stopped=self.stopped,
        )
        raised = flags.found(timing, readings, hot=arm.hot, on_cpu=self.on_cpu)
        return replace(timing, flags=raised)


def _times_s(readings: Sequence[Reading], number: int) -> tuple[float, ...]:
    """Seconds of one call; above zero also where the clock did not move."""
    return tuple(max(r.wall_s, 1e-12) / number for r in readings)


def looks(most: int) -> tuple[int, ...]:
    """Numbers of rounds at which stopping is considered: 12, 18, 27 and so on."""
    found = [FEWEST_ROUNDS]
    while found[-1] < most:
        found.append(int(found[-1] * GROWTH))
    return tuple(found)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Inside, nothing is collected: it would take a tenth of a second somewhere."""
    was_on = gc.isenabled()
    gc.freeze()  # not collect: on a large heap that alone takes a tenth of a second
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
