"""The prepared run on a GPU machine, with the stand-in in the place of its GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STAND_IN = ROOT / "tests" / "fixtures" / "standin" / "nvml.json"


def check(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the script as `make gpu-check` does."""
    return subprocess.run(
        [sys.executable, str(ROOT / "requirements" / "gpu_check.py"), *options],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder of wheels of which nothing is needed: this Python has them all."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "nothing-1.0-py3-none-any.whl").write_bytes(b"")
    return folder


@pytest.mark.slow
def test_the_stand_in_runs_through_and_leaves_no_record(
    tmp_path: Path, wheels: Path
) -> None:
    packages = tmp_path / "none.txt"
    packages.write_text("")
    out = tmp_path / "out"
    run = check(
        *("--wheels", str(wheels), "--packages", str(packages), "--out", str(out)),
        *("--notebooks", "00", "--sessions", "1"),
        GPU_LAB_REPLAY=str(STAND_IN),
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "simulated device, so no record" in run.stdout
    assert len(list((out / "run" / "sessions").glob("core*.json"))) == 1
    assert (out / "run" / "report.html").is_file()
    assert not (out / "record").exists()


def test_no_wheels_is_one_line(tmp_path: Path) -> None:
    run = check("--wheels", str(tmp_path))
    assert run.returncode == 2
    assert "wanted: wheels in" in run.stderr
    assert "try: `make gpu-wheels`" in run.stderr


def test_too_many_wheels_is_one_line(wheels: Path) -> None:
    with (wheels / "large-1.0-py3-none-any.whl").open("wb") as file:
        file.truncate(61 * 2**20)
    run = check("--wheels", str(wheels))
    assert run.returncode == 2
    assert "wanted: at most 60 MiB of wheels; found: 61" in run.stderr


def test_a_python_without_torch_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    run = check(PYTHONPATH=str(tmp_path))
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "wanted: a Python that has torch; found: ImportError: no torch" in run.stderr
