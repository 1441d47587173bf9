from __future__ import annotations

import dataclasses
import json
import math

import pytest

from gpu_lab import records
from gpu_lab.records import (
    Device,
    GpuLabError,
    Ladder,
    Machine,
    Measurement,
    Rung,
    Session,
    Source,
)


def row(*times: float, **fields: object) -> Measurement:
    """A measured row with these times."""
    given: dict[str, object] = {"source": Source.MEASURED, "times_s": times, **fields}
    return Measurement(name="row", device="cpu", **given)  # type: ignore[arg-type]


def test_statistics_are_properties_of_the_raw_times() -> None:
    found = row(0.2, 0.1, 0.3, 0.4, work=2e9, work_unit="byte")
    assert found.median_s == 0.25
    assert found.iqr_s == pytest.approx(0.15)
    assert found.noisy
    assert found.rate == 8e9
    assert found.gb_per_s == 8
    assert found.tflops is None


def test_one_sample_has_no_spread() -> None:
    found = row(0.5, work=1e12, work_unit="FLOP")
    assert found.iqr_s == 0
    assert not found.noisy
    assert found.tflops == 2
    assert found.gb_per_s is None


def test_noisy_begins_above_the_named_threshold() -> None:
    assert not row(1.0, 1.0, 1.0 + records.NOISY, 1.0 + records.NOISY).noisy
    assert row(1.0, 1.0, 1.3, 1.3).noisy


@pytest.mark.parametrize(
    "fields",
    [
        {"times_s": ()},
        {"times_s": (0.0,)},
        {"times_s": (-1.0,)},
        {"times_s": (math.nan,)},
        {"times_s": (math.inf,)},
        {"times_s": (1.0,), "cpu_times_s": (-0.1,)},
        {"times_s": (1.0,), "cpu_times_s": (math.nan,)},
        {"times_s": (1.0, 2.0), "cpu_times_s": (0.1,)},
        {"source": Source.NOT_MEASURABLE},
        {"source": Source.NOT_MEASURABLE, "times_s": (1.0,), "reason": "no GPU"},
        {"source": Source.SIMULATED, "times_s": ()},
    ],
)
def test_impossible_rows_are_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"^row: "):
        row(**fields)


def test_not_measurable_has_a_reason_and_no_number(cpu: Device) -> None:
    found = Measurement.not_measurable("launch", device=cpu, reason="needs a GPU")
    assert not found.available
    assert found.reason == "needs a GPU"
    assert (found.median_s, found.iqr_s, found.rate) == (None, None, None)
    assert not found.noisy


@pytest.mark.parametrize(
    ("fields", "label", "torch_name"),
    [
        ({"backend": "cpu"}, "cpu", "cpu"),
        ({"backend": "mps"}, "mps", "mps"),
        ({"backend": "cuda", "index": 1}, "cuda:1", "cuda:1"),
        ({"backend": "rocm"}, "rocm:0", "cuda:0"),
        ({"backend": "xpu"}, "xpu:0", "xpu:0"),
        ({"backend": "cuda", "simulated": True}, "cuda:0", "cpu"),
    ],
)
def test_device_names(fields: dict[str, object], label: str, torch_name: str) -> None:
    device = Device(name="any", **fields)  # type: ignore[arg-type]
    assert (device.label, device.torch_name) == (label, torch_name)
    assert device.is_gpu == (label != "cpu")


def test_machine_finds_its_devices(machine: Machine) -> None:
    gpu = Device(backend="cuda", name="lost one", lost="fell off the bus")
    both = dataclasses.replace(machine, devices=(*machine.devices, gpu))
    assert both.gpus == (gpu,)
    assert both.device("cuda:0") is gpu
    with pytest.raises(GpuLabError, match="no device 'xpu:0' here; found: cpu, cuda:0"):
        both.device("xpu:0")


def test_session_finds_its_rows(session: Session) -> None:
    assert session.measurement("host_copy") is session.measurements[0]
    with pytest.raises(GpuLabError, match="no measurement 'x' in core; found: host_"):
        session.measurement("x")


def ladder(*answers: str) -> Ladder:
    """A ladder with these answers, bottom first."""
    rungs = (
        Rung(name=f"rung {i}", question="?", answer=a, evidence="")
        for i, a in enumerate(answers, 1)
    )
    return Ladder(rungs=tuple(rungs))


@pytest.mark.parametrize(
    ("answers", "failed", "height"),
    [
        (("yes", "yes", "yes"), None, 3),
        (("no", "no", "yes"), "rung 1", 0),
        (("yes", "cannot tell", "no"), "rung 3", 1),
        (("yes", "cannot tell", "yes"), None, 1),
        (("yes", "no", "yes"), "rung 2", 1),
    ],
)
def test_ladder(answers: tuple[str, ...], failed: str | None, height: int) -> None:
    found = ladder(*answers)
    assert (found.first_failed.name if found.first_failed else None) == failed
    assert found.height == height


@pytest.mark.parametrize("source", [Source.MEASURED, Source.RECORDED])
def test_the_stand_in_cannot_call_itself_measured(
    session: Session, stand_in: Device, source: Source
) -> None:
    machine = dataclasses.replace(
        session.machine, devices=(*session.machine.devices, stand_in)
    )
    faked = dataclasses.replace(row(1.0), name="faked", device=stand_in.label)
    faked = dataclasses.replace(faked, source=source)
    rows = (*session.measurements, faked)
    mixed = dataclasses.replace(session, machine=machine, measurements=rows)
    assert mixed.mislabelled() == ["faked"]
    honest = dataclasses.replace(faked, source=Source.SIMULATED)
    assert dataclasses.replace(mixed, measurements=(honest,)).mislabelled() == []


def test_plain_is_ready_for_json(session: Session) -> None:
    tree = json.loads(json.dumps(records.plain(session)))
    assert tree["format"] == "gpu_lab.session"
    assert tree["measurements"][0]["source"] == "MEASURED"
    assert tree["measurements"][0]["times_s"] == [0.5, 0.25, 0.25]
    assert tree["machine"]["devices"][0]["name"] == "Test CPU"


def test_records_are_frozen(session: Session) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        session.seed = 1  # type: ignore[misc]
