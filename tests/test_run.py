"""The runner: what it refuses, what it survives, what it leaves on disk."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from notebook_maker import RECORD, write_notebook

from gpu_lab import cli, records, store
from gpu_lab.course import engine, manifest, wish

SLEEP = "import time\ntime.sleep(60)"
KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def start(*args: str, code: int) -> None:
    assert cli.main(["run", *args, "--device", "cpu", "--sessions", "0"]) == code


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.delenv(store.OUT_VARIABLE, raising=False)
    monkeypatch.delenv(store.SKIP_VARIABLE, raising=False)
    monkeypatch.setenv(store.ROOT_VARIABLE, str(tmp_path / "runs"))
    return tmp_path / "run"


def test_a_killed_kernel_costs_only_the_running_experiment(tmp_path, out, capsys):
    dies = write_notebook(tmp_path / "dies.ipynb", RECORD, KILL, "print('never')")
    lives = write_notebook(tmp_path / "lives.ipynb", RECORD, "print('here')")
    start(str(dies), str(lives), "--out", str(out), code=1)
    states = {s.name: s for s in manifest.load(out).steps}
    assert (states["dies"].state, states["lives"].state) == ("failed", "ok")
    assert [m.name for m in store.load(out / "sessions/dies.json").measurements] == [
        "before"
    ]
    report = (out / "report.html").read_text()
    assert "import os, signal" in report
    assert "the kernel died" in report
    assert "here" in (out / "notebooks/lives.ipynb").read_text()
    assert "the kernel died" in capsys.readouterr().out


def test_a_failing_cell_is_named_with_its_cause(tmp_path, out):
    bad = write_notebook(tmp_path / "bad.ipynb", "x = 1", "raise ValueError('planted')")
    start(str(bad), "--out", str(out), code=1)
    (step,) = manifest.load(out).steps
    assert step.cause == "ValueError: planted"
    assert step.line == "raise ValueError('planted')"
    assert "ValueError: planted" in (out / "report.html").read_text()


def test_time_limits_of_cell_and_notebook(tmp_path):
    slow = write_notebook(tmp_path / "slow.ipynb", "print('begun')", SLEEP)
    for limits in (
        engine.Limits(cell_s=2, notebook_s=60),
        engine.Limits(cell_s=60, notebook_s=3),
    ):
        begin = time.monotonic()
        outcome = engine.execute(
            slow,
            tmp_path / "executed.ipynb",
            parameters={"device": "cpu", "profile": "quick", "seed": 0},
            limits=limits,
            on_cell=lambda _cell, _cells: None,
        )
        assert "longer than its time limit" in outcome.cause
        assert time.monotonic() - begin < 40
        assert "begun" in (tmp_path / "executed.ipynb").read_text()


def planted_sessions(folder: Path, text: str) -> None:
    (folder / "sessions").mkdir(parents=True)
    (folder / "sessions/core.json").write_text(text)
    (folder / "run.json").write_text("{}")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--profile", "fast"], ("unknown profile 'fast'", "quick, class, full")),
        (["--device", "tpu"], ("unknown device 'tpu'", "auto, cpu")),
        (["--device", "cuda:9"], ("'cuda:9' is not usable here", "found: cpu")),
        (["99"], ("no notebook '99'", "00_start_here")),
        (["--edition", "draft"], ("unknown edition 'draft'", "student")),
        (["--sessions", "-1"], ("--sessions -1", "0 or more")),
        (["--out", "{file}"], ("file", "cannot write into")),
        (["--out", "{full}"], ("not empty and not a run folder", "--out")),
        (["--out", "{truncated}"], ("core.json", "not whole JSON")),
        (["--out", "{foreign}"], ("core.json", "not a session of gpu_lab")),
        (["--out", "{future}"], ("core.json", "schema '2.0'")),
        (["{text}"], ("text.ipynb", "wanted a notebook")),
        (["{misspelt}"], ("misspelt.ipynb", "devise")),
        (["{deep}"], ("deep.ipynb", "wanted a notebook")),
        (["{null}"], ("null.ipynb", "wanted a notebook")),
        (["{misspelt}", "{twin}"], ("two notebooks of the same name",)),
        (["--out", "{run_future}"], ("run.json", "schema '9.0'")),
        (["--out", "{run_busy}"], ("another run", "choose another --out")),
        (["--out", "{deep_session}"], ("core.json", "not whole JSON")),
    ],
)
def test_an_impossible_wish_is_one_line_and_touches_nothing(
    args, words, tmp_path, out, capsys
):
    places = {name: tmp_path / name for name in ("file", "full", "truncated")}
    places |= {name: tmp_path / name for name in ("foreign", "future")}
    places["file"].write_text("I am a file")
    places["full"].mkdir()
    (places["full"] / "mine.txt").write_text("keep me")
    session = json.dumps({"format": "gpu_lab.session", "schema": "2.0"})
    planted_sessions(places["truncated"], session[:20])
    planted_sessions(places["foreign"], '{"format": "other"}')
    planted_sessions(places["future"], session)
    places["text"] = tmp_path / "text.ipynb"
    places["text"].write_text("no notebook")
    places["misspelt"] = write_notebook(
        tmp_path / "misspelt.ipynb", "x = 1", parameters='devise: str = "auto"'
    )
    places["deep"] = tmp_path / "deep.ipynb"
    places["deep"].write_text("[" * 100_000)
    places["null"] = tmp_path / "null.ipynb"
    places["null"].write_text('{"cells": null, "nbformat": 4, "nbformat_minor": 5}')
    (tmp_path / "other").mkdir()
    places["twin"] = write_notebook(tmp_path / "other/misspelt.ipynb", "x = 1")
    places["deep_session"] = tmp_path / "deep_session"
    planted_sessions(places["deep_session"], "[" * 100_000)
    for name, fields in (
        ("run_future", {"schema": "9.0"}),
        ("run_busy", {"pid": os.getppid(), "time": store.now()}),
    ):
        places[name] = tmp_path / name
        places[name].mkdir()
        old = manifest.Manifest(device="cpu", profile="quick", seed=0, created="now")
        store.write_json(records.plain(old) | fields, places[name] / "run.json")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    asked = [text.format(**places) for text in args]
    fixed = [] if "--out" in args else ["--out", str(out)]
    fixed += [] if "--device" in args else ["--device", "cpu"]
    assert cli.main(["run", *asked, *fixed]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "Traceback" not in error
    for word in words:
        assert word in error
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_ctrl_c_leaves_a_readable_run_and_it_goes_on(tmp_path, out):
    slow = write_notebook(tmp_path / "slow.ipynb", RECORD, SLEEP)
    quick = write_notebook(tmp_path / "quick.ipynb", RECORD)
    command = [sys.executable, "-m", "gpu_lab.cli", "run", str(quick), str(slow)]
    command += ["--device", "cpu", "--sessions", "0", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "sessions/slow.json").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert [s.state for s in manifest.load(out).steps] == ["ok", "interrupted"]
    assert [s.suite for s in store.load_folder(out)] == ["quick", "slow"]
    assert "stopped by Ctrl-C" in (out / "report.html").read_text()

    write_notebook(slow, RECORD)
    start(str(quick), str(slow), "--out", str(out), code=0)
    names = sorted(p.name for p in (out / "sessions").iterdir())
    assert names == ["quick.json", "slow-2.json", "slow.json"]


def test_a_run_is_continued_only_with_its_own_settings(tmp_path, out, capsys):
    quick = write_notebook(tmp_path / "quick.ipynb", RECORD)
    start(str(quick), "--out", str(out), code=0)
    start(str(quick), "--out", str(out), "--seed", "7", code=2)
    assert "holds a run with seed 0, wanted 7" in capsys.readouterr().err


def test_a_disk_that_fills_says_what_was_lost(tmp_path, out, monkeypatch, capsys):
    quick = write_notebook(tmp_path / "quick.ipynb", RECORD)
    real = store.write_text

    def full(data: str, path: Path) -> None:
        if path.name == "report.html" or path.suffix == ".ipynb":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(data, path)

    monkeypatch.setattr(store, "write_text", full)
    start(str(quick), "--out", str(out), code=1)
    assert "lost: report.html: No space left" in capsys.readouterr().err
    assert [s.suite for s in store.load_folder(out)] == ["quick"]
    (step,) = manifest.load(out).steps
    assert "No space left" in step.cause


def test_skipped_experiments_are_on_record(tmp_path, out):
    cell = RECORD + "lab.measure('dangerous', lambda: 1 / 0)"
    book = write_notebook(tmp_path / "book.ipynb", cell)
    start(str(book), "--out", str(out), "--skip", "dangerous", code=0)
    (session,) = store.load_folder(out)
    assert session.measurements[-1].reason == store.SKIPPED


def test_a_crash_is_named_at_the_next_start(tmp_path, out, capsys):
    line = {"event": "starting", "experiment": "h2d", "device": "cuda:0"}
    line |= {"time": "2020-01-01T00:00:00+00:00", "pid": os.getpid()}
    root = tmp_path / "runs"
    root.mkdir()
    (root / store.JOURNAL).write_text(json.dumps(line) + "\n")
    assert wish.offer_to_skip(root, known=()) == ()
    said = capsys.readouterr().err
    assert "stopped inside h2d" in said
    assert "gpu-lab run --skip h2d" in said


def test_the_core_suite_runs_in_processes_of_their_own(out):
    assert cli.main(
        ["run", "--sessions", "1", "--device", "cpu", "--out", str(out), "00"]
    ) in (0, 1)
    core = [s for s in store.load_folder(out) if s.suite == "core"]
    assert len(core) == 1
    assert core[0].complete
    assert {str(m.source) for m in core[0].measurements} == {
        "MEASURED",
        "NOT MEASURABLE HERE",
    }


def test_the_spawn_lane_reaches_every_kernel(tmp_path, out, monkeypatch):
    monkeypatch.setenv("PYTHONSTARTUP", str(Path(__file__).parent / "force_spawn.py"))
    cell = "import multiprocessing as m\nassert m.get_start_method() == 'spawn'"
    book = write_notebook(tmp_path / "book.ipynb", cell)
    start(str(book), "--out", str(out), code=0)


def test_warnings_of_libraries_reach_the_executed_copy(tmp_path, out, monkeypatch):
    """`make test` allows nothing on stderr; so what is said there must arrive."""
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    cell = "exec('import warnings\\nwarnings.warn(\"old\", DeprecationWarning)', dict("
    cell += "__name__='torch.planted'))"
    book = write_notebook(tmp_path / "book.ipynb", cell)
    start(str(book), "--out", str(out), code=0)
    executed = nbformat.read(out / "notebooks/book.ipynb", as_version=4)
    said = [o.text for c in executed.cells for o in c.outputs if o.name == "stderr"]
    assert "DeprecationWarning: old" in "".join(said)


def test_a_spoiled_session_costs_itself_and_not_the_report(tmp_path, out, capsys):
    spoil = RECORD + "lab.path.write_text('garbage')"
    book = write_notebook(tmp_path / "book.ipynb", spoil)
    good = write_notebook(tmp_path / "good.ipynb", RECORD)
    start(str(book), str(good), "--out", str(out), code=1)
    assert "book.json: wanted a session file" in capsys.readouterr().err
    report = (out / "report.html").read_text()
    assert "Not readable, and left out" in report
    assert "test CPU" in report  # the passport of the good one


def test_megabytes_of_output_are_cut_in_the_copy(tmp_path, out):
    cell = (
        "for _ in range(30): print('y' * 100_000)\nraise ValueError('z\\n' * 100_000)"
    )
    book = write_notebook(tmp_path / "book.ipynb", cell)
    start(str(book), "--out", str(out), code=1)
    assert (out / "notebooks/book.ipynb").stat().st_size < 2_000_000
    assert "characters left out" in (out / "notebooks/book.ipynb").read_text()
    (step,) = manifest.load(out).steps
    assert step.cause == "ValueError: z"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
def test_a_terminal_sees_one_bar_with_cells_and_time_left(tmp_path, out):
    import fcntl
    import pty
    import struct
    import termios

    book = write_notebook(tmp_path / "book.ipynb", RECORD)
    command = [sys.executable, "-m", "gpu_lab.cli", "run", str(book)]
    command += ["--device", "cpu", "--sessions", "0", "--out", str(out)]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    with (tmp_path / "stdout").open("w") as file:
        subprocess.run(command, stdout=file, stderr=theirs, timeout=100, check=True)
    os.write(theirs, b"end")  # so that reading never waits
    seen = os.read(ours, 100_000).decode()
    assert "book cell 3 of 3" in seen
    assert "left" in seen
