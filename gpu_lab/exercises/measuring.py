"""Exercises of notebook 03: guess an error, repair a timer, judge six pairs."""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gpu_lab import units
from gpu_lab.compare import paired
from gpu_lab.compare.paired import MARGIN_GPU
from gpu_lab.exercises.frame import Exercise, Kind, NotYet, require_keys
from gpu_lab.exercises.start_here import matmul_ratio
from gpu_lab.records import Measurement, Source, Verdict
from gpu_lab.show import Table
from gpu_lab.timing import SIMULATED, interval, log_ratios
from gpu_lab.timing.core import FEWEST_ROUNDS

Event = tuple[Any, ...]
Statistic = Callable[..., float]
Pair = tuple[Measurement, Measurement]
STATISTICS: dict[str, Statistic] = {"minimum": min, "mean": statistics.fmean}
DTYPES = ("float32", "bfloat16")
LOOK_S, LAUNCH_S, FIRST_S, KERNEL_S = 1e-6, 5e-6, 0.2, 1e-3
ROUNDS = 40
KEYS, WORDS = "abcdef", [str(verdict) for verdict in Verdict]


class WatchedGpu:
    """A simulated GPU on virtual time that writes down what a timer does with it."""

    def __init__(self) -> None:
        """An idle GPU on which nothing was ever loaded."""
        self.log: list[Event] = []
        self._now_s = self._free_s = 0.0

    def now(self) -> float:
        """The clock of the host, in seconds."""
        self._now_s += LOOK_S
        self.log.append(("now", self._now_s))
        return self._now_s

    def wait(self) -> None:
        """Return when the device is done: what `synchronize` is to a real one."""
        self._now_s = max(self._now_s, self._free_s)
        self.log.append(("wait",))

    def matmul(self, n: int, dtype: str) -> None:
        """Queue a product of two n x n matrices; the first of a kind is loaded."""
        call = ("matmul", n, dtype)
        self._now_s += LAUNCH_S if call in self.log else FIRST_S
        disturbed = 1 + 0.05 * (len(self.log) % 7) ** 2
        work_s = KERNEL_S * (n / 1024) ** 3 * disturbed
        self._free_s = max(self._now_s, self._free_s) + work_s
        self.log.append(call)


def right_timer(gpu: WatchedGpu) -> dict[str, float]:
    """One call outside the clock, then the median of many, each one waited for."""
    found = {}
    for dtype in DTYPES:
        gpu.matmul(1024, dtype)
        times = []
        for _ in range(21):
            gpu.wait()
            start = gpu.now()
            gpu.matmul(1024, dtype)
            gpu.wait()
            times.append(gpu.now() - start)
        found[dtype] = statistics.median(times)
    return found


def check_timer(answer: Any) -> str:
    """Run the learner's timer on a watched GPU and name the errors that are left."""
    if not callable(answer):
        raise NotYet("wanted your function, without brackets: answer = my_timer")
    gpu = WatchedGpu()
    said = answer(gpu)
    if not isinstance(said, dict) or set(said) != set(DTYPES):
        raise NotYet(f"it gave {said!r:.50}, wanted a dict of {', '.join(DTYPES)}")
    left = list(_errors(gpu.log, said))
    if left:
        raise NotYet(f"{len(left)} left, the first: {left[0]}")
    return "it waits, warms up, compares equal shapes and gives the median of many"


def _errors(log: list[Event], said: dict[str, float]) -> Iterator[str]:
    """What is still wrong with a timer, the worst first."""
    looks = [i for i, event in enumerate(log) if event[0] == "now"]
    spans = zip(looks[::2], looks[1::2], strict=False)
    timed = [(i, j, [e for e in log[i:j] if e[0] == "matmul"]) for i, j in spans]
    if {call[2] for _, _, calls in timed for call in calls} != set(DTYPES):
        yield "look at gpu.now() once before and once after what you time"
        return
    if any(_working(log[:place]) for place in looks):
        yield "the clock starts or stops while the device still works: wait before"
    if any(i < log.index(call) for i, _, calls in timed for call in calls):
        yield "the first call loads its kernel: make one before the clock starts"
    kinds = {(c[2], c[1]) for _, _, calls in timed for c in calls}
    shapes = [{n for dtype, n in kinds if dtype == wanted} for wanted in DTYPES]
    if shapes[0] != shapes[1]:
        yield f"n is {shapes[0]} and {shapes[1]}: compare products of one shape"
    times: dict[str, list[float]] = {dtype: [] for dtype in DTYPES}
    for i, j, calls in timed:
        for call in calls[:1]:
            times[call[2]].append((log[j][1] - log[i][1]) / len(calls))
    yield from _statistics(times, said)


def _working(log: list[Event]) -> bool:
    """Whether work was queued after the last wait."""
    others = [event[0] for event in log if event[0] != "now"]
    return others[-1:] == ["matmul"]


def _statistics(times: dict[str, list[float]], said: dict[str, float]) -> Iterator[str]:
    """At most one hint: too few samples, or not their median."""

    def is_the(statistic: Statistic) -> bool:
        return all(math.isclose(said[d], statistic(times[d])) for d in DTYPES)

    fewest = min(map(len, times.values()))
    if fewest < FEWEST_ROUNDS:
        yield f"{fewest} samples: an odd one decides; take {FEWEST_ROUNDS} or more"
    elif not is_the(statistics.median):
        names = [name for name, of in STATISTICS.items() if is_the(of)]
        what = f"the {names[0]} of your samples" if names else "something else"
        yield f"it gives {what}: wanted the median time of one call"


