"""What a training step spends its time on: the four shapes of a trace, by rules.

Every moment of a step belongs to one of four: something long computes; else something
is copied between host and device; else a loader prepares data; else the host is late,
because it hands out short pieces one by one. The largest share is the shape.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from gpu_lab.records import Source
from gpu_lab.timing.lanes import Spans

SMALL_S = 20e-6  # a piece of work that is shorter costs less than handing it out
KINDS = ("compute", "copy", "load", "launch")
SHAPES = ("compute-bound", "copy-bound", "starved", "launch-bound")
FAULTS = ("none", "host copy", "slow loader", "small kernels")
ITEM = ".item()"
ITEMS = "aten::item"  # what .item(), float(tensor) and `if tensor:` call
MANY_ITEMS = 0.1  # of all calls
MOST_CALLS = 0.95  # of a name: the rest may have been interrupted


class Piece(NamedTuple):
    """One thing that ran: its kind is compute, copy or load; seconds of the trace."""

    name: str
    kind: str
    start_s: float
    stop_s: float


@dataclass(frozen=True)
class Trace:
    """Steps of a training as a profiler saw them.

    Attributes:
        pieces: all that ran, on the device where there is one, else on the host.
        steps: when each step began, and when the device was done with it.
        calls: operators that the host called, by name, in all steps.
    """

    name: str
    pieces: tuple[Piece, ...]
    steps: Spans
    calls: dict[str, int]
    source: Source

    def calls_a_step(self, name: str = "") -> int:
        """How often the host calls an operator in a step; without a name: any."""
        found = self.calls.get(name, 0) if name else sum(self.calls.values())
        return found // len(self.steps)


@dataclass(frozen=True)
class Shape:
    """What a trace shows.

    Attributes:
        word: starved, launch-bound, copy-bound or compute-bound.
        fault: what to mend, or "none": leave it.
        shares: of the step, by kind; their sum is one.
        evidence: what the rules saw.
    """

    word: str
    fault: str
    shares: dict[str, float]
    evidence: str


def lanes(trace: Trace) -> dict[str, list[tuple[float, float]]]:
    """When which kind of work ran: compute, copy, load, and launch for short pieces.

    A call is short by its own time, or when nearly all of its name are: one that others
    interrupted stays short.
    """
    times_s: dict[str, list[float]] = {}
    for name, _, start_s, stop_s in trace.pieces:
        times_s.setdefault(name, []).append(stop_s - start_s)
    usual = {n: sorted(t)[int(MOST_CALLS * len(t))] for n, t in times_s.items()}
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for name, kind, start_s, stop_s in trace.pieces:
        short = kind != "load" and min(usual[name], stop_s - start_s) < SMALL_S
        found["launch" if short else kind].append((start_s, stop_s))
    return found


def shape(trace: Trace) -> Shape:
    """The shape of a trace, the fault behind it, and what says so.

    Of each kind the lower quartile of the steps counts: who interrupts only adds time.
    """
    usual_s = {k: sorted(v)[len(v) // 4] for k, v in _seconds(trace).items()}
    shares = {kind: time_s / sum(usual_s.values()) for kind, time_s in usual_s.items()}
    kind = max(shares, key=lambda name: shares[name])
    items, calls = trace.calls_a_step(ITEMS), trace.calls_a_step()
    many = kind == "launch" and items > MANY_ITEMS * calls
    fault = ITEM if many else FAULTS[KINDS.index(kind)]
    counted = f"{calls} operators, {items} of them {ITEMS}"
    evidence = f"{100 * shares[kind]:.0f} % {kind}; a step: {counted}"
    return Shape(SHAPES[KINDS.index(kind)], fault, shares, evidence)


def _seconds(trace: Trace) -> dict[str, list[float]]:
    """Seconds of each step by kind: what is hidden behind longer work is free."""
    busy, found = lanes(trace), dict[str, list[float]]()
    before_s, spans = [0.0] * len(trace.steps), list[tuple[float, float]]()
    for kind in KINDS:
        spans += trace.steps if kind == "launch" else busy[kind]
        covered_s = _covered(spans, trace.steps)
        found[kind] = [b - a for a, b in zip(before_s, covered_s, strict=True)]
        before_s = covered_s
    return found


def utilisation(trace: Trace) -> float:
    """Share of the time in which at least one piece of work ran, short or long."""
    work = [(p.start_s, p.stop_s) for p in trace.pieces if p.kind == "compute"]
    return sum(_covered(work, trace.steps)) / sum(b - a for a, b in trace.steps)


def top(trace: Trace, most: int = 6) -> dict[str, float]:
    """Seconds a step by name of what took most time, longest first."""
    time_s = dict.fromkeys((p.name for p in trace.pieces), 0.0)
    for piece in trace.pieces:
        time_s[piece.name] += (piece.stop_s - piece.start_s) / len(trace.steps)
    return dict(sorted(time_s.items(), key=lambda item: -item[1])[:most])


def simulated(name: str, *, seed: int = 0, **step: float) -> Trace:
    """Three steps of a device with a queue, a copy engine and a loader, SIMULATED.

    Args:
        step: load_s; copies and copy_s; kernels and kernel_s; launch_s, of the host for
            each; overlap: the copy is that of the next step; items.
    """
    noise, found, spans = random.Random(seed), list[Piece](), []
    now_s = free_s = 0.0
    get = collections.defaultdict(float, step)

    def add(kind: str, start_s: float, time_s: float) -> float:
        stop_s = start_s + time_s * noise.uniform(0.95, 1.05)
        found.extend([Piece(kind, kind, start_s, stop_s)] * (time_s > 0))
        return stop_s

    for _ in range(3):
        start_s = now_s
        now_s = add("load", now_s, get["load_s"])
        for _ in range(int(get["copies"])):
            end_s = add("copy", now_s, get["copy_s"])
            now_s = now_s if get["overlap"] else end_s
        for _ in range(int(get["kernels"])):
            now_s += get["launch_s"] * noise.uniform(0.95, 1.05)
            free_s = add("compute", max(now_s, free_s), get["kernel_s"])
        now_s = max(now_s, free_s)
        spans.append((start_s, now_s))
    calls = {"aten::mm": int(3 * get["kernels"]), ITEMS: int(3 * get["items"])}
    return Trace(name, tuple(found), tuple(spans), calls, Source.SIMULATED)


def _covered(spans: Iterable[tuple[float, float]], steps: Spans) -> list[float]:
    """Seconds of each step that at least one span covers."""
    found, spans = [], sorted(spans)
    for start_s, stop_s in steps:
        covered_s, at_s = 0.0, start_s
        for a, b in spans:
            if b > at_s and a < stop_s:
                covered_s += min(b, stop_s) - max(a, at_s)
                at_s = min(b, stop_s)
        found.append(covered_s)
    return found
