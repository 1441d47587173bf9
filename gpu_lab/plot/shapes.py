"""The four shapes side by side: which lane is full in a step."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_lab import units
from gpu_lab.bench.shapes import KINDS, Trace, lanes, shape
from gpu_lab.plot.picture import HATCH, Picture, finish, new_axes

LOOKS = dict(zip(KINDS, ("#3f90da", "#ffa90e", "#bd1f01", "#717581"), strict=True))
NAMES = dict(zip(KINDS, ("compute", "copy", "load", "short pieces"), strict=True))


def shapes(traces: Sequence[Trace]) -> Picture:
    """The shortest step of up to four traces: compute, copy, load, short pieces."""
    figure, axes = new_axes()
    axes.remove()
    grid = figure.subplots(2, 2).flat
    words = []
    for trace, axes in zip(traces, grid, strict=False):
        start_s, stop_s = min(trace.steps, key=lambda step: step[1] - step[0])
        for row, (kind, spans) in enumerate(lanes(trace).items()):
            inside = [(a, b) for a, b in spans if start_s <= a < stop_s]
            pieces = [(1e3 * (a - start_s), 1e3 * (b - a)) for a, b in inside]
            look = {"facecolor": LOOKS[kind], "hatch": HATCH[trace.source]}
            axes.broken_barh(pieces, (-row - 0.4, 0.8), **look)
        found = shape(trace)
        axes.set_title(f"{found.word}: {trace.name}", fontsize=9)
        axes.set_yticks([0, -1, -2, -3], NAMES.values(), fontsize=8)
        axes.set(xlim=(0, 1e3 * (stop_s - start_s)), ylim=(-3.6, 0.6))
        axes.set_xlabel("time in the step (ms)", fontsize=8)
        share = units.percent(max(found.shares.values()))
        words.append(f"{trace.name} is {found.word}, {share} of the step")
    source = ", ".join(sorted({str(trace.source) for trace in traces}))
    alt = f"Lanes over one step, a panel a trace. {'; '.join(words)}. {source}."
    return finish(figure, alt=alt, caption=f"Each shape fills one lane. {source}.")
