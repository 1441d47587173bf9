"""The report: one page, self-contained, with what was and what was not measured."""

import re

import pytest
from notebook_maker import RECORD, write_notebook

from gpu_lab import plot, store
from gpu_lab.course import engine, report
from gpu_lab.course.manifest import Manifest, Step
from gpu_lab.records import Device, Ladder, Machine, Measurement, Rung, Session, Source

CPU = Device(backend="cpu", name="test CPU")
MACHINE = Machine(
    system="test",
    python="3",
    cpu_name="test CPU",
    cpu_cores=1,
    cpu_threads=1,
    memory_bytes=2**30,
    devices=(CPU,),
)
PLANTED = (
    "very-secret",
    "ann@example",
    "/home/ann",
    "MIG-12345678",
    "52:54:00:12",
    "Number: 0324518012345",
    "10.1.2.3",
)
NAMES = ("os", "driver", "torch", "wheel", "kernel", "copy")
LADDER = Ladder(
    rungs=tuple(Rung(name=n, question="?", answer="no", evidence="e") for n in NAMES)
)


def core(time_s: float) -> Session:
    rows = (
        Measurement(
            name="host_copy",
            device="cpu",
            source=Source.MEASURED,
            times_s=(time_s,),
            work=1e9,
            work_unit="byte",
        ),
        Measurement.not_measurable("h2d", device=CPU, reason="needs <a> GPU"),
    )
    return Session(
        suite="core",
        created="now",
        profile="quick",
        device="cpu",
        seed=0,
        machine=MACHINE,
        measurements=rows,
        ladder=LADDER,
        complete=True,
        stated={"dock": "a dock"},
    )


def done(*steps: Step) -> Manifest:
    return Manifest(
        device="cpu", profile="quick", seed=0, created="2026-01-01", steps=steps
    )


@pytest.fixture
def page(tmp_path):
    for number, time_s in enumerate((0.5, 0.25, 1.0)):
        store.save(core(time_s), tmp_path / f"sessions/core-{number}.json")
    bad = Step(name="01", kind="notebook", state="failed", cell=2, cells=3)
    bad = Step(**{**vars(bad), "line": "x = <y>", "cause": "ValueError: <z>"})
    path = report.write(tmp_path, done(Step(name="core 1", kind="core session"), bad))
    return path.read_text()


def test_it_opens_without_a_network(page):
    assert re.findall(r"(?:src|href)=\"(?!data:)", page) == []
    assert "<script" not in page


def test_it_shows_a_measured_point_and_what_is_missing_and_why(page):
    assert "2.0 GB/s" in page  # the middle of the three sessions
    assert "1.0 GB/s to 4.0 GB/s" in page
    assert "NOT MEASURABLE HERE" in page
    assert "needs &lt;a&gt; GPU" in page


def test_it_shows_ladder_spread_and_what_was_stated(page):
    assert plot.ladder(LADDER).png[:4] == b"\x89PNG"
    assert "0 of 6 rungs hold" in page
    assert "3 fresh processes differ by up to 4.0x" in page
    assert "dock (stated, not measured)" in page
    assert page.count("data:image/png;base64,") == 2


def test_it_names_cell_and_cause_of_a_failure_and_escapes_them(page):
    assert "cell 2 of 3 (x = &lt;y&gt;): ValueError: &lt;z&gt;" in page


def test_an_empty_run_still_has_a_report(tmp_path):
    page = report.write(tmp_path, done()).read_text()
    assert "Nothing was recorded." in page


def test_summary_names_the_folder_the_report_and_what_failed(tmp_path):
    failed = Step(name="01", kind="notebook", state="failed", cause="ValueError: x")
    text = report.summary(tmp_path, done(failed), tmp_path / "report.html")
    assert "0 of 1 steps ok" in text
    assert "ValueError: x" in text
    assert (tmp_path / "report.html").as_uri() in text


def test_executed_copies_and_reports_hold_nothing_personal(tmp_path, monkeypatch):
    """Whatever a cell prints is redacted before the copy is kept."""
    monkeypatch.setenv("MY_API_TOKEN", "very-secret-value")
    monkeypatch.setenv(store.ROOT_VARIABLE, str(tmp_path))
    monkeypatch.setenv(store.OUT_VARIABLE, str(tmp_path))
    # In pieces, so that the cell's own text is not what is found.
    cell = """
import os
print(os.environ["MY_API_TOKEN"], "ann" + "@example.org", "/home/" + "ann/x")
print("MIG-" + "12345678-1234-1234-1234-123456789abc", "52:54:00" + ":12:34:56")
raise ValueError("Serial Number: " + "0324518012345 " + "10.1." + "2.3")
"""
    book = write_notebook(tmp_path / "book.ipynb", RECORD, cell)
    outcome = engine.execute(
        book,
        tmp_path / "notebooks/book.ipynb",
        parameters={"device": "cpu", "profile": "quick", "seed": 0},
        limits=engine.LIMITS["quick"],
        on_cell=lambda _cell, _cells: None,
    )
    step = Step(
        name="book",
        kind="notebook",
        state="failed",
        cell=outcome.cell,
        cells=outcome.cells,
        cause=outcome.cause,
    )
    report.write(tmp_path, done(step))
    for path in (tmp_path / "notebooks/book.ipynb", tmp_path / "report.html"):
        text = path.read_text()
        assert "ValueError" in text
        for planted in PLANTED:
            assert planted not in text, (path.name, planted)
