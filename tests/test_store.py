"""Session files that survive: bad files, full disks, killed processes."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from gpu_lab import facts, records, store
from gpu_lab.records import (
    Answer,
    Device,
    DeviceLost,
    GpuLabError,
    Ladder,
    Machine,
    Measurement,
    Rung,
    Session,
    Source,
)
from gpu_lab.store import Journal, StoreError
from gpu_lab.timing import Arm, Plan, SimulatedGpu

ROOT = Path(__file__).parent.parent
GPU = Device(backend="cuda", name="Stand-in GPU (simulated)", simulated=True)
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def row(name: str = "row", **fields: Any) -> Measurement:
    """A row as the stand-in gives it."""
    given = {"device": GPU.label, "source": Source.SIMULATED, "times_s": (1.0,)}
    return Measurement(name=name, **{**given, **fields})


@pytest.fixture
def with_gpu(machine: Machine) -> Machine:
    """The machine with the stand-in."""
    return dataclasses.replace(machine, devices=(*machine.devices, GPU))


@pytest.fixture
def lab(with_gpu: Machine) -> store.Recorder:
    """A session open on the stand-in."""
    return store.open_session("core", with_gpu, GPU, profile="quick", seed=0)


def tree_of(session: Session, **changed: Any) -> dict[str, Any]:
    """The session as JSON tree, with top fields changed; None removes one."""
    tree = {**json.loads(json.dumps(records.plain(session))), **changed}
    return {k: v for k, v in tree.items() if v is not None}


def write(path: Path, tree: Any) -> Path:
    """A JSON file."""
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


# -- loading --


def test_what_is_saved_is_loaded(tmp_path: Path, session: Session) -> None:
    rung = Rung(name="r", question="?", answer="cannot tell", evidence="e")
    whole = dataclasses.replace(
        session,
        answers=(Answer(exercise="a", kind="P", verdict="PASS", value=2.5),),
        ladder=Ladder(rungs=(rung,), device="cpu", remedy="none"),
        stated={"cable": "short"},
        complete=True,
    )
    path = store.save(whole, tmp_path / "deep" / "s.json")
    assert store.load(path) == whole
    assert path.read_bytes().endswith(b"}\n")
    assert [p.name for p in path.parent.iterdir()] == ["s.json"]


@pytest.mark.parametrize("keep", [0, 1, 0.3, 0.9, 0.999])
def test_truncated(tmp_path: Path, session: Session, keep: float) -> None:
    text = store.save(session, tmp_path / "s.json").read_text()
    path = tmp_path / "cut.json"
    path.write_text(text[: int(keep if keep == 1 else keep * (len(text) - 3))])
    with pytest.raises(StoreError, match=r"cut\.json: wanted a session file, .*trunc"):
        store.load(path)


@pytest.mark.parametrize(
    "tree",
    [{}, [], 7, "text", None, {"format": "other.session", "schema": "1.0"}],
)
def test_foreign(tmp_path: Path, tree: Any) -> None:
    path = write(tmp_path / "foreign.json", tree)
    with pytest.raises(StoreError, match=r"foreign\.json: valid JSON, but not a sess"):
        store.load(path)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\x00" * 100])
def test_binary(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(data)
    with pytest.raises(StoreError, match="wanted a session file"):
        store.load(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(StoreError, match="cannot be read"):
            store.load(path)


@pytest.mark.parametrize("schema", ["2.0", "10.1", "0.9", 2, None])
def test_another_major_version(tmp_path: Path, session: Session, schema: Any) -> None:
    path = write(tmp_path / "s.json", tree_of(session, schema=schema))
    with pytest.raises(StoreError, match="install the gpu_lab that wrote it"):
        store.load(path)


def test_a_newer_minor_version_with_unknown_fields(
    tmp_path: Path, session: Session
) -> None:
    tree = tree_of(session, schema="1.7", weather={"rain": True})
    tree["machine"]["fans"] = 3
    tree["measurements"][0]["joules"] = [1.5]
    found = store.load(write(tmp_path / "s.json", tree))
    assert found.schema == "1.7"
    assert found.measurements == session.measurements
    assert found.machine == session.machine


def test_an_older_file_without_optional_fields(
    tmp_path: Path, session: Session
) -> None:
    bare = {"stated", "answers", "ladder", "complete", "gpu_lab"}
    tree = {k: v for k, v in tree_of(session).items() if k not in bare}
    needed = ("system", "python", "cpu_name", "cpu_cores", "cpu_threads")
    tree["machine"] = {k: tree["machine"][k] for k in (*needed, "memory_bytes")}
    kept = ("name", "device", "source", "times_s")
    tree["measurements"] = [{k: tree["measurements"][0][k] for k in kept}]
    found = store.load(write(tmp_path / "s.json", tree))
    assert (found.stated, found.answers, found.ladder) == ({}, (), None)
    assert found.machine.devices == ()
    assert found.measurements[0].times_s == (0.5, 0.25, 0.25)


def change(tree: dict[str, Any], where: str, value: Any) -> None:
    """Set the value at a path such as machine.devices.0.name."""
    *way, last = where.split(".")
    place: Any = tree
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value


@pytest.mark.parametrize(
    ("where", "value", "path"),
    [
        ("seed", "zero", r"\$\.seed"),
        ("suite", None, r"\$\.suite"),
        ("machine.cpu_threads", "four", r"\$\.machine\.cpu_threads"),
        ("machine.devices.0.name", 7, r"\$\.machine\.devices\[0\]\.name"),
        ("machine.versions", ["torch"], r"\$\.machine\.versions"),
        ("measurements.0.source", "GUESSED", r"\$\.measurements\[0\]\.source"),
        ("measurements.0.times_s", "fast", r"\$\.measurements\[0\]\.times_s"),
        ("measurements.0.times_s", [], r"host_copy: MEASURED without a time"),
        ("measurements.0.times_s", [-1.0], r"above zero - at `\$\.measurements\[0\]`"),
        ("measurements", {}, r"\$\.measurements"),
    ],
)
def test_wrong_types_name_the_place(
    tmp_path: Path, session: Session, where: str, value: Any, path: str
) -> None:
    tree = tree_of(session)
    change(tree, where, value)
    file = write(tmp_path / "s.json", tree)
    with pytest.raises(StoreError, match=rf"s\.json: not a valid session: .*{path}"):
        store.load(file)


def test_a_missing_field_is_named(tmp_path: Path, session: Session) -> None:
    path = write(tmp_path / "s.json", tree_of(session, machine=None))
    with pytest.raises(StoreError, match="missing required field `machine`"):
        store.load(path)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_nan_in_a_file(tmp_path: Path, session: Session, word: str) -> None:
    text = json.dumps(tree_of(session)).replace("1000000000", word)
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(StoreError, match="not whole JSON"):
        store.load(path)


def test_every_message_is_one_line(tmp_path: Path, session: Session) -> None:
    bad: list[Any] = [7, tree_of(session, schema="9.0"), tree_of(session, seed="x")]
    for tree in bad:
        with pytest.raises(StoreError) as caught:
            store.load(write(tmp_path / "s.json", tree))
        assert "\n" not in str(caught.value)


def test_load_folder_is_sorted_and_strict(tmp_path: Path, session: Session) -> None:
    assert store.load_folder(tmp_path) == []
    for name in ("b", "a"):
        seeded = dataclasses.replace(session, suite=name)
        store.save(seeded, tmp_path / "sessions" / f"{name}.json")
    (tmp_path / "sessions" / "notes.txt").write_text("not mine")
    assert [s.suite for s in store.load_folder(tmp_path)] == ["a", "b"]
    (tmp_path / "sessions" / "c.json").write_text("{")
    with pytest.raises(StoreError, match=r"c\.json"):
        store.load_folder(tmp_path)


# -- the schema --


def test_the_stored_schema_is_that_of_the_records() -> None:
    stored = json.loads(facts.text("schema/session-1.json"))
    assert stored == store.schema(), "records changed: write the schema file again"


def test_a_saved_session_fits_the_schema(tmp_path: Path, session: Session) -> None:
    tree = json.loads(store.save(session, tmp_path / "s.json").read_text())
    jsonschema.validate(tree, store.schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**tree, "seed": "zero"}, store.schema())


def test_versions_agree() -> None:
    major = records.SCHEMA.split(".")[0]
    assert facts.text(f"schema/session-{major}.json")


# -- saving --


@pytest.mark.parametrize("source", [Source.MEASURED, Source.RECORDED])
def test_the_stand_in_is_never_saved_as_measured(
    tmp_path: Path, session: Session, with_gpu: Machine, source: Source
) -> None:
    path = store.save(session, tmp_path / "s.json")
    before = path.read_bytes()
    rows = (*session.measurements, row("faked", source=source))
    faked = dataclasses.replace(session, machine=with_gpu, measurements=rows)
    for target in (path, tmp_path / "new" / "n.json"):
        with pytest.raises(StoreError, match="faked ran on a simulated device"):
            store.save(faked, target)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.rglob("*")] == ["s.json"]


def test_nan_is_not_saved(tmp_path: Path, session: Session) -> None:
    path = store.save(session, tmp_path / "s.json")
    before = path.read_bytes()
    nan = Answer(exercise="a", kind="P", verdict="PASS", value=float("nan"))
    with pytest.raises(StoreError, match=r"s\.json: nothing was written: Out of range"):
        store.save(dataclasses.replace(session, answers=(nan,)), path)
    assert path.read_bytes() == before


@pytest.fixture(params=["os.replace", "os.fsync", "os.fdopen", "tempfile.mkstemp"])
def full_disk(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Call it, and the next write fails at one of its steps."""

    def fails(*_args: Any, **_options: Any) -> Any:
        raise FULL

    return lambda: monkeypatch.setattr(request.param, fails)


