"""Evidence of the operating system, and flags that need their cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_lab.records import DeviceState
from gpu_lab.timing import Timing, flags, noise
from gpu_lab.timing.noise import Evidence
from gpu_lab.timing.samplers import Reading
from gpu_lab.timing.simulated import GPU_IDLE, HARDWARE_SLOWDOWN

SERIES = 200
STILL = Evidence(0.0, 0.0, 0.0, 0.0, 0, 0.0)


def after(**moved: Any) -> dict[str, float]:
    """Shares of one second in which these counters moved."""
    fields = {**vars(STILL), "wall_s": 1.0, **moved}
    return Evidence(**fields).since(STILL)


# -- evidence --


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Files of an operating system, to be changed."""
    (tmp_path / "schedstat").write_text("5000000000 2000000000 77\n")
    line = "some avg10=0.00 avg60=1.50 avg300=0.10 total=3000000\n"
    (tmp_path / "pressure").write_text(line + line.replace("some", "full"))
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 400 9 10\ncpu0 1 2 3\n")
    (tmp_path / "clock").write_text("2100000\n")
    names = {"SCHEDSTAT": "schedstat", "PRESSURE": "pressure", "STAT": "stat"}
    for constant, name in {**names, "CPU_CLOCK": "clock"}.items():
        monkeypatch.setattr(noise, constant, tmp_path / name)
    monkeypatch.setattr("os.sysconf", lambda _name: 100)
    return tmp_path


def test_counters_are_read_in_seconds(counters: Path) -> None:
    found = Evidence.now()
    assert (found.delay_s, found.pressure_s, found.steal_s) == (2.0, 3.0, 4.0)
    assert found.others_s >= 0
    assert found.since(found)["cpu_clock_mhz"] == 2100


@pytest.mark.parametrize("text", ["", "no numbers", "5"])
def test_what_is_not_told_is_left_out(counters: Path, text: str) -> None:
    for name in ("pressure", "stat", "clock"):
        (counters / name).unlink()
    (counters / "schedstat").write_text(text if text != "no numbers" else "")
    found = Evidence.now().since(Evidence.now())
    assert set(found) <= {"others_share", "involuntary_switches"}
    assert not noise.busy(found)


def test_shares_are_of_the_wall_time() -> None:
    found = after(delay_s=0.04, pressure_s=0.5, steal_s=0.11, switches=3, others_s=1.5)
    assert found["delay_share"] == 0.04
    assert found["pressure_share"] == 0.5
    assert found["steal_share"] == pytest.approx(0.1)  # one tick says nothing
    assert found["others_share"] == 1.5
    assert found["involuntary_switches"] == 3
    assert after(delay_s=-1.0)["delay_share"] == 0.0


@pytest.mark.parametrize(
    ("moved", "busy"),
    [
        ({}, False),
        ({"delay_s": 0.049}, False),
        ({"delay_s": 0.051}, True),
        ({"pressure_s": 0.099}, False),
        ({"pressure_s": 0.101}, True),
        ({"steal_s": 0.055}, False),
        ({"steal_s": 0.07}, True),
        ({"others_s": 2.0}, False),
        ({"switches": 1000}, False),
        ({"delay_s": None, "pressure_s": None, "steal_s": None}, False),
    ],
)
def test_busy_is_what_others_took(moved: dict[str, Any], busy: bool) -> None:
    assert noise.busy(after(**moved)) is busy


# -- which clock decides, and what waits --


@pytest.mark.parametrize(
    ("cpu_s", "shares", "decides", "waits"),
    [
        (1.0, {}, "wall", False),
        (0.981, {"delay_share": 0.019}, "wall", False),
        (0.97, {"delay_share": 0.03}, "cpu", False),
        (0.5, {"delay_share": 0.5}, "cpu", False),
        (0.5, {"steal_share": 0.5}, "cpu", False),
        (0.5, {"delay_share": 0.2, "steal_share": 0.25}, "cpu", False),
        (0.5, {"delay_share": 0.24}, "wall", True),  # mostly its own waiting
        (0.92, {}, "wall", False),
        (0.88, {}, "wall", True),
        (0.01, {}, "wall", True),
        (0.01, {"others_share": 0.9}, "wall", False),  # it waits for its own threads
        (0.5, {"delay_share": 0.5, "others_share": 0.06}, "wall", False),
        (0.5, {"delay_share": 0.5, "others_share": 0.04}, "cpu", False),
    ],
)
def test_which_clock_decides(
    cpu_s: float, shares: dict[str, float], decides: str, waits: bool
) -> None:
    readings = [Reading(1.0, cpu_s)] * 3
    assert flags.decides(readings, shares) == decides
    assert flags.waits(readings, shares) is waits


# -- what the samples say --


def series(seed: int, n: int, scatter: float = 0.05) -> Any:
    """Seeded times around one second, normal in their logarithms."""
    return np.exp(np.random.default_rng(seed).normal(0, scatter, n))


@pytest.mark.parametrize("n", [12, 18, 27, 60, 200, 1000])
def test_noise_of_one_heap_is_not_bimodal(n: int) -> None:
    raised = sum(flags.bimodal(series(seed, n)) for seed in range(SERIES))
    assert raised <= 1


