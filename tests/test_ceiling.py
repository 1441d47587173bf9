"""Ceilings against published figures, and what is said above them."""

from __future__ import annotations

import pytest

from gpu_lab import facts
from gpu_lab.bench import ceiling
from gpu_lab.records import Ceiling, CeilingKind, Device, GpuLabError

DERIVED = CeilingKind.DERIVED


@pytest.mark.parametrize(
    ("card", "dtype", "accumulate", "tflops"),
    [
        ("NVIDIA A100-SXM4-40GB", "float16", "float32", 312),
        ("NVIDIA A100-SXM4-40GB", "tf32", "float32", 156),
        ("NVIDIA A100-SXM4-40GB", "float32", "float32", 19.5),
        ("NVIDIA H200", "bfloat16", "float32", 989),
        ("NVIDIA H100 80GB HBM3", "float16", "float32", 989),
        ("NVIDIA GeForce RTX 3080", "float32", "float32", 29.8),
        ("NVIDIA GeForce RTX 3080", "float16", "float32", 59.5),
        ("NVIDIA GeForce RTX 4090", "float16", "float32", 165.2),
        ("NVIDIA GeForce RTX 4090", "float16", "float16", 330.3),
    ],
)
def test_peaks_of_data_sheets(
    card: str, dtype: str, accumulate: str, tflops: float
) -> None:
    found = ceiling.peak(card, dtype=dtype, accumulate=accumulate)
    assert found.kind is DERIVED
    assert (found.value or 0) / 1e12 == pytest.approx(tflops, rel=0.01)
    assert " SM x " in found.how


def test_every_formula_is_near_the_column_beside_it() -> None:
    """The H100 PCIe is sold by a clock below its boost: 8 % apart."""
    for row in facts.table("gpus"):
        text = row["tensor_fp16_bf16_fp32acc_dense_tflops"]
        found = ceiling.peak(row["name"], dtype="float16")
        if text and found.value:
            assert found.value / 1e12 == pytest.approx(float(text), rel=0.09), row


def test_the_clock_of_the_run_replaces_the_data_sheets() -> None:
    run = ceiling.peak("NVIDIA H200", dtype="bfloat16", clock_mhz=1980)
    assert (run.value or 0) / 1e12 == pytest.approx(1070, rel=0.01)


@pytest.mark.parametrize("card", ["AMD Radeon RX 7900 XTX", "Apple M3 Max"])
def test_cards_without_a_formula_are_not_known(card: str) -> None:
    assert ceiling.peak(card, dtype="float32") is ceiling.UNKNOWN


def test_no_bfloat16_before_ampere() -> None:
    assert ceiling.peak("Tesla T4", dtype="bfloat16") is ceiling.UNKNOWN
    assert ceiling.peak("Tesla T4", dtype="float16").value


def test_an_unknown_card_is_one_line() -> None:
    with pytest.raises(GpuLabError, match=r"no card 'Voodoo 2' in data/gpus.csv"):
        ceiling.card("Voodoo 2")


@pytest.mark.parametrize(
    ("generation", "lanes", "gb_per_s"),
    [(3, 4, 3.6), (4, 4, 7.2), (4, 8, 14.4), (4, 16, 28.8), (5, 16, 57.7), (1, 4, 0.9)],
)
def test_pcie(generation: int, lanes: int, gb_per_s: float) -> None:
    found = ceiling.pcie(generation, lanes)
    assert (found.value or 0) / 1e9 == pytest.approx(gb_per_s, rel=0.02)
    small = ceiling.pcie(generation, lanes, payload_bytes=128)
    assert (small.value or 0) < (found.value or 0)


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (0.5, "50.0 %"),
        (1.0, "100.0 %"),
        (1.0199, "102.0 %"),
        (1.0201, "ceiling or measurement wrong"),
        (50.0, "ceiling or measurement wrong"),
        (None, "n/a"),
    ],
)
def test_share_of_a_ceiling(measured: float | None, text: str) -> None:
    one = Ceiling(value=1.0, kind=DERIVED, how="planted")
    assert ceiling.share(measured, one) == text
    assert ceiling.share(measured, ceiling.UNKNOWN) == "n/a"


def test_a_cpu_has_only_what_it_has_shown(cpu: Device, stand_in: Device) -> None:
    for device in (cpu, stand_in):
        assert ceiling.arithmetic(device, dtype="float32") is ceiling.UNKNOWN
        assert ceiling.memory(device) is ceiling.UNKNOWN
    assert ceiling.measured_best(None, how="") is ceiling.UNKNOWN
    assert ceiling.measured_best(2.0, how="x").kind is CeilingKind.MEASURED


def test_a_gpu_that_the_table_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "_properties", lambda device: None)
    odd = Device(backend="cuda", name="NVIDIA of tomorrow")
    known = Device(backend="cuda", name="NVIDIA H200")
    assert ceiling.arithmetic(odd, dtype="float32") is ceiling.UNKNOWN
    assert ceiling.memory(odd) is ceiling.UNKNOWN
    assert ceiling.memory(known).kind is CeilingKind.DATASHEET
    assert ceiling.memory(known).value == 4800e9


def test_memory_by_clock_and_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    class Properties:
        memory_clock_rate, memory_bus_width = 3_996_000, 8192  # B200, as torch tells

    monkeypatch.setattr(ceiling, "_properties", lambda device: Properties)
    found = ceiling.memory(Device(backend="cuda", name="NVIDIA B200"))
    assert found.kind is DERIVED
    assert (found.value or 0) / 1e12 == pytest.approx(8.18, rel=0.01)
