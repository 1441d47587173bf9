"""What papermill's run of the solution edition left behind (layer 2 of four).

GPU_LAB_RUN names the run folder; `make test` makes it fresh each time.
"""

import os
from importlib.util import find_spec
from multiprocessing import get_all_start_methods
from pathlib import Path

import nbformat
import pytest

from gpu_lab import exercises, store
from gpu_lab.course import manifest
from gpu_lab.exercises.frame import Kind
from gpu_lab.records import Source

pytestmark = pytest.mark.notebooks

# Far above what any device of today reaches: catches wrong units, not slow machines.
MOST_TFLOPS = 10_000
MOST_GB_PER_S = 20_000
COPIES = [f"{4**k} KiB" for k in range(1, 5)] + [f"{4**k} MiB" for k in range(4)]
WAYS = ("H2D pinned", "D2H pinned", "H2D pageable")
WAYS_TO_START = {"fork", "spawn", "forkserver"}
PRODUCTS = (32, 64, 128, 256, 512, 1024)
NO_UNITS = ("tf32", "float8")
NEEDS_TWO = ("DataParallel", "DDP, same batch", "card to card")
ONLY_GPU = {
    "00_start_here": {"first_h2d"},
    "01_hardware_basics": {f"{way} {size}" for way in WAYS for size in COPIES}
    | {f"offload_{n}" for n in PRODUCTS},
    "02_device_detection": {
        f"{way} {size}"
        for way in ("h2d", "d2h")
        for size in ("64 KiB", "1 MiB", "16 MiB", "64 MiB")
    },
    "03_measuring": set(),
    "04_mixed_precision": {
        *(f"{n}_{kind}" for n in ("small", "middle", "large") for kind in NO_UNITS),
        *(f"{model}_tf32" for model in ("cnn", "transformer", "toy")),
        *(f"cnn_{kind}_channels_last" for kind in ("tf32", "float16")),
        "cnn_float16",
        "transformer_float16",
    },
    "05_dataloader_tuning": {"pinned", "h2d_pageable", "h2d_pinned"}
    | {"copy_one_by_one", "copy_one_ahead"}
    | ({"torchcodec"} if not find_spec("torchcodec") else set())
    | {f"start_{way}" for way in WAYS_TO_START - set(get_all_start_methods())},
    "06_ddp": {f"data_parallel {arm}" for arm in NEEDS_TWO},
    "07_profiling": set(),
    "08_troubleshooting": set(),
    "core": {"device_copy", "h2d", "d2h", "launch"},
}


@pytest.fixture(scope="module")
def run():
    return Path(os.environ["GPU_LAB_RUN"])


@pytest.fixture(scope="module")
def sessions(run):
    return store.load_folder(run)


def notebooks(run):
    found = sorted((run / "notebooks").glob("*.ipynb"))
    assert found, "no executed notebook"
    return [(path, nbformat.read(path, as_version=4)) for path in found]


def test_every_step_ended_well(run):
    done = manifest.load(run)
    assert done.steps
    assert [s for s in done.steps if s.state != "ok"] == []
    assert (run / "report.html").stat().st_size > 20_000


def test_every_cell_ran_and_nothing_was_said_on_stderr(run):
    for path, notebook in notebooks(run):
        code = [c for c in notebook.cells if c.cell_type == "code"]
        counts = [c.execution_count for c in code]
        assert counts == list(range(1, len(code) + 1)), path.name
        noise = [o for c in code for o in c.outputs if o.get("name") == "stderr"]
        assert noise == [], path.name


def test_pictures_with_alt_text_are_there(run):
    for path, notebook in notebooks(run):
        texts = [
            o.get("data", {}).get("text/html", "")
            for c in notebook.cells
            for o in c.get("outputs", [])
        ]
        figures = [t for t in texts if "<figure>" in t]
        assert figures, path.name
        assert all("data:image/png;base64," in f for f in figures), path.name
        assert all('alt=""' not in f for f in figures), path.name


def test_each_notebook_left_one_complete_session(run, sessions):
    suites = [s.suite for s in sessions if s.suite != "core"]
    assert sorted(suites) == [path.stem for path, _ in notebooks(run)]
    assert all(s.complete for s in sessions)


def test_numbers_are_physically_possible(sessions):
    timed = [m for s in sessions for m in s.measurements if m.available]
    assert timed
    for row in timed:
        assert all(t > 0 for t in row.times_s), row.name
        assert (row.tflops or 0) < MOST_TFLOPS, row.name
        assert (row.gb_per_s or 0) < MOST_GB_PER_S, row.name


def test_a_cpu_measures_what_a_cpu_can_and_says_why_not_the_rest(sessions):
    for session in sessions:
        missing = {m.name for m in session.measurements if not m.available}
        assert missing == ONLY_GPU[session.suite], session.suite
        # None of 02's: all that it times is the link.
        sources = {m.source for m in session.measurements if m.available}
        assert sources <= {Source.MEASURED}, session.suite


def test_no_point_lies_above_a_ceiling(run):
    for path, notebook in notebooks(run):
        texts = [str(o) for c in notebook.cells for o in c.get("outputs", [])]
        wrong = [t for t in texts if "ceiling or measurement wrong" in t]
        assert wrong == [], path.name


def test_solutions_pass(run, sessions):
    given = {a.exercise: a for s in sessions for a in s.answers}
    for exercise in exercises.ALL:
        if exercise.kind is not Kind.PREDICTION and exercise.name in given:
            assert given[exercise.name].verdict == "PASS", given[exercise.name]
    ran = {path.stem for path, _ in notebooks(run)}
    if "00_start_here" in ran:
        assert "first_rungs" in given
