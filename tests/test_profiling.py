"""Traces and their four shapes: rules on simulated and on real steps; the monitor's
pictures are in test_monitor.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_lab import facts, plot, timing
from gpu_lab.bench import profiling, shapes
from gpu_lab.exercises import profiling as lesson
from gpu_lab.records import Device, Source

CPU = Device(backend="cpu", name="c")
LONG = {"kernels": 10, "kernel_s": 1e-3, "launch_s": 8e-6}
# Planted step -> shape and what is to be mended.
RIGHT = {
    "slow loader": ("starved", "slow loader"),
    ".item()": ("launch-bound", ".item()"),
    "small kernels": ("launch-bound", "small kernels"),
    "host copy": ("copy-bound", "host copy"),
    "good": ("compute-bound", "none"),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """On a busy machine threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# -- rules, on seeded simulated traces --


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("step", "word", "fault"),
    [
        ({**LONG}, "compute-bound", "none"),
        ({**LONG, "load_s": 0.03}, "starved", "slow loader"),
        ({**LONG, "copies": 2, "copy_s": 0.02}, "copy-bound", "host copy"),
        ({**LONG, "copies": 2, "copy_s": 4e-3, "overlap": 1}, "compute-bound", "none"),
        (
            {"kernels": 999, "kernel_s": 3e-6, "launch_s": 8e-6},
            "launch-bound",
            "small kernels",
        ),
        (
            {"kernels": 400, "kernel_s": 2e-6, "launch_s": 6e-5, "items": 99},
            "launch-bound",
            ".item()",
        ),
    ],
)
def test_each_shape_of_simulated_traces(
    step: dict[str, float], word: str, fault: str, seed: int
) -> None:
    trace = shapes.simulated("x", seed=seed, **step)
    found = shapes.shape(trace)
    assert (found.word, found.fault) == (word, fault)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert trace.source is Source.SIMULATED


def test_shares_are_those_that_were_planted() -> None:
    step = {**LONG, "load_s": 0.02, "copies": 1, "copy_s": 0.01}
    shares = shapes.shape(shapes.simulated("x", **step)).shares
    assert shares["load"] == pytest.approx(0.5, abs=0.03)
    assert shares["copy"] == pytest.approx(0.25, abs=0.03)
    assert shares["compute"] == pytest.approx(0.25, abs=0.03)


def test_the_stored_answers_are_what_the_rules_say() -> None:
    stored = {k: v["right"] for k, v in facts.settings("profiling")["traces"].items()}
    assert lesson.right_shapes() == stored
    assert set(stored.values()) == set(shapes.SHAPES)


def test_a_call_that_was_interrupted_stays_short() -> None:
    tiny = [
        shapes.Piece("neg", "compute", i * 1e-5, i * 1e-5 + 2e-6) for i in range(99)
    ]
    late = shapes.Piece("neg", "compute", 1e-3, 9e-3)
    trace = shapes.Trace(
        name="x",
        pieces=(*tiny, late),
        steps=((0.0, 1e-2),),
        calls={},
        source=Source.SIMULATED,
    )
    assert shapes.shape(trace).word == "launch-bound"


def test_few_long_copies_among_short_ones_are_long() -> None:
    short = [shapes.Piece("copy_", "copy", i * 1e-4, i * 1e-4 + 5e-6) for i in range(6)]
    long = [shapes.Piece("copy_", "copy", 1e-2 * i, 1e-2 * (i + 1)) for i in (1, 2)]
    trace = shapes.Trace(
        name="x",
        pieces=(*short, *long),
        steps=((0.0, 3e-2),),
        calls={},
        source=Source.SIMULATED,
    )
    assert shapes.shape(trace).word == "copy-bound"


# -- a trace of a GPU, in Chrome's format --


def span(cat: str, name: str, start: float, stop: float) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": stop - start}


def gpu_events(*device: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        span("user_annotation", "ProfilerStep#1", 0, 10_000),
        span("gpu_user_annotation", "ProfilerStep#1", 0, 10_000),
        span("cpu_op", "aten::mm", 0, 9_000),  # of the host: no work of the device
        *device,
    ]