@pytest.mark.parametrize("n", [12, 13, 27, 60, 1000])
@pytest.mark.parametrize("gap", [0.04, 0.3, 2.0])
def test_two_heaps_are_bimodal(n: int, gap: float) -> None:
    for seed in range(20):
        upper = np.exp(gap * (np.arange(n) // 2 % 2))
        assert flags.bimodal(upper * series(seed, n, scatter=gap / 15))


@pytest.mark.parametrize(
    ("times_s", "bimodal"),
    [
        ((1.0,) * 6 + (1.1,) * 6, True),
        ((1.0,) * 6 + (1.02,) * 6, False),  # too near each other to matter
        ((1.0,) * 11 + (2.0,), False),  # one outlier is no heap
        ((1.0,) * 5 + (2.0,) * 6, False),  # too few
        ((1.0,) * 60, False),
        ((1.0,) * 51 + (2.0,) * 9, False),  # less than a fifth
        ((1.0,) * 46 + (2.0,) * 14, True),
    ],
)
def test_a_heap_is_a_fifth_and_three_percent_away(
    times_s: tuple[float, ...], bimodal: bool
) -> None:
    assert flags.bimodal(times_s) is bimodal


@pytest.mark.parametrize("n", [12, 27, 60, 200])
def test_an_anchor_that_only_scatters_does_not_drift(n: int) -> None:
    raised = sum(
        flags.drift(series(seed, n), series(seed + SERIES, n)) for seed in range(SERIES)
    )
    assert raised <= 4


@pytest.mark.parametrize("n", [12, 27, 60, 200])
@pytest.mark.parametrize("towards", [0.7, 1.4])
def test_an_anchor_that_changes_its_pace_drifts(n: int, towards: float) -> None:
    pace = np.linspace(1, towards, n)
    for seed in range(20):
        assert flags.drift(pace * series(seed, n, 0.02), series(seed, n, 0.02))


def test_a_drift_below_the_half_width_does_not_matter() -> None:
    pace = np.linspace(1, 1.2, 27)
    steady = series(0, 27, 0.001)
    assert flags.drift(pace * steady, steady)
    assert not flags.drift(pace * steady, series(0, 27, 0.9))
    assert not flags.drift(np.linspace(1, 1.005, 27), steady)
    assert not flags.drift(pace[:11], steady[:11])  # too few rounds to say


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [
        (0, False),
        (None, False),
        (GPU_IDLE, False),
        (0x2 | 0x4, False),  # clocks set by the user, power limit: as it is built
        (HARDWARE_SLOWDOWN, True),
        (0x20, True),
        (0x40 | GPU_IDLE, True),
        (0x80, True),
    ],
)
def test_heat_and_failing_power_throttle(reasons: int | None, throttled: bool) -> None:
    calm, named = DeviceState(event_reasons=0), DeviceState(event_reasons=reasons)
    assert flags.throttled([calm, calm, named]) is throttled
    assert not flags.throttled([])


# -- all flags together --

CALM: dict[str, Any] = {"decided_by": "wall", "observed": {}, "states": ()}


def raised(*, launch_bound: int = 0, on_cpu: bool = True, **fields: Any) -> set[str]:
    """Flags of 12 quiet rounds in which only these things are not quiet."""
    hot = fields.pop("hot", False)
    times_s = tuple(series(0, 12, 0.001))
    given = {"times_s": times_s, "cpu_times_s": times_s, "anchor_s": times_s}
    timing = Timing(number_per_run=1, source=None, **{**given, **CALM, **fields})
    readings = [
        Reading(t, c, launch_bound=i < launch_bound)
        for i, (t, c) in enumerate(zip(timing.times_s, timing.cpu_times_s, strict=True))
    ]
    return set(flags.found(timing, readings, hot=hot, on_cpu=on_cpu))


SLOW = (DeviceState(event_reasons=HARDWARE_SLOWDOWN),)
HEAPS = tuple(series(0, 12, 0.001) * ([1.0, 1.5] * 6))
HALF = tuple(series(0, 12, 0.001) / 2)
BUSY = {"delay_share": 0.5}


@pytest.mark.parametrize(
    ("fields", "flag"),
    [
        ({"observed": BUSY}, "busy"),
        ({"observed": BUSY, "on_cpu": False}, "busy"),  # the host must queue in time
        ({"observed": BUSY, "decided_by": "events"}, None),
        ({"states": SLOW}, "throttled"),
        ({"states": SLOW, "decided_by": "events"}, "throttled"),
        ({"launch_bound": 7, "decided_by": "events"}, "launch-bound"),
        ({"launch_bound": 6, "decided_by": "events"}, None),
        ({"times_s": HEAPS, "cpu_times_s": HEAPS}, "bimodal"),
        ({"times_s": HEAPS, "decided_by": "cpu", "on_cpu": False}, None),
        ({"hot": True}, "hot-cache"),
        ({"anchor_s": tuple(np.linspace(1, 1.5, 12))}, "drifting"),
        ({"anchor_s": ()}, None),
        ({"cpu_times_s": HALF}, "waits"),
        ({"cpu_times_s": HALF, "on_cpu": False}, None),
        ({"cpu_times_s": HALF, "decided_by": "events", "on_cpu": False}, None),
        ({}, None),
    ],
)
def test_each_flag_by_its_cause_and_no_other(
    fields: dict[str, Any], flag: str | None
) -> None:
    assert raised(**fields) == ({flag} if flag else set())
