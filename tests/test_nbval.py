"""nbval as `make test` calls it: faults planted in prepared copies are caught.

A copy carries several faults, each in a cell of its own; exactly the cells with a
fault that matters must fail, so every other cell passes and measured numbers are free.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from authoring import build, lint, prepare
from lessons import ROOT, SAMPLE, course

from gpu_lab.course import notebooks

pytestmark = pytest.mark.notebooks
FIRST = "00_start_here"
BASICS = "01_hardware_basics"
DETECTION = "02_device_detection"
MEASURING = "03_measuring"
PRECISION = "04_mixed_precision"
LOADING = "05_dataloader_tuning"
SEVERAL = "06_ddp"
PROFILING = "07_profiling"
TROUBLE = "08_troubleshooting"
NBVAL = [
    *("--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/nbval.cfg"),
    *("--nbval-cell-timeout", "120", "-p", "no:cacheprovider"),
]


@dataclass(frozen=True)
class Fault:
    """Something changed by hand in the first cell where `old` stands."""

    name: str
    old: str
    new: str
    caught: bool = True
    in_source: bool = False


COMMON = (
    Fault("a number of checks", r"\b\d+ checks", "99 checks"),
    Fault("a verdict line lost", r"\nok  [^\n]+\n\Z", "\n"),
    Fault("a check lost", r'\n    "[^\n]+,(?=\n\})', "", in_source=True),
)
FAULTS = {
    SAMPLE: (
        *COMMON,
        Fault("a label", "count", "sum"),
        Fault("a unit", "time, µs", "time, ms"),
        Fault("a shape", r"\(3, 4\)", "(3, 5)"),
        Fault("a whole number", "20000 numbers", "20001 numbers"),
        Fault("a unit beside its number", r"GB/s", "MB/s"),
        Fault("another unit", r"more: ([\d.]+) ms", r"more: \1 s"),
        Fault("a time", r"more: [\d.]+ ms", "more: 777.0 ms", caught=False),
        Fault("a rate", r"[\d.]+ GB/s", "777.0 GB/s", caught=False),
        Fault("a decimal", r"<td>\d+\.\d+</td>", "<td>777.5</td>", caught=False),
        Fault("an ignored sentence", "Four times", "Five times", caught=False),
    ),
    FIRST: (
        *COMMON,
        Fault("a label", "matmul_256", "matmul_257"),
        Fault("a shape", "matmul_512_again", "matmul_513_again"),
        Fault("a unit", r"(\d) TFLOPS", r"\1 GFLOPS"),
        Fault("a unit of a column", r"time \(ms\)", "time (s)"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("a rate", r"\d+(\.\d+)? TFLOPS", "777.0 TFLOPS", caught=False),
    ),
    BASICS: (
        *COMMON,
        Fault("a card's peak", "68 SM x 256", "68 SM x 128"),
        Fault("a claim's verdict", ">partly<", ">true<"),
        Fault("a source", "SIMULATED", "MEASURED"),
        Fault("a unit", r"(\d) GB/s", r"\1 GB"),
        Fault("a size", "64 KiB", "64 MiB"),
        Fault("a reason", "needs a GPU", "needs nothing"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("a rate", r"\d+(\.\d+)? TFLOPS", "777.0 TFLOPS", caught=False),
    ),
    DETECTION: (
        *COMMON,
        Fault("a link", "thunderbolt5", "thunderbolt4"),
        Fault("a guess", "cannot tell", "external"),
        Fault("a source", "mig-parted#6", "mig-parted#7"),
        Fault("a reason", "needs a GPU", "needs nothing"),
        Fault("a hop", "PCIe 3 x4", "PCIe 3 x8"),
    ),
    MEASURING: (
        *COMMON,
        Fault("a source", "SIMULATED", "MEASURED"),
        Fault("an experiment", "sum_busy", "sum_idle"),
        Fault("a verdict", "equivalent</td>", "faster</td>"),
        Fault("a unit of a column", r"CPU \(ms\)", "CPU (s)"),
        Fault("a number of rounds", ">48<", ">49<"),
        Fault("a flag", "B throttled", "A throttled"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("a speedup", r"0\.7\d+x", "0.91x", caught=False),
        Fault("a count of verdicts", ">100<", ">99<", caught=False),
    ),
    PRECISION: (
        *COMMON,
        Fault("a sum", ">2048<", ">4096<"),
        Fault("a scale", r"2\*\*17", "2**18"),
        Fault("a dtype", "float32</td>", "float16</td>"),
        Fault("a warning", "FutureWarning", "silent"),
        Fault("a claim's verdict", ">outdated<", ">true<"),
        Fault("an experiment", "cnn_float32_channels_last", "cnn_float32_other"),
        Fault("a reason", "needs a GPU", "needs nothing"),
        Fault("a unit of a column", r"time \(ms\)", "time (s)"),
        Fault("a shape", "'large': 256", "'large': 257"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("a share", r"\d+\.\d+ %", "77.7 %", caught=False),
    ),
    LOADING: (
        *COMMON,
        Fault("a source", "CITED", "MEASURED"),
        Fault("an experiment", "decode_2", "decode_3"),
        Fault("a unit", r"(\d) samples/s", r"\1 tokens/s"),
        Fault("a size", "512 pixels", "513 pixels"),
        Fault("bytes that crossed", "2352 KiB", "2351 KiB"),
        Fault("a default", "with workers: 2", "with workers: 3"),
        Fault("a claim's verdict", ">false<", ">true<"),
        Fault("what is bit-equal", ">bit for bit<", ">nearly<"),
        Fault("a reason", "pages are locked", "pages are free"),
        Fault("a number of batches", ">14<", ">15<"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("a rate", r"[\d.]+ samples/s", "777.0 samples/s", caught=False),
        Fault("an ignored sentence", "Workers that pay", "Workers", caught=False),
    ),
    SEVERAL: (
        *COMMON,
        Fault("an experiment", "tensor_parallel\n", "tensor_serial\n"),
        Fault("bytes of a message", "2121768 bytes", "2121764 bytes"),
        Fault("bytes of a stage", ">3158016<", ">3158020<"),
        Fault("bytes of the ring", "wanted 1048576", "wanted 1048572"),
        Fault("a first cause", "rank 1 failed first", "rank 0 failed first"),
        Fault("a claim's verdict", ">outdated<", ">true<"),
        Fault("a reason", "needs two GPUs", "needs one GPU"),
        Fault("a column", ">busbw<", ">algbw<"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("a speedup", r"\d\.\d+x</td>", "9.9x</td>", caught=False),
    ),
    PROFILING: (
        *COMMON,
        Fault("a claim's verdict", ">outdated<", ">true<"),
        Fault("what is recorded", "records CPU", "records CUDA"),
        Fault("a source", "SIMULATED", "MEASURED"),
        Fault("an experiment", "two_faults", "one_fault"),
        Fault("a number of segments", ">16<", ">17<"),
        Fault("a number of kernels", ">2000<", ">2001<"),
        Fault("a unit of a column", r"time \(ms\)", "time (s)"),
        Fault("a shape", r"\(64, 32\)", "(64, 33)"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("a shape's name", "copy-bound", "starved", caught=False),
    ),
    TROUBLE: (
        *COMMON,
        Fault("a diagnosis", "owns the card", "owns the slot"),
        Fault("a severity", ">critical<", ">warning<"),
        Fault("a first step", "docker run --gpus all", "docker run"),
        Fault("a source of a case", "nvidia-docker#1071", "nvidia-docker#1072"),
        Fault("a claim's verdict", ">false<", ">true<"),
        Fault("an error number", ">719<", ">718<"),
        Fault("a block of the pool", "40 free", "41 free"),
        Fault("whose segments", "expandable segments</td>", "segments</td>"),
        Fault("equal gradients", ">another step<", ">equal<"),
        Fault("causes first", r"'pcie-signal-integrity', ", ""),
        Fault("an open line", "link_under_load", "h2d"),
        Fault("a part of the report", "snapshot, versions", "versions"),
        Fault("a healthy log", "Nothing here", "Something here"),
        Fault("an exercise's text", "GTX 970", "GTX 980"),
        Fault("a unit of a column", r"time \(ms\)", "time (s)"),
        Fault("a time", r"left\">\d+\.\d+</td>", 'left">777.5</td>', caught=False),
        Fault("the live check", "open files allowed", "files", caught=False),
    ),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course of the sample alone, really executed."""
    folder = course(tmp_path_factory.mktemp("course"))
    build.build(folder=folder)
    return folder


