"""The lanes of loader and device: labels, finding, and that waiting is to be seen."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gpu_lab import plot, timing
from gpu_lab.plot import picture


def epoch(workers: int) -> timing.Stages:
    return timing.simulated_stages(
        f"{workers} workers", [0.04] * 8, 0.015, workers=workers
    )


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures behind the pictures."""
    kept: list[Any] = []

    def finish(figure: Any, **words: str) -> picture.Picture:
        kept.append(figure)
        return picture.finish(figure, **words)

    monkeypatch.setattr(sys.modules["gpu_lab.plot.loader"], "finish", finish)
    return kept


def test_gaps_close_as_workers_rise(drawn: list[Any]) -> None:
    epochs = [epoch(workers) for workers in (0, 1, 3)]
    shown = plot.loader_lanes(epochs)
    (axes,) = drawn[0].axes
    first, best = (f"{100 * e.waiting:.1f} %" for e in (epochs[0], epochs[2]))
    title = f"the device waits: 0 workers {first}, 3 workers {best}"
    assert axes.get_title() == title
    assert [t.get_text() for t in axes.get_yticklabels()] == [e.name for e in epochs]
    assert "time since the start (ms), SIMULATED" in axes.get_xlabel()
    # One lane for the loop or for each worker, and one for the device.
    lanes = axes.collections
    assert len(lanes) == sum(max(1, w) + 1 for w in (0, 1, 3))
    assert {lane.get_hatch() for lane in lanes} == {"xx"}
    assert f"3 workers: 8 steps in 160 ms, the device waits {best} of it" in shown.alt
    assert shown.caption == f"{title}. SIMULATED."


def test_one_epoch_alone_and_measured_lanes_are_not_hatched(drawn: list[Any]) -> None:
    clock = timing.StandInClock(1.0)
    told = timing.stages("one", range(3), id, clock=clock)
    assert told.loader_s == ()
    shown = plot.loader_lanes([told])
    assert "the device waits: one " in shown.caption
    assert len(drawn[0].axes[0].collections) == 1
