"""Seconds from planted rates, losses from planted links, digits from errors."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from gpu_lab import facts, fit, units
from gpu_lab.bench import ceiling
from gpu_lab.fit import speed
from gpu_lab.fit.work import CONV, MATMUL, MOVE, Op
from gpu_lab.records import Device, GpuLabError, Measurement, Source

MEMORY = ((1.0, 1e9),)


def planted(**given) -> fit.Speed:
    rates = {(MATMUL, "float32"): ((1e3, 1e9), (1e9, 1e12))}
    start = {"start_s": 0.0, "queues": False}
    return fit.Speed(
        **{"name": "x", "rates": rates, "memory": MEMORY, **start, **given}
    )


def row(name: str, *, unit: str, work: float, **settings) -> Measurement:
    return Measurement(
        name=name,
        device="cpu",
        source=Source.MEASURED,
        times_s=(0.5,),
        work=work,
        work_unit=unit,
        settings=settings,
    )


def test_each_operator_takes_the_longer_of_arithmetic_and_memory() -> None:
    product = Op(MATMUL, "float32", 10**9, 1)
    moved = Op(MOVE, "float32", 0, 10**9)
    both = Op(MATMUL, "float32", 10**9, 10**9)
    there = planted()
    assert there.step_s(Counter({product: 2})) == pytest.approx(2e-3)
    assert there.step_s(Counter({moved: 1})) == pytest.approx(1.0)
    assert there.step_s(Counter({both: 1})) == pytest.approx(1.0)


def test_rates_follow_power_laws_between_their_points() -> None:
    there = planted()
    middle = Op(MATMUL, "float32", 10**6, 1)
    rate = 1e9 * 1000**0.5  # half way between 1e3 and 1e9
    assert there.step_s(Counter({middle: 1})) == pytest.approx(1e6 / rate)


def test_starts_are_added_on_a_processor_and_overlap_on_a_queue() -> None:
    work = Counter({Op(MOVE, "float32", 0, 10**9): 1, Op(MOVE, "float32", 0, 1): 3})
    assert planted(start_s=0.5).step_s(work) == pytest.approx(3.0)
    assert planted(start_s=0.1, queues=True).step_s(work) == pytest.approx(1.0)
    assert planted(start_s=0.5, queues=True).step_s(work) == pytest.approx(2.0)


def test_a_dtype_without_a_rate_has_no_time() -> None:
    work = Counter({Op(MATMUL, "bfloat16", 10**9, 1): 1})
    assert planted().step_s(work) is None
    assert "n/a" in speed.sentence(planted(), None)


def test_convolutions_have_their_own_rate_or_that_of_products() -> None:
    work = Counter({Op(CONV, "float32", 10**9, 1): 1})
    assert planted().step_s(work) == pytest.approx(1e-3)
    rates = {(CONV, "float32"): ((1.0, 1e10),)}
    assert planted(rates=rates).step_s(work) == pytest.approx(0.1)


def test_speed_of_cards() -> None:
    found = speed.of_card(ceiling.card("NVIDIA GeForce RTX 3090"))
    assert found is not None
    peak = ceiling.peak("NVIDIA GeForce RTX 3090", dtype="float32").value or 0.0
    ((_, rate),) = found.rates[MATMUL, "float32"]
    assert rate == pytest.approx(speed.ARITHMETIC_SHARE * peak)
    assert found.rates[CONV, "float32"] == found.rates[MATMUL, "tf32"]
    assert found.memory[0][1] == pytest.approx(speed.MEMORY_SHARE * 936.2e9)
    old = speed.of_card(ceiling.card("NVIDIA GeForce GTX 1080 Ti"))
    assert old is not None
    assert (MATMUL, "bfloat16") not in old.rates
    assert speed.of_card(ceiling.card("Apple M1 Pro")) is None
    known = [speed.of_card(r) for r in facts.table("gpus")]
    assert sum(there is not None for there in known) > 45


def test_speed_of_rows() -> None:
    missing = Measurement.not_measurable(
        "launch", device=Device(backend="cpu", name="c"), reason="because"
    )
    rows = [
        missing,
        row("matmul", unit="FLOP", work=2e9, dtype="float32"),
        row("conv_float32_14", unit="FLOP", work=1e9, dtype="float32"),
        row("host_copy", unit="byte", work=4e9),
        row("h2d", unit="byte", work=1e3),  # not memory
        row("launch", unit="", work=1.0),
    ]
    found = fit.of_rows("run", rows, queues=False)
    assert found.rates == {
        (MATMUL, "float32"): ((2e9, 4e9),),
        (CONV, "float32"): ((1e9, 2e9),),
    }
    assert found.memory == ((4e9, 8e9),)
    assert found.start_s == 0.5
    with pytest.raises(GpuLabError, match="wanted timed rows of products"):
        fit.of_rows("run", [missing], queues=False)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("thunderbolt4", "Thunderbolt 4"),
        ("Thunderbolt 5", "Thunderbolt 5"),
        ("pcie4x16", "PCIe 4.0 x16"),
        ("pcie 4.0 x4", "PCIe 4.0 x4"),
        ("oculink4x4", "OCuLink PCIe 4.0 x4"),
        ("OCuLink PCIe 3.0 x4", "OCuLink PCIe 3.0 x4"),
    ],
)
def test_links_by_name(name: str, found: str) -> None:
    rate = fit.link_rate(name)
    assert rate.name == found
    assert 0 < rate.low <= rate.high


@pytest.mark.parametrize(
    ("name", "words"),
    [("oculink", "several links 'oculink'"), ("teapot", "no link 'teapot'")],
)
def test_links_that_are_none_or_many(name: str, words: str) -> None:
    with pytest.raises(GpuLabError, match=words):
        fit.link_rate(name)


def test_weights_that_stay_lose_nothing_and_weights_that_cross_lose_much() -> None:
    slow, slot = (fit.Rate(name=n, low=r, high=r) for n, r in (("a", 2e9), ("b", 26e9)))
    given = {"step_s": 0.05, "factor": 2.0, "rate": slow, "slot": slot}
    none = fit.slowdown(64, **given)
    assert none.best == none.worst == pytest.approx(1.0, abs=1e-6)
    some = fit.slowdown(40e6, **given)  # 20 ms behind 25 to 100 ms
    assert some.best == 1.0
    assert some.worst == pytest.approx((0.025 + 0.02) / (0.025 + 40e6 / 26e9))
    much = fit.slowdown(26e9, **given)
    assert much.best == much.best == pytest.approx(13.0, rel=0.01)


@pytest.mark.parametrize(
    ("value", "factor", "text"),
    [
        (0.0432, 2.0, "40 ms"),
        (0.0432, 1.01, "43 ms"),
        (0.00123, 2.0, "1.2 ms"),
        (0.0996, 2.0, "100 ms"),
        (0.5, 1.5, "500 ms"),
        (12.3, 2.0, "12 s"),
        (37.0, 2.0, "40 s"),
        (None, 2.0, "n/a"),
    ],
)
def test_no_digit_more_than_the_error_leaves(value, factor: float, text: str) -> None:
    assert units.about(value, factor=factor) == text


def test_the_interval_stands_beside_the_estimate() -> None:
    text = speed.sentence(planted(factor=2.0), 0.0432)
    assert text.startswith("step: about 40 ms, 20 ms to 90 ms (")
    assert math.isclose(planted().factor, speed.CARD_FACTOR)