@pytest.fixture(scope="module", params=FAULTS)
def lesson(
    request: pytest.FixtureRequest,
    home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Path]:
    """Name of a lesson and its prepared copy."""
    name = request.param
    folder = home if name == SAMPLE else notebooks.home()
    if not notebooks.built_path(name, "student", folder).is_file():
        pytest.skip(f"{name} is not built yet")
    out = tmp_path_factory.mktemp("prepared")
    given: dict[str, Any] = {"device": "cpu", "profile": "quick", "seed": 0}
    prepare.prepare((name,), **given, out=out, folder=folder)
    return name, out / f"{name}.ipynb"


@pytest.fixture(scope="module")
def results(lesson: tuple[str, Path]) -> tuple[dict[str, str], set[str], set[str]]:
    """Fault -> cell; cells that should fail; cells that failed."""
    name, pristine = lesson
    places, copies = plant(pristine, FAULTS[name])
    folder = pristine.parent / "planted"
    for number, copy in enumerate(copies):
        notebooks.write(copy, folder / f"{number}.ipynb")
    due = {places[fault.name] for fault in FAULTS[name] if fault.caught}
    return places, due, failed_cells(folder)


def plant(path: Path, faults: tuple[Fault, ...]) -> tuple[dict[str, str], list[Any]]:
    """Spread the faults over as few copies as they need, one for each cell."""
    places: dict[str, str] = {}
    copies: list[Any] = []
    used: Counter[int] = Counter()  # cell -> copies in which it is changed
    for fault in faults:
        cell = find(path, fault)
        if used[cell] == len(copies):
            copies.append(notebooks.read(path))
        alter(notebooks.code_cells(copies[used[cell]])[cell], fault)
        places[fault.name] = f"{used[cell]}.ipynb Cell {cell}"
        used[cell] += 1
    return places, copies


