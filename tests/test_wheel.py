"""The wheel works outside the checkout: data and notebooks travel in it."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A venv that holds the wheel, and sees this one's packages behind it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*build, "--outdir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    python = next((folder / "venv").glob("bin/python")).absolute()
    place = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            text=True,
        ).strip()
    )
    # A plain path line: packages of the outer venv, but not its editable gpu_lab.
    (place / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True)
    return folder, python


def call(installed, *args: str) -> subprocess.CompletedProcess:
    folder, python = installed
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("GPU_LAB", "PYTHON"))
    }
    return subprocess.run(
        [python, "-m", "gpu_lab.cli", *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_it_is_the_wheel_that_runs(installed):
    folder, python = installed
    code = "import gpu_lab; print(gpu_lab.__file__)"
    place = subprocess.check_output([python, "-c", code], cwd=folder, text=True)
    assert str(folder) in place


def test_detect_works_outside_the_checkout(installed):
    ended = call(installed, "detect")
    assert ended.returncode == 0, ended.stderr
    assert "processor" in ended.stdout


def test_doctor_names_a_file_that_exists(installed):
    ended = call(installed, "doctor")
    assert ended.returncode in (0, 1), ended.stderr
    line = next(x for x in ended.stdout.splitlines() if "pip install -r " in x)
    assert Path(line.split(" -r ")[1]).is_file()


def test_a_notebook_runs_outside_the_checkout(installed):
    folder, _python = installed
    ended = call(installed, "run", "00", "--device", "cpu", "--sessions", "0")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = (folder / "runs").iterdir()
    assert (run / "report.html").is_file()
    assert (run / "sessions/00_start_here.json").is_file()
