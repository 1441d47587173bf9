"""What notebook 03 shows: two lanes, speed over time, and a competitor that ends."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

import psutil
import pytest

from gpu_lab import bench, plot, timing
from gpu_lab.records import Device, Measurement, Source
from gpu_lab.timing import Lanes, Model, Plan, SimulatedGpu

CPU = Device(backend="cpu", name="c")


@pytest.fixture
def watched() -> Lanes:
    """Both lanes of the simulated device."""
    gpu = SimulatedGpu(seed=0)
    return timing.lanes(functools.partial(gpu.matmul, 1024), clock=gpu)


def row(name: str, *times_s: float, source: Source = Source.MEASURED) -> Measurement:
    return Measurement(
        name=name, device="cpu", source=source, times_s=times_s, number_per_run=10
    )


def test_lanes_of_a_queue(watched: Lanes) -> None:
    assert watched.source is Source.SIMULATED
    assert len(watched.host_s) == len(watched.device_s) == 20
    assert watched.too_fast == watched.waited_s / watched.early_s >= 5
    assert watched.host_s[-1][1] <= watched.early_s
    # The host adds a look at the clock; the device ends when the waiting does.
    assert watched.device_s[-1][1] == pytest.approx(watched.waited_s, rel=0.01)
    for lane in (watched.host_s, watched.device_s):
        flat = [moment for span in lane for moment in span]
        assert flat == sorted(flat)


def test_lanes_of_a_clock_without_a_queue_are_one_span() -> None:
    found = timing.lanes(lambda: None, clock=timing.clock_for(CPU), number=3)
    assert len(found.host_s) == 3
    assert found.device_s == ((0.0, found.waited_s),)
    assert found.source is Source.MEASURED


def test_the_lanes_picture_has_two_lanes_and_two_stops(
    drawn: list[Any], watched: Lanes
) -> None:
    shown = plot.lanes(watched)
    (axes,) = drawn[0].axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["host", "device"]
    assert axes.get_xlabel() == "time since the start (ms), SIMULATED"
    assert axes.get_title() == "without waiting, the timer is 20.8x too fast"
    stops = [line.get_xdata()[0] for line in axes.lines]
    assert stops == [1e3 * watched.early_s, 1e3 * watched.waited_s]
    assert [lane.get_hatch() for lane in axes.collections] == ["xx", "xx"]
    texts = " ".join(text.get_text() for text in axes.texts)
    assert "stop without waiting: \n 104 µs" in texts
    assert "stop after waiting: \n 2.17 ms" in texts
    assert "SIMULATED" in shown.caption
    assert "20 calls" in shown.alt


def test_measured_lanes_are_not_hatched(drawn: list[Any]) -> None:
    clock = timing.clock_for(CPU)
    plot.lanes(timing.lanes(lambda: None, clock=clock))
    assert not any(lane.get_hatch() for lane in drawn[0].axes[0].collections)


def test_speed_over_time_says_what_is_left(drawn: list[Any]) -> None:
    slower = row("card", *[1.0] * 3, 1.5, *[2.0] * 3, source=Source.SIMULATED)
    shown = plot.sustained([row("cpu", *[0.5] * 6), slower])
    (axes,) = drawn[0].axes
    assert axes.get_xlabel() == "time at work (s)"
    assert axes.get_ylabel() == "speed / speed at the start (ratio)"
    title = "speed at the end: MEASURED 1.0x, SIMULATED 0.50x"
    assert axes.get_title() == title
    assert shown.caption == f"{title}."
    assert list(axes.lines[0].get_xdata()) == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    assert list(axes.lines[1].get_ydata())[-1] == 0.5
    assert [area.get_hatch() for area in axes.collections] == ["xx"]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["cpu, MEASURED", "card, SIMULATED"]
    assert len({line.get_marker() for line in axes.lines[:2]}) == 2


def test_speed_over_time_without_a_row_says_so() -> None:
    missing = Measurement.not_measurable("x", device=CPU, reason="because")
    assert "nothing was timed" in plot.sustained([missing]).caption


def test_simulated_kernels_go_on_where_the_device_stands() -> None:
    gpu = SimulatedGpu(Model(drift_per_s=0.1, noise=0.0), seed=0)
    plan = Plan(rounds=12)
    (first,) = bench.simulated_kernels({"A": 1e-3}, gpu=gpu, plan=plan)
    (later,) = bench.simulated_kernels({"A": 1e-3}, gpu=gpu, plan=plan)
    assert first.source is Source.SIMULATED
    assert later.median_s > 1.1 * first.median_s  # type: ignore[operator]


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children()}


def test_the_competitor_is_busy_and_ends() -> None:
    before = children()
    with timing.competitor():
        (pid,) = children() - before
        assert psutil.Process(pid).cpu_percent(0.3) > 5
    assert children() == before


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_the_competitor_ends_after_an_error(error: type[BaseException]) -> None:
    before = children()
    with pytest.raises(error), timing.competitor():
        raise error
    assert children() == before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux only")
def test_the_competitor_shares_one_core_and_gives_it_back() -> None:
    cores = os.sched_getaffinity(0)
    before = children()
    with timing.competitor() as bound:
        (pid,) = children() - before
        assert bound
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0) == {min(cores)}
    assert os.sched_getaffinity(0) == cores


def test_without_affinity_the_competitor_still_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with timing.competitor() as bound:
        assert bound is False


def test_a_killed_notebook_leaves_no_competitor_for_long() -> None:
    assert sys.modules["gpu_lab.timing.competitor"].LONGEST_S <= 60


def test_ctrl_c_in_a_notebook_ends_the_competitor_silently() -> None:
    """The whole process group is interrupted, as a terminal does it."""
    code = """
import os, signal
from gpu_lab import timing
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background
try:
    with timing.competitor():
        os.killpg(0, signal.SIGINT)
        sum(range(10**9))
except KeyboardInterrupt:
    print("ended")
"""
    if not hasattr(os, "killpg"):
        pytest.skip("no process groups here")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_torchs_own_timer_is_silent_and_agrees_on_what_it_calls() -> None:
    code = """
from gpu_lab import bench
from gpu_lab.records import Device
calls, cpu = [], Device(backend="cpu", name="c")
timer = bench.torch_timer(lambda: calls.append(1), device=cpu, threads=1)
print(timer.timeit(100).number_per_run, len(calls) >= 100, timer._task_spec.num_threads)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("100 True 1\n", "")
