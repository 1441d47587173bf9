from __future__ import annotations

from collections.abc import Callable

import pytest

from gpu_lab import units
from gpu_lab.records import GpuLabError

CASES: list[tuple[Callable[..., str], float | None, str]] = [
    (units.number, 0, "0.0"),
    (units.number, 1, "1.0"),
    (units.number, 12.345, "12.3"),
    (units.number, 99.99, "100"),
    (units.number, 100, "100"),
    (units.number, 1234.5, "1234"),
    (units.number, 1.5e7, "15000000"),
    (units.number, 0.00012345, "0.000123"),
    (units.number, 5e-05, "0.0000500"),
    (units.number, -0.25, "-0.25"),
    (units.seconds, 0, "0.0 ns"),
    (units.seconds, 1.5e-9, "1.5 ns"),
    (units.seconds, 2.5e-6, "2.5 µs"),
    (units.seconds, 0.0123, "12.3 ms"),
    (units.seconds, 1, "1.0 s"),
    (units.seconds, 300, "300 s"),
    (units.bandwidth, 12.3e9, "12.3 GB/s"),
    (units.bandwidth, 5e5, "0.0005 GB/s"),
    (units.flops, 5e9, "0.005 TFLOPS"),
    (units.flops, 989.4e12, "989 TFLOPS"),
    (units.power, 31.5, "31.5 W"),
    (units.temperature, 46, "46.0 °C"),
    (units.clock, 1410, "1410 MHz"),
    (units.ratio, 1.94, "1.9x"),
    (units.ratio, 0.4321, "0.43x"),
    (units.percent, 0.1234, "12.3 %"),
    (units.size, 0, "0 B"),
    (units.size, 64 * 2**20, "64 MiB"),
    (units.size, 1536, "1.5 KiB"),
    (units.size, 2**30, "1 GiB"),
    (units.memory, 512.3 * 2**20, "512.3 MiB"),
    (units.memory, 1000, "1000 B"),
    (units.duration, 45.2, "45 s"),
    (units.duration, 59.7, "1 min 00 s"),
    (units.duration, 125, "2 min 05 s"),
]


@pytest.mark.parametrize(("show", "value", "text"), CASES)
def test_text(show: Callable[..., str], value: float | None, text: str) -> None:
    assert show(value) == text


@pytest.mark.parametrize(
    "show",
    [
        units.seconds,
        units.bandwidth,
        units.flops,
        units.power,
        units.temperature,
        units.clock,
        units.ratio,
        units.percent,
        units.size,
        units.memory,
    ],
)
def test_none_is_not_available(show: Callable[..., str]) -> None:
    assert show(None) == "n/a"


@pytest.mark.parametrize("exponent", range(-12, 13))
def test_never_an_exponent(exponent: int) -> None:
    for mantissa in (1, 1.2345, 9.996):
        text = units.number(mantissa * 10.0**exponent)
        assert "e" not in text
        assert float(text) == pytest.approx(mantissa * 10.0**exponent, rel=0.01)


def test_legend_names_all_conventions() -> None:
    for word in ("GB/s", "TFLOPS", "MiB"):
        assert word in units.LEGEND


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("8GiB", 8 * 2**30), ("24 GB", 24 * 10**9), ("1.5gib", 3 * 2**29)],
)
def test_sizes_are_read(text: str, size_bytes: int) -> None:
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["8", "GiB", "0GiB", "-1GiB", "1.2.3GiB", "8kib"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(GpuLabError, match="wanted a size such as 8GiB"):
        units.parse_size(text)