@pytest.mark.parametrize(
    ("device", "word"),
    [
        ([span("kernel", "sgemm", 100, 9_500)], "compute-bound"),
        (
            [
                span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 8_000),
                span("kernel", "sgemm", 8_000, 9_500),
            ],
            "copy-bound",
        ),
        (
            [
                span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 8_000),
                span("kernel", "sgemm", 0, 9_500),
            ],
            "compute-bound",
        ),
        ([span("gpu_memcpy", "Memcpy DtoD", 0, 8_000)], "compute-bound"),
        (
            [span("kernel", "add", 10 * i, 10 * i + 3) for i in range(900)],
            "launch-bound",
        ),
        (
            [
                span("user_annotation", "enumerate(DataLoader)#_x.__next__", 0, 8_000),
                span("kernel", "sgemm", 8_000, 9_500),
            ],
            "starved",
        ),
        (
            [
                span("user_annotation", "load", 0, 8_000),
                span("kernel", "sgemm", 0, 9_500),
            ],
            "compute-bound",
        ),
    ],
)
def test_on_a_gpu_kernels_and_copies_count(
    device: list[dict[str, Any]], word: str
) -> None:
    trace = profiling.read(
        gpu_events(*device), name="x", on_gpu=True, source=Source.SIMULATED
    )
    assert shapes.shape(trace).word == word
    assert trace.calls == {"aten::mm": 1}


def test_what_a_loader_calls_is_no_work_of_the_step() -> None:
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 10_000),
        span("user_annotation", "load", 0, 8_000),
        span("cpu_op", "aten::randn", 0, 7_000),
        span("cpu_op", "autograd::engine", 8_000, 9_999),  # only what it calls counts
    ]
    trace = profiling.read(events, name="x", on_gpu=False, source=Source.SIMULATED)
    found = shapes.shape(trace)
    assert found.word == "starved"
    assert found.shares["load"] == pytest.approx(0.8)


# -- real steps --


@pytest.mark.parametrize("fault", profiling.PLANTED)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_each_planted_step_is_named(fault: str, busy: bool) -> None:
    step = profiling.planted(fault, device=CPU)
    step()
    if busy:
        with timing.competitor():
            trace = profiling.profiled(step, device=CPU)
    else:
        trace = profiling.profiled(step, device=CPU)
    found = shapes.shape(trace)
    assert (found.word, found.fault) == RIGHT[fault], found.shares
    assert trace.source is Source.MEASURED
    assert len(trace.steps) == 5
    assert (trace.calls_a_step("aten::item") > 0) == (fault == ".item()")


def test_an_unknown_fault_is_an_error() -> None:
    with pytest.raises(ValueError, match="wanted one of slow loader"):
        profiling.planted("bad cable", device=CPU)


def test_the_trace_file_holds_names_and_times_and_no_host(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    step = profiling.planted("good", device=CPU)
    trace = profiling.profiled(step, device=CPU, name=".item()", folder=tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == "item.json"
    tree = json.loads(file.read_text())
    assert list(tree) == ["traceEvents"]
    keys = {"ph", "cat", "name", "pid", "tid", "ts", "dur"}
    assert all(set(event) == keys for event in tree["traceEvents"])
    again = profiling.read(
        tree["traceEvents"], name="x", on_gpu=False, source=trace.source
    )
    assert again.pieces == trace.pieces
    assert capfd.readouterr().err == ""


def test_the_profiler_is_silent_also_after_an_error() -> None:
    with pytest.raises(OSError, match="planted"), profiling.silent():
        raise OSError("planted")
    with pytest.raises(RuntimeError, match="in the step"):
        profiling.profiled(
            lambda: (_ for _ in ()).throw(RuntimeError("in the step")), device=CPU
        )


def test_the_top_is_sorted_and_utilisation_counts_short_pieces() -> None:
    trace = lesson.traces()["d"]
    top = shapes.top(trace)
    assert list(top) == ["copy", "compute"]
    assert top["copy"] == pytest.approx(0.048, rel=0.03)
    assert shapes.utilisation(lesson.traces()["b"]) > lesson.BUSY


def test_the_picture_has_four_lanes_a_panel(drawn: list[Any]) -> None:
    traces = [shapes.simulated(f"step {i}", seed=i, **LONG) for i in range(4)]
    shown = plot.shapes(traces)
    axes = drawn[0].axes
    assert len(axes) == 4
    for number, one in enumerate(axes):
        assert one.get_title() == f"compute-bound: step {number}"
        assert one.get_xlabel() == "time in the step (ms)"
        labels = [label.get_text() for label in one.get_yticklabels()]
        assert labels == ["compute", "copy", "load", "short pieces"]
        assert {lane.get_hatch() for lane in one.collections} == {"xx"}
    assert "step 3 is compute-bound" in shown.alt
    assert shown.caption.endswith("SIMULATED.")


def test_names_that_only_begin_like_a_copy_are_work() -> None:
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 10_000),
        span("cpu_op", "aten::topk", 0, 9_000),
    ]
    trace = profiling.read(events, name="x", on_gpu=False, source=Source.SIMULATED)
    assert shapes.shape(trace).word == "compute-bound"
