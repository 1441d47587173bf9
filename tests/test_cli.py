"""Front doors: help with an example, one-line errors, exit codes."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_lab import bench, cli, facts, hardware, store, timing
from gpu_lab.course import session

COMMANDS = ("run", "detect", "snapshot", "doctor", "explain", "bench", "compare", "fit")
COMMANDS += ("monitor",)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert f"Example: gpu-lab {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "required"),
        (["dance"], "invalid choice: 'dance'"),
        (["run", "--seed", "x"], "invalid int value: 'x'"),
        (["doctor", "--form", "x"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(args, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_detect_prints_the_machine_and_one_json_object(capsys):
    assert cli.main(["detect"]) == 0
    assert "processor" in capsys.readouterr().out
    assert cli.main(["detect", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {
        *("gpus", "interconnect", "mig_devices", "driver_version", "cuda_version"),
        "notes",
    }


def test_a_snapshot_that_cannot_be_read_or_written(tmp_path, capsys):
    file = tmp_path / "x.json"
    file.write_text("{")
    assert cli.main(["detect", "--from", str(file)]) == 2
    assert "wanted a snapshot" in capsys.readouterr().err
    assert cli.main(["snapshot", str(tmp_path / "no" / "folder.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_doctor_without_a_gpu_is_no_fault_and_names_one_command(capsys, monkeypatch):
    nothing = functools.cache(lambda: ())
    monkeypatch.setattr("gpu_lab.hardware.host.gpus_listed", nothing)
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.count("pip install -r ") == 1
    assert "OS lists a GPU" in out


@pytest.mark.parametrize("path", facts.files("ladders", suffix=".json"), ids=str)
def test_doctor_replays_a_stored_ladder(path, capsys):
    assert cli.main(["doctor", "--from", str(path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("CITED: ")
    assert "First failed: " in out
    assert "Install command" not in out  # it is not about this machine


def test_doctor_with_a_file_that_is_no_ladder(tmp_path, capsys):
    file = tmp_path / "x.json"
    file.write_text("{}")
    assert cli.main(["doctor", "--from", str(file)]) == 2
    assert "wanted a stored ladder" in capsys.readouterr().err


def test_bench_prints_a_table_or_json(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_LAB_RUNS", str(tmp_path))
    wanted = ["h2d", "--device", "cpu"]
    assert cli.main(["bench", *wanted]) == 0
    assert "NOT MEASURABLE HERE" in capsys.readouterr().out
    assert cli.main(["bench", *wanted, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in found["measurements"]] == ["h2d"]


def test_bench_with_an_unknown_row(capsys):
    assert cli.main(["bench", "teapot"]) == 2
    error = capsys.readouterr().err
    assert "no benchmark 'teapot'; wanted some of: matmul_fp32" in error


def test_ctrl_c_is_130_in_one_line(monkeypatch, capsys):
    def stop(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "measure_core", stop)
    assert cli.main(["bench"]) == 130
    assert capsys.readouterr().err == "gpu-lab bench: stopped by Ctrl-C\n"


def test_a_session_process_that_cannot_start_says_why(tmp_path, capsys):
    args = ["--device", "cuda:7", "--out", str(tmp_path / "x")]
    assert session.main(args) == 2
    assert "'cuda:7' is not usable here" in capsys.readouterr().err
    assert not Path(tmp_path / "x").exists()


def test_a_failed_row_fails_its_session_but_not_the_other_rows(
    tmp_path, capsys, monkeypatch
):
    def broken() -> None:
        raise MemoryError("planted")

    rows = (
        ("matmul_fp32", broken),
        ("h2d", dict(bench.core_suite(device=hardware.cpu_device()))["h2d"]),
    )
    monkeypatch.setattr("gpu_lab.bench.core_suite", lambda **_: rows)
    monkeypatch.setenv("GPU_LAB_RUNS", str(tmp_path))
    assert session.main(["--device", "cpu", "--out", str(tmp_path)]) == 1
    assert "matmul_fp32 failed: MemoryError: planted" in capsys.readouterr().err
    (saved,) = store.load_folder(tmp_path)
    assert [m.name for m in saved.measurements] == ["matmul_fp32", "h2d"]


@pytest.fixture
def torchless(tmp_path):
    """A call of gpu-lab on a machine whose torch does not load."""
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so: planted')")

    def call(*args: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "gpu_lab.cli", *args],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return call


def test_doctor_and_detect_work_with_a_broken_torch(torchless):
    ended = torchless("doctor")
    assert ended.returncode in (0, 1), ended.stderr
    assert "ImportError: libcudart.so: planted" in ended.stdout
    assert "pip install -r " in ended.stdout
    assert torchless("detect").returncode == 0


def test_a_row_that_failed_says_why_and_is_a_finding(torchless):
    ended = torchless("bench", "matmul_fp32", "--device", "cpu")
    assert ended.returncode == 1
    assert "failed: ImportError: libcudart.so: planted" in ended.stdout
    assert "Traceback" not in ended.stderr


def test_bench_goes_on_until_there_are_as_many_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("gpu_lab.bench.suite.CPU_PLAN", timing.Plan(rounds=12))
    made = []

    def stopped(**given: object) -> str:
        made.append(given["names"])
        raise KeyboardInterrupt

    monkeypatch.setattr("gpu_lab.course.fresh.session", stopped)
    args = ["bench", "host_copy", "--device", "cpu", "--out", str(tmp_path / "a")]
    assert cli.main([*args, "--sessions", "3"]) == 130
    assert "1 of 3 sessions kept; the same command goes on" in capsys.readouterr().err
    monkeypatch.setattr("gpu_lab.course.fresh.session", lambda **_given: "")
    assert cli.main([*args, "--sessions", "2"]) == 0
    assert made == [("host_copy",)]
    assert "sessions" in capsys.readouterr().out
    assert cli.main([*args, "--sessions", "2"]) == 2
    assert "holds 2 whole sessions, wanted 2; choose" in capsys.readouterr().err