def test_a_full_disk_keeps_the_old_file(
    tmp_path: Path, session: Session, full_disk: Callable[[], None]
) -> None:
    path = store.save(session, tmp_path / "s.json")
    before = path.read_bytes()
    full_disk()
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        store.save(dataclasses.replace(session, seed=1), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


def test_what_could_not_be_written_is_written_with_the_next(
    lab: store.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _handle: (_ for _ in ()).throw(FULL))
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            lab.add(row("first"))
    assert store.load(lab.path).measurements == ()
    lab.add(row("second"))
    names = [m.name for m in store.load(lab.path).measurements]
    assert names == ["first", "second"]


@pytest.mark.skipif(os.name == "nt", reason="no such modes there")
def test_others_may_read_the_file(tmp_path: Path, session: Session) -> None:
    path = store.save(session, tmp_path / "s.json")
    assert path.stat().st_mode & 0o777 == 0o644


# -- names and places --


def test_free_name(tmp_path: Path) -> None:
    for wanted in ("core.json", "core-2.json", "core-3.json"):
        path = store.free_name(tmp_path, "core")
        assert path.name == wanted
        path.touch()


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPU_LAB_RUNS")
    for folder in ("here", "course/notebooks", "other/notebooks/solutions"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert store.runs_root() == tmp_path / "here" / "runs"
    monkeypatch.chdir(tmp_path / "course" / "notebooks")
    assert store.runs_root() == tmp_path / "course" / "runs"
    assert store.out_folder() == tmp_path / "course" / "runs" / "lab"
    monkeypatch.setenv("GPU_LAB_RUNS", str(tmp_path / "r"))
    assert store.runs_root() == tmp_path / "r"
    monkeypatch.setenv("GPU_LAB_OUT", str(tmp_path / "o"))
    assert store.out_folder() == tmp_path / "o"


def test_now_is_utc_to_the_second() -> None:
    assert store.now().endswith("+00:00")
    assert "." not in store.now()


# -- the recorder --


def test_each_row_is_on_disk_before_the_next_starts(lab: store.Recorder) -> None:
    def look(*seen: str) -> Measurement:
        assert [m.name for m in store.load(lab.path).measurements] == list(seen)
        return row()

    lab.measure("one", look)
    lab.measure("two", look, "one")
    lab.measure("three", look, *("one", "two"))
    found = store.load(lab.path)
    assert [m.name for m in found.measurements] == ["one", "two", "three"]
    assert not found.complete
    assert store.load(lab.close()).complete


def test_open_session_never_overwrites(with_gpu: Machine, tmp_path: Path) -> None:
    opened = [
        store.open_session(
            "core", with_gpu, GPU, profile="quick", seed=seed, folder=tmp_path
        )
        for seed in range(3)
    ]
    assert [s.seed for s in store.load_folder(tmp_path)] == [1, 2, 0]
    assert len({lab.path for lab in opened}) == 3


def test_a_failed_experiment_is_a_row_with_a_reason(lab: store.Recorder) -> None:
    def lost() -> Measurement:
        raise DeviceLost("cuda:0 failed\nsecond line")

    found = lab.measure("h2d", lost)
    assert found.source is Source.NOT_MEASURABLE
    assert found.reason == "failed: DeviceLost: cuda:0 failed"
    assert lab.measure("next", row, "x").available
    assert len(store.load(lab.path).measurements) == 2


def test_a_call_that_returns_no_row(lab: store.Recorder) -> None:
    found = lab.measure("odd", lambda: None)  # type: ignore[arg-type,return-value]
    assert found.reason.startswith("failed: TypeError: ")


def test_a_refused_row_does_not_spoil_the_next(lab: store.Recorder) -> None:
    with pytest.raises(StoreError, match="wanted SIMULATED"):
        lab.measure("faked", row, source=Source.MEASURED)
    lab.measure("honest", row)
    assert [m.name for m in store.load(lab.path).measurements] == ["honest"]


@pytest.mark.parametrize("skip", ["two", "zero,two", "zero, two"])
def test_skipped_experiments_are_not_run(
    lab: store.Recorder, monkeypatch: pytest.MonkeyPatch, skip: str
) -> None:
    monkeypatch.setenv("GPU_LAB_SKIP", skip)
    ran = []
    for name in ("one", "two"):
        lab.measure(name, lambda name=name: ran.append(name) or row())
    assert ran == ["one"]
    found = store.load(lab.path).measurement("two")
    assert found.source is Source.NOT_MEASURABLE
    assert found.reason == store.SKIPPED


def arm_of(clock: SimulatedGpu, seconds: float = 100e-6) -> Arm:
    """An arm as a benchmark prepares it."""
    return Arm(name="its own", calls=(lambda: clock.kernel(seconds),), version=7)


def test_arms_of_one_group_are_put_on_disk_together(lab: store.Recorder) -> None:
    gpu = SimulatedGpu()
    arms = [lab.arm(n, arm_of, gpu, s) for n, s in (("a", 1e-4), ("b", 2e-4))]
    assert [arm.name for arm in arms] == ["a", "b"]
    assert store.load(lab.path).measurements == ()  # nothing is timed yet
    found = lab.together(arms, plan=Plan(rounds=12), clock=gpu)
    assert store.load(lab.path).measurements == tuple(found)
    assert {row.group for row in found} == {"a|b"}
    assert {row.method_version for row in found} == {7}
    assert [len(row.times_s) for row in found] == [12, 12]


def test_an_arm_that_cannot_be_prepared_is_a_row_with_the_reason(
    lab: store.Recorder,
) -> None:
    def fails() -> Arm:
        raise GpuLabError("no room\nfor it")

    gpu = SimulatedGpu()
    arms = [lab.arm("bad", fails), lab.arm("good", arm_of, gpu)]
    bad, good = lab.together(arms, plan=Plan(rounds=2), clock=gpu)
    assert bad.source is Source.NOT_MEASURABLE
    assert bad.reason == "failed: GpuLabError: no room"
    assert len(good.times_s) == 2
    assert good.group == ""  # alone
    assert [m.name for m in store.load(lab.path).measurements] == ["bad", "good"]


def test_rounds_that_fail_are_rows_with_the_reason(lab: store.Recorder) -> None:
    def lost() -> None:
        raise DeviceLost("cuda:0 failed")

    arms = [Arm(name="a", calls=(lost,)), Arm(name="b", reason="needs two GPUs")]
    found = lab.together(arms, plan=Plan(rounds=2), clock=SimulatedGpu())
    reasons = [row.reason for row in found]
    assert reasons == ["failed: DeviceLost: cuda:0 failed", "needs two GPUs"]
    assert lab.measure("next", row, "x").available
    names = [m.name for m in store.load(lab.path).measurements]
    assert names == ["a", "b", "next"]


def test_skipped_arms_are_neither_prepared_nor_run(
    lab: store.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_LAB_SKIP", "two")
    prepared: list[str] = []

    def make(name: str) -> Arm:
        prepared.append(name)
        return arm_of(gpu)

    gpu = SimulatedGpu()
    arms = [lab.arm(name, make, name) for name in ("one", "two")]
    one, two = lab.together(arms, plan=Plan(rounds=2), clock=gpu)
    assert prepared == ["one"]
    assert one.available
    assert two.reason == store.SKIPPED
    assert '"two"' not in (store.runs_root() / store.JOURNAL).read_text()


def test_the_journal_names_arms_while_they_are_prepared_and_run(
    lab: store.Recorder,
) -> None:
    gpu = SimulatedGpu()
    journal = Journal(store.runs_root())
    inside: list[set[str]] = []

    def look() -> None:
        inside.append(open_in(journal))

    def make() -> Arm:
        look()
        return Arm(name="x", calls=(lambda: (look(), gpu.kernel(1e-3)),))

    arms = [lab.arm(name, make) for name in ("one", "two")]
    lab.together(arms, plan=Plan(rounds=1), clock=gpu)
    assert inside[:2] == [{"one"}, {"two"}]
    assert set(map(frozenset, inside[2:])) == {frozenset({"one", "two"})}
    assert journal.unfinished() == []


def test_no_journal_of_arms_on_a_cpu(machine: Machine, cpu: Device) -> None:
    lab = store.open_session("core", machine, cpu, profile="quick", seed=0)
    arm = lab.arm("one", lambda: Arm(name="x", calls=(int,)))
    lab.together([arm], plan=Plan(rounds=2))
    assert not (store.runs_root() / store.JOURNAL).exists()


def open_in(journal: Journal) -> set[str]:
    """Experiments that started and did not end yet."""
    lines = [json.loads(t) for t in journal.path.read_text().splitlines() if t]
    last = {line["experiment"]: line["event"] for line in lines}
    return {name for name, event in last.items() if event == "starting"}


def test_a_second_answer_replaces_the_first(lab: store.Recorder) -> None:
    for verdict in ("NOT YET", "PASS"):
        lab.answer(Answer(exercise="a", kind="V", verdict=verdict))
    lab.answer(Answer(exercise="b", kind="V", verdict="TODO"))
    kept = [(a.exercise, a.verdict) for a in store.load(lab.path).answers]
    assert kept == [("a", "PASS"), ("b", "TODO")]


def test_the_ladder_is_kept(lab: store.Recorder) -> None:
    found = lab.ladder(Ladder(rungs=(), device="cuda:0"))
    assert store.load(lab.path).ladder == found


def test_a_device_that_is_not_there(machine: Machine) -> None:
    with pytest.raises(GpuLabError, match="no device 'cuda:0' here"):
        store.open_session("core", machine, GPU, profile="quick", seed=0)


def test_stated_values_are_kept_across_sessions(with_gpu: Machine) -> None:
    def opened() -> store.Recorder:
        return store.open_session("00", with_gpu, GPU, profile="quick", seed=0)

    assert opened().state(dock="", cable="") == {}
    assert not (store.runs_root() / store.STATED).exists()
    first = opened()
    assert first.state(dock="TH3P4G3", cable="") == {"dock": "TH3P4G3"}
    second = opened()
    assert second.session.stated == {"dock": "TH3P4G3"}
    assert second.state(cable="0.7 m") == {"dock": "TH3P4G3", "cable": "0.7 m"}
    assert second.state(dock="", cable="") == {"dock": "TH3P4G3", "cable": "0.7 m"}
    assert store.load(second.path).stated == {"dock": "TH3P4G3", "cable": "0.7 m"}
    assert store.load(first.path).stated == {"dock": "TH3P4G3"}


@pytest.mark.parametrize("text", ["{", "[]", "7", "\x00"])
def test_a_broken_file_of_stated_values_is_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stated.json"
    path.write_text(text)
    assert store.stated_before(path) == {}


# -- the journal --


def test_the_journal_of_experiments_on_a_gpu(lab: store.Recorder) -> None:
    journal = Journal(store.runs_root())
    inside: list[str] = []

    def look() -> Measurement:
        inside.append(journal.path.read_text())
        return row()

    lab.measure("one", look)
    line = json.loads(inside[0].strip())
    assert line["event"] == "starting"
    assert (line["experiment"], line["device"]) == ("one", "cuda:0")
    assert line["pid"] == os.getpid()
    texts = [text for text in journal.path.read_text().splitlines() if text]
    assert [json.loads(text)["event"] for text in texts] == ["starting", "ended"]
    assert journal.unfinished() == []


def test_no_journal_on_a_cpu(machine: Machine, cpu: Device) -> None:
    lab = store.open_session("core", machine, cpu, profile="quick", seed=0)
    lab.measure("one", row, device="cpu", source=Source.MEASURED)
    assert not (store.runs_root() / store.JOURNAL).exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_was_stopped_did_not_crash(
    lab: store.Recorder, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def stops() -> Measurement:
        raise error

    with suppress(KeyboardInterrupt, SystemExit):
        lab.measure("one", stops)
    monkeypatch.setattr("gpu_lab.store.journal.still_runs", lambda _line: False)
    assert Journal(store.runs_root()).unfinished() == []


def line(event: str, experiment: str, pid: int | None = None, time: str = "") -> str:
    """A journal line of a process that is gone, or of the one with that number."""
    tree = {"event": event, "experiment": experiment, "device": "cuda:0"}
    given = {"time": time or store.now(), "pid": gone() if pid is None else pid}
    return json.dumps({**tree, **given})


def gone() -> int:
    """Number of no process."""
    return max(psutil.pids()) + 100_000


def journal_of(tmp_path: Path, *lines: str) -> Journal:
    """A journal with these lines."""
    (tmp_path / store.JOURNAL).write_text("\n".join(lines))
    return Journal(tmp_path)


def test_unfinished_names_what_never_ended(tmp_path: Path) -> None:
    journal = journal_of(
        tmp_path,
        line("starting", "good"),
        line("ended", "good"),
        line("starting", "bad"),
    )
    assert journal.unfinished() == ["bad"]
    journal.settle()
    assert journal.unfinished() == []


def test_no_journal_is_no_crash(tmp_path: Path) -> None:
    assert Journal(tmp_path / "none").unfinished() == []
    Journal(tmp_path / "none").settle()
    assert not (tmp_path / "none").exists()


def test_a_living_process_is_not_unfinished(tmp_path: Path) -> None:
    alive = line("starting", "running", pid=os.getpid())
    assert journal_of(tmp_path, alive).unfinished() == []


def test_a_process_that_got_the_number_later_is_another(tmp_path: Path) -> None:
    old = line("starting", "old", pid=os.getpid(), time="2020-01-01T00:00:00+00:00")
    assert journal_of(tmp_path, old).unfinished() == ["old"]


@pytest.mark.parametrize(
    "torn", ['{"event": "end', '{"event": "starting"', "\x00\x00\x00", "[1]", "7", "é"]
)
def test_a_torn_line_hides_nothing(tmp_path: Path, torn: str) -> None:
    journal = journal_of(tmp_path, line("starting", "bad"), torn)
    assert journal.unfinished() == ["bad"]
    journal.ended("bad", GPU)  # must not be glued to the torn line
    assert journal.unfinished() == []
    journal.starting("next", GPU)
    assert '"next"' in journal.path.read_text().splitlines()[-1]


@pytest.mark.parametrize(
    "odd",
    ['{"event": "starting"}', '{"event": "ended"}', "{}", b"\xff\xfe".decode("latin")],
)
def test_odd_lines_are_survived(tmp_path: Path, odd: str) -> None:
    journal = journal_of(tmp_path, odd, line("starting", "bad"))
    assert "bad" in journal.unfinished()


def test_bytes_that_are_no_text_are_survived(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.path.write_bytes(line("starting", "bad").encode() + b"\n\xff\xfe\x81")
    assert journal.unfinished() == ["bad"]


def test_threads_and_processes_append_whole_lines(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from gpu_lab.records import Device
from gpu_lab.store import Journal
journal = Journal(Path({str(tmp_path)!r}))
for number in range(40):
    journal.starting(f"other {{number}}", Device(backend="cuda", name="x" * 300))
"""
    others = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in "12"]
    journal = Journal(tmp_path)

    def append() -> None:
        for number in range(40):
            journal.starting(f"mine {number}", GPU)

    threads = [threading.Thread(target=append) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(60) for other in others] == [0, 0]
    texts = [t for t in journal.path.read_text().splitlines() if t]
    assert len(texts) == 5 * 40
    assert all(json.loads(text)["event"] == "starting" for text in texts)


CHILD = """
import sys, time
from gpu_lab import store
from gpu_lab.records import Device, Machine, Measurement, Source

gpu = Device(backend="cuda", name="Stand-in GPU (simulated)", simulated=True)
machine = Machine(system="s", python="3", cpu_name="c", cpu_cores=1, cpu_threads=1,
                  memory_bytes=1, devices=(gpu,))
lab = store.open_session("core", machine, gpu, profile="quick", seed=0)

def good():
    return Measurement(name="x", device=gpu.label, source=Source.SIMULATED,
                       times_s=(1.0,))

def hangs():
    print("inside", flush=True)
    time.sleep(60)

lab.measure("first", good)
lab.measure("second", good)
lab.measure("third", hangs)
"""


def test_a_killed_process_loses_at_most_the_running_experiment() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stdout.readline() == "inside\n"
    journal = Journal(store.runs_root())
    assert journal.unfinished() == []  # it lives
    child.kill()
    psutil.Process(child.pid).wait(10) if os.name == "nt" else _dead(child.pid)
    assert journal.unfinished() == ["third"]  # dead, though nobody waited for it
    child.communicate(timeout=10)
    assert journal.unfinished() == ["third"]
    (found,) = store.load_folder(store.out_folder())
    assert [m.name for m in found.measurements] == ["first", "second"]
    assert not found.complete
    machine = found.machine
    again = store.open_session("core", machine, GPU, profile="quick", seed=0)
    assert again.crashed == ("third",)


def _dead(pid: int) -> None:
    """Wait until a killed process is a zombie, without waiting for it as parent."""
    for _ in range(1000):
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        threading.Event().wait(0.01)
    raise AssertionError("it lives")
