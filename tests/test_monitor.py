"""The monitor: fields n/a, a lost GPU, threads that end, a log, a widget, a picture."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_lab import cli, doctor, monitor, plot, show
from gpu_lab.hardware import nvml
from gpu_lab.monitor import live

FIXTURES = Path(__file__).parent / "fixtures" / "standin"
GOOD = json.loads((FIXTURES / "nvml.json").read_text())
FIELDS = {"busy_percent", "waits_percent", "memory_bytes", "power_w"} | {
    *("temperature_c", "clock_mhz", "reasons")
}


@pytest.fixture
def driver(replay: Callable[[Path], None], tmp_path: Path) -> Callable[..., None]:
    """Call it with answers that differ from those of the good stand-in."""

    def use(**changed: Any) -> None:
        answers = GOOD["nvml"] | {f"nvmlDeviceGet{k}": v for k, v in changed.items()}
        path = tmp_path / "driver.json"
        path.write_text(json.dumps({"nvml": answers}))
        replay(path)

    return use


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "monitor"]


def test_without_a_gpu_the_host_is_told() -> None:
    sample = monitor.Reader().read(link=True)
    assert sample["gpus"] == []
    assert sample["source"] == "MEASURED"
    assert 0 <= sample["cpu_percent"] <= 100
    assert sample["process_bytes"] > 0
    host, gpu = monitor.lines(sample)
    assert host.startswith("host   CPU ")
    assert gpu == "GPU    n/a"


@pytest.mark.usefixtures("stand_in")
def test_what_a_driver_does_not_tell_is_none() -> None:
    sample = monitor.Reader().read(link=True)
    (gpu,) = sample["gpus"]
    assert sample["source"] == "SIMULATED"
    assert set(gpu) == {*FIELDS, "index", "lost", *monitor.reading.COUNTERS}
    assert (gpu["busy_percent"], gpu["waits_percent"]) == (None, None)
    assert gpu["link_sent_bytes_per_s"] is None
    assert (gpu["power_w"], gpu["temperature_c"], gpu["clock_mhz"]) == (31.5, 46, 1410)
    assert gpu["reasons"] == ["gpu_idle: Active"]
    text = monitor.lines(sample)[1]
    assert text.startswith("GPU 0  busy n/a, waits n/a, 512.0 MiB, 31.5 W, 46.0 °C")
    assert text.endswith("1410 MHz, sent n/a, rece n/a, held by gpu_idle")


def test_what_it_tells(driver: Callable[..., None]) -> None:
    told = {
        "UtilizationRates(0)": {"gpu": 93, "memory": 40},
        "PcieThroughput(0, 0)": 1500,
        "CurrentClocksEventReasons(0)": 0x44,
    }
    driver(**told)
    reader = monitor.Reader()
    (gpu,) = reader.read(link=True)["gpus"]
    assert (gpu["busy_percent"], gpu["waits_percent"]) == (93, 7)
    assert gpu["link_sent_bytes_per_s"] == 1_500_000
    assert gpu["reasons"] == ["sw_power_cap: Active", "hw_thermal_slowdown: Active"]
    assert "link_sent_bytes_per_s" not in reader.read()["gpus"][0]  # takes 20 ms


def test_an_idle_gpu_is_busy_0_percent_and_held_by_nothing(
    driver: Callable[..., None],
) -> None:
    driver(
        **{
            "UtilizationRates(0)": {"gpu": 0, "memory": 0},
            "CurrentClocksEventReasons(0)": 0,
        }
    )
    sample = monitor.Reader().read()
    assert sample["gpus"][0]["waits_percent"] == 100
    assert sample["gpus"][0]["reasons"] == []
    assert "busy 0.0 %" in monitor.lines(sample)[1]


def test_a_gpu_that_gets_lost_is_shown_and_the_rest_goes_on(
    driver: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    second = {
        f"{k[13:].replace('(0', '(1')}": v for k, v in GOOD["nvml"].items() if "(0" in k
    }
    driver(**second, **{"Count()": 2})
    reader = monitor.Reader()
    assert [gpu["lost"] for gpu in reader.read()["gpus"]] == ["", ""]
    driver(**second, **{"Count()": 2, "MemoryInfo(0)": "lost"})
    asked: list[str] = []
    query = nvml.query
    monkeypatch.setattr(
        nvml, "query", lambda f, *given: (asked.append(f), query(f, *given))[1]
    )
    lost, good = reader.read()["gpus"]
    assert "GPU is lost" in lost["lost"]
    assert (good["lost"], good["power_w"]) == ("", 31.5)
    before = len(asked)
    sample = reader.read()
    assert len(asked) - before < before  # the lost one is not asked again
    assert "lost: nvmlDeviceGetMemoryInfo" in monitor.lines(sample)[1]


@pytest.mark.parametrize("period_s", [0.02, 0.3])
def test_it_samples_stops_within_a_period_and_leaves_no_thread(period_s: float) -> None:
    watcher = monitor.Monitor(period_s).start()
    assert len(threads()) == 1
    time.sleep(3.5 * period_s)
    start = time.monotonic()
    watcher.stop()
    assert time.monotonic() - start <= period_s + 0.1
    assert threads() == []
    assert watcher.samples
    count = len(watcher.samples)
    time.sleep(2 * period_s)
    assert len(watcher.samples) == count


def test_a_driver_that_hangs_does_not_hold_up_the_end(
    driver: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = monitor.Monitor(0.05)
    monkeypatch.setattr(nvml, "LIMIT_S", 0.5)
    driver(**{"MemoryInfo(0)": "hangs"})
    watcher.start()
    time.sleep(0.2)
    start = time.monotonic()
    watcher.stop()
    assert time.monotonic() - start < 0.3
    for thread in threads():
        thread.join(5)
    assert threads() == []


def test_the_list_is_bounded_and_a_browser_is_told_at_most_4_times_a_second() -> None:
    told: list[Any] = []
    watcher = monitor.Monitor(0.01, tell=told.append)
    assert watcher.period_s == 0.25
    assert watcher.samples.maxlen == live.MOST
    watcher.start()
    time.sleep(0.9)
    watcher.stop()
    assert 1 <= len(told) <= 4


def test_headless_it_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with monitor.watch(0.05) as seen:
        time.sleep(0.2)
    said = capsys.readouterr()
    assert said.out == f"watched: {len(seen.samples)} samples\n"
    assert said.err == ""
    assert threads() == []


def test_it_ends_with_an_error_inside(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), monitor.watch(0.05):
        raise KeyboardInterrupt
    assert threads() == []
    assert capsys.readouterr().out == "watched: 0 samples\n"


def test_in_a_notebook_it_sets_one_trait_and_never_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ipywidgets import HTML

    view = HTML("")
    values: list[str] = []
    view.observe(lambda change: values.append(change["new"]), "value")
    monkeypatch.setattr(show, "quiet", lambda: False)
    monkeypatch.setattr(live, "_view", lambda: view)
    with monitor.watch(0.25):
        time.sleep(0.7)
    assert capsys.readouterr().out == ""
    assert 2 <= len(values) <= 4
    assert values[0].startswith("host   CPU")
    assert "<br>GPU    n/a" in values[0]
    assert values[-1].startswith("<figure><img alt=")


def test_the_picture_names_what_it_shows_and_a_lost_gpu(drawn: list[Any]) -> None:
    gpus = ({"busy_percent": 50, "lost": ""}, {"lost": "gone"})
    samples = [
        {
            "elapsed_s": i,
            "source": "SIMULATED",
            "cpu_percent": 10.0,
            "memory_percent": 20.0,
            "gpus": [{"index": 0, **gpu}],
        }
        for i, gpu in enumerate(gpus)
    ]
    shown = plot.watched(samples)
    (axes,) = drawn[0].axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["host CPU", "host memory", "GPU 0"]
    assert axes.get_xlabel() == "time (s)"
    assert axes.get_title() == "2 samples; GPU 0 was lost"
    assert shown.caption == "2 samples; GPU 0 was lost. SIMULATED."
    assert "nothing was watched" in plot.watched([]).caption


def test_a_log_of_the_terminal_is_read_by_the_doctor(
    driver: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver(**{"CurrentClocksEventReasons(0)": 0x20})
    log = tmp_path / "run.jsonl"
    assert cli.main(["monitor", "--log", str(log), "--seconds", "1.2"]) == 0
    assert capsys.readouterr().out == ""
    first, *_ = map(json.loads, log.read_text().splitlines())
    assert first["gpus"][0]["reasons"] == ["sw_thermal_slowdown: Active"]
    found = doctor.examine_file(str(log))
    assert "thermal-throttle" in {diagnosis.id for diagnosis in found.diagnoses}


def test_a_healthy_log_has_no_diagnosis(
    driver: Callable[..., None], tmp_path: Path
) -> None:
    driver()
    log = tmp_path / "run.jsonl"
    monitor.run(log=log, seconds=0.1)
    assert doctor.examine_file(str(log)).diagnoses == ()


def test_in_a_terminal_it_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["monitor", "--seconds", "0.1"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "GPU    n/a"


def test_a_log_that_cannot_be_written_is_one_line_and_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = str(tmp_path / "no" / "run.jsonl")
    assert cli.main(["monitor", "--log", log, "--seconds", "0.1"]) == 2
    assert "No such file" in capsys.readouterr().err