@functools.cache
def pairs() -> dict[str, Pair]:
    """Six pairs of reference A and candidate B, SIMULATED: letter -> two rows.

    Only `d` was not taken in the same rounds, only in `c` one device was throttled,
    and in `f` every tenth sample of A met a neighbour.
    """
    return {
        "a": (_row("A", 1.06, seed=0), _row("B", 1.0, seed=1)),
        "b": (_row("A", 1.01, noise=0.08, seed=2), _row("B", 1.0, noise=0.08, seed=3)),
        "c": (_row("A", 1.0, seed=4), _row("B", 1.25, flags=("throttled",), seed=5)),
        "d": (_row("A", 1.0, group="", seed=6), _row("B", 1.05, group="", seed=7)),
        "e": (_row("A", 1.005, noise=0.005, seed=8), _row("B", 1.0, seed=9)),
        "f": (_row("A", 0.96, disturbed=4, seed=10), _row("B", 1.0, seed=11)),
    }


def _row(
    name: str,
    factor: float,
    *,
    noise: float = 0.005,
    disturbed: float = 1,
    group: str = "same rounds",
    flags: tuple[str, ...] = (),
    seed: int,
) -> Measurement:
    """Rounds of a kernel that takes KERNEL_S times `factor`, with seeded noise."""
    noisy = [random.Random(seed + 100 * i).gauss(0, noise) for i in range(ROUNDS)]
    times_s = [KERNEL_S * factor * math.exp(value) for value in noisy]
    times_s[5::10] = [disturbed * time_s for time_s in times_s[5::10]]
    return Measurement(
        name=name,
        device=SIMULATED.label,
        source=Source.SIMULATED,
        times_s=tuple(times_s),
        decided_by="events",
        group=group,
        flags=flags,
    )


def pairs_table() -> Table:
    """What is known of the six pairs: enough to judge each of them."""
    return Table(
        [(name, *_pair_row(*pair)) for name, pair in pairs().items()],
        ("pair", "same rounds", "flags", *STATISTICS, "paired", "95 % range"),
        "SIMULATED. Numbers are speedups of B: time of A / time of B. Margin: "
        f"{units.percent(MARGIN_GPU)}.",
    )


def _pair_row(a: Measurement, b: Measurement) -> tuple[str, ...]:
    flags = [f"{row.name} {', '.join(row.flags)}" for row in (a, b) if row.flags]
    found = interval(log_ratios(a.times_s, b.times_s))
    ends = (math.exp(v) for v in (found.estimate, found.low, found.high))
    numbers = (*(_speedup(of, a, b) for of in STATISTICS.values()), *ends)
    *texts, low, high = (units.ratio(number, 4) for number in numbers)
    same = "yes" if a.group else "no"
    return same, "; ".join(flags) or "none", *texts, f"{low} to {high}"


def _speedup(statistic: Statistic, a: Measurement, b: Measurement) -> float:
    return statistic(a.times_s) / statistic(b.times_s)


def right_verdicts() -> dict[str, str]:
    """Verdict of `compare.paired` on each of the six pairs."""
    return {name: str(paired(a, b).verdict) for name, (a, b) in pairs().items()}


def naive_verdicts(statistic: Statistic) -> dict[str, str]:
    """What those say who look at one statistic, and at nothing else."""
    words = ("slower", "faster")
    return {k: words[_speedup(statistic, *pair) > 1] for k, pair in pairs().items()}


def check_verdicts(answer: Any) -> str:
    """Compare {"a": "faster", …} with the verdicts; hints for usual mistakes."""
    require_keys(answer, KEYS)
    unknown = [name for name in KEYS if answer[name] not in WORDS]
    if unknown:
        raise NotYet(f"{', '.join(unknown)}: wanted one of {', '.join(WORDS)}")
    for name, statistic in STATISTICS.items():
        if answer == naive_verdicts(statistic):
            raise NotYet(f"that is the {name} alone: flags, rounds and range count too")
    for name, word in right_verdicts().items():
        if answer[name] != word:
            raise NotYet(f"{name}: {_hint(*pairs()[name])}")
    return "six pairs judged, and only two of them say who is faster"


def _hint(a: Measurement, b: Measurement) -> str:
    """Where to look, by what this pair teaches."""
    if not a.group:
        return "were both under the same conditions? Look at the rounds"
    return {
        Verdict.NOT_COMPARABLE: "did both run at their own speed? Look at the flags",
        Verdict.EQUIVALENT: "certain is not the same as relevant: look at the margin",
        Verdict.NO_DIFFERENCE: "the range holds 1 and is wider than the margin",
    }.get(paired(a, b).verdict, "the range leaves 1 out: on which side does it lie?")


too_fast = replace(matmul_ratio, name="too_fast")
repair_timer = Exercise(
    "repair_timer", Kind.STRUCTURE, check_timer, reference=lambda: right_timer
)
six_pairs = Exercise("six_pairs", Kind.VALUE, check_verdicts, reference=right_verdicts)
EXERCISES = (too_fast, repair_timer, six_pairs)