def find(path: Path, fault: Fault) -> int:
    """Number of the first code cell where the fault has a place, as nbval counts."""
    for number, cell in enumerate(notebooks.code_cells(notebooks.read(path))):
        if alter(cell, fault):
            return number
    raise AssertionError(f"{path.stem}: no place for {fault.name}: {fault.old}")


def alter(cell: Any, fault: Fault) -> bool:
    """Plant a fault in a code cell; whether there was a place for it."""
    if fault.in_source:
        return "verdict" in notebooks.tags(cell) and alter_text(cell, "source", fault)
    if fault.caught and "nbval-ignore-output" in notebooks.tags(cell):
        return False
    changed = [alter_text(output, "text", fault) for output in cell.outputs]
    for data in (output.get("data", {}) for output in cell.outputs):
        changed += [alter_text(data, key, fault) for key in data if "image" not in key]
    return any(changed)


def alter_text(holder: Any, key: str, fault: Fault) -> bool:
    before = holder.get(key, "")
    after = re.sub(fault.old, fault.new, before)
    if after != before:
        holder[key] = after
    return bool(after != before)


def failed_cells(folder: Path) -> set[str]:
    """Run nbval as `make test` does; names of the cells that failed."""
    report = folder / "report.xml"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *NBVAL, f"--junitxml={report}", str(folder)],
        cwd=ROOT,
        env=os.environ | {"GPU_LAB_OUT": str(folder), "GPU_LAB_PROGRESS": "0"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    cases = list(ET.parse(report).iter("testcase"))
    assert cases
    bad = [case for case in cases if len(case)]
    return {f"{Path(c.get('classname', '')).name} {c.get('name')}" for c in bad}


def test_exactly_the_cells_with_a_fault_that_matters_fail(
    lesson: tuple[str, Path], results: tuple[dict[str, str], set[str], set[str]]
) -> None:
    places, due, failed = results
    assert set(places) == {fault.name for fault in FAULTS[lesson[0]]}
    assert failed == due, places


@pytest.fixture
def by_hand(home: Path, tmp_path: Path) -> tuple[Any, Path]:
    """The built sample, and where it may be written with changes."""
    path = notebooks.built_path(SAMPLE, "student", home)
    course(tmp_path)
    return notebooks.read(path), tmp_path / path.name


def test_cleared_outputs_pass_nbval_and_are_found_by_lint(
    by_hand: tuple[Any, Path],
) -> None:
    notebook, path = by_hand
    for cell in notebooks.code_cells(notebook):
        cell.execution_count, cell.outputs = None, []
    notebooks.write(notebook, path)
    assert failed_cells(path.parent) == set()
    found = lint.lint(folder=path.parent)
    assert any("was not run" in str(finding) for finding in found)
