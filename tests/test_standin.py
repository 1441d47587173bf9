"""The GPU branch of the notebooks without a GPU, on the replayed stand-in.

Driver answers are replayed, the clock is simulated (figures 100 times larger), tensors
lie on the CPU, the device has another name. All it writes is SIMULATED.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from authoring import prepare

from gpu_lab import bench, cli, hardware, store
from gpu_lab.course import manifest
from gpu_lab.hardware import nvml
from gpu_lab.records import Source

ROOT = Path(__file__).parent.parent
REPLAY = ROOT / "tests/fixtures/standin/nvml.json"


@pytest.fixture
def standin(monkeypatch, tmp_path):
    monkeypatch.setenv(nvml.REPLAY_VARIABLE, str(REPLAY))
    monkeypatch.setenv(store.ROOT_VARIABLE, str(tmp_path / "runs"))
    monkeypatch.delenv(store.OUT_VARIABLE, raising=False)
    return tmp_path / "run"


def test_a_whole_run_takes_the_gpu_branch_and_is_simulated(standin, capsys):
    args = ["run", "00", "--device", "cuda", "--sessions", "1", "--out", str(standin)]
    assert cli.main(args) == 0, capsys.readouterr()
    assert [s.state for s in manifest.load(standin).steps] == ["ok", "ok"]
    core, lesson = sorted(store.load_folder(standin), key=lambda s: s.suite != "core")
    for session in (core, lesson):
        assert session.device == "cuda:0"
        assert session.machine.device("cuda:0").simulated
        sources = {m.name: m.source for m in session.measurements}
        assert set(sources.values()) == {Source.SIMULATED}, sources
    assert [m.name for m in core.measurements] == list(bench.CORE)
    assert lesson.ladder.height == 6
    journal = (store.runs_root() / store.JOURNAL).read_text()
    # Core rows; five arms of notebook 00, each prepared and run; its two copies.
    assert journal.count('"starting"') == journal.count('"ended"') == 8 + 2 * 5 + 2
    report = (standin / "report.html").read_text()
    assert "[SIMULATED]" in report
    assert "MEASURED</td>" not in report.replace("NOT MEASURED</td>", "")
    assert "Everything that was asked for could be measured" in report


def test_nbval_passes_on_the_stand_in_copy(standin, tmp_path):
    out = tmp_path / "check"
    prepare.prepare(("00",), device="cuda", profile="quick", seed=0, out=out)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env"),
            *("--nbval-cell-timeout", "120", "-p", "no:cacheprovider", str(out)),
        ],
        cwd=ROOT,
        env=os.environ | {store.OUT_VARIABLE: str(standin), "GPU_LAB_PROGRESS": "0"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    (session,) = store.load_folder(standin)
    assert session.machine.device(session.device).simulated


def test_what_the_stand_in_measures_cannot_be_saved_as_measured(standin):
    machine = hardware.detect()
    gpu = hardware.choose(machine, "cuda")
    lab = store.open_session(
        "core", machine, gpu, profile="quick", seed=0, folder=standin
    )
    row = lab.measure("matmul", bench.matmul, 8, device=gpu)
    before = lab.path.read_bytes()
    forged = replace(row, source=Source.MEASURED)
    with pytest.raises(store.StoreError, match="called MEASURED; wanted SIMULATED"):
        lab.add(forged)
    assert lab.path.read_bytes() == before
