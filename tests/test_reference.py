"""Reference runs: shipped records of our own code on named machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from authoring.__main__ import main

from gpu_lab import bench, facts, store
from gpu_lab.records import Measurement, Session, Source

OURS = "two-core-amd-epyc-vm"


def test_one_cpu_machine_is_shipped_and_no_egpu() -> None:
    assert list(store.references()) == [OURS]
    for session in store.references()[OURS]:
        assert [d.backend for d in session.machine.devices] == ["cpu"]
        assert session.machine.cpu_threads == 2


def test_the_record_is_five_whole_sessions_of_the_core_suite() -> None:
    sessions = store.references()[OURS]
    assert len(sessions) == 5
    for session in sessions:
        assert session.complete
        assert [m.name for m in session.measurements] == list(bench.CORE)
        sources = {m.source for m in session.measurements}
        assert sources == {Source.RECORDED, Source.NOT_MEASURABLE}


def test_the_record_was_made_by_the_methods_of_today() -> None:
    """Otherwise nothing could be compared with it: make it again."""
    versions = {
        m.name: m.method_version for m in store.references()[OURS][0].measurements
    }
    assert versions["matmul_fp32"] == 2
    assert versions["host_copy"] == 2


def test_the_file_itself_says_measured() -> None:
    there = facts.folder("data") / "reference" / OURS / "sessions" / "core.json"
    rows = json.loads(there.read_text(encoding="utf-8"))["measurements"]
    assert {row["source"] for row in rows} == {"MEASURED", "NOT MEASURABLE HERE"}


@pytest.fixture
def run(tmp_path: Path, session: Session) -> Path:
    """A run folder with one whole session of the core suite."""
    store.save(replace(session, complete=True), tmp_path / "run/sessions/core.json")
    return tmp_path / "run"


def test_a_run_is_kept(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "reference" / "some-machine"
    assert main(["reference", str(run), str(target)]) == 0
    assert store.load_folder(target) == store.load_folder(run)


def spoil(run: Path, **fields: object) -> None:
    path = run / "sessions" / "core.json"
    store.save(replace(store.load(path), **fields), path)  # type: ignore[arg-type]


def simulated(row: Measurement) -> Measurement:
    return replace(row, source=Source.SIMULATED)


def test_what_is_no_record_is_refused(
    run: Path, tmp_path: Path, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "reference" / "some-machine"
    faked = tuple(simulated(row) for row in session.measurements)
    for fields, words in (
        ({"complete": False}, "core.json is no record: unfinished, MEASURED"),
        ({"complete": True, "measurements": faked}, "whole, SIMULATED"),
    ):
        spoil(run, **fields)
        assert main(["reference", str(run), str(target)]) == 2
        assert words in capsys.readouterr().err
    assert main(["reference", str(tmp_path), str(target)]) == 2
    assert "found none" in capsys.readouterr().err
    assert main(["reference", str(run), str(tmp_path / "My Machine")]) == 2
    assert "is no name of a machine" in capsys.readouterr().err
    assert not target.exists()
