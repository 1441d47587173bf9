"""Seconds from planted rates, losses from planted links, digits from errors."""

from __future__ import annotations

from collections import Counter

import pytest

from gpu_lab import facts, fit, units
from gpu_lab.bench import ceiling
from gpu_lab.course import fitting
from gpu_lab.fit import speed
from gpu_lab.fit.work import CONV, MATMUL, MOVE, Op
from gpu_lab.records import Device, GpuLabError, Measurement, Source


def planted(*, more: dict | None = None, **given) -> fit.Speed:
    rates = {(MATMUL, "float32"): [(1e3, 1e9), (1e9, 1e12)], (MOVE, ""): [(1.0, 1e9)]}
    all_rates = rates | (more or {})
    start = {"start_s": 0.0, "queues": False, "factor": 2.0}
    return fit.Speed(**{"name": "x", "rates": all_rates, **start, **given})


def row(name: str, *, unit: str, work: float | None, **settings) -> Measurement:
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


def test_convolutions_have_their_own_rate_or_that_of_products() -> None:
    work = Counter({Op(CONV, "float32", 10**9, 1): 1})
    assert planted().step_s(work) == pytest.approx(1e-3)
    own = {(CONV, "float32"): [(1.0, 1e10)]}
    assert planted(more=own).step_s(work) == pytest.approx(0.1)


def test_speed_of_cards() -> None:
    found = speed.of_card(ceiling.card("NVIDIA GeForce RTX 3090"))
    assert found is not None
    peak = ceiling.peak("NVIDIA GeForce RTX 3090", dtype="float32").value or 0.0
    ((_, rate),) = found.rates[MATMUL, "float32"]
    given = facts.settings("fit")["card"]
    assert rate == pytest.approx(given["arithmetic"] * peak)
    assert found.rates[CONV, "float32"] == found.rates[MATMUL, "tf32"]
    assert found.rates[MOVE, ""][0][1] == pytest.approx(given["memory"] * 936.2e9)
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
        row("matmul", unit="FLOP", work=2e9, dtype="float32"),  # of another session
        row("conv_float32_14", unit="FLOP", work=3e9, dtype="float32", operators=3),
        row("host_copy", unit="byte", work=4e9),
        row("h2d", unit="byte", work=1e3),  # not memory
        row("launch", unit="", work=None),
    ]
    found = fit.of_rows("run", rows, queues=False)
    assert {key: found.rates[key] for key in found.rates if key[0] != "link"} == {
        (MATMUL, "float32"): [(2e9, 4e9)],
        (CONV, "float32"): [(1e9, 6e9)],
        (MOVE, ""): [(4e9, 8e9)],
    }
    words = facts.settings("fit")
    assert found.factor == words["run"]["factor"]
    few = [r for r in rows if not r.name.startswith("conv")]
    assert fit.of_rows("run", few, queues=False).factor == words["card"]["factor"]
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
    row = facts.link(name)
    low, high = fit.link_rates(row)
    assert row["link"] == found
    assert 0 < low <= high


@pytest.mark.parametrize(
    ("name", "words"),
    [("oculink", "several links 'oculink'"), ("teapot", "no link 'teapot'")],
)
def test_links_that_are_none_or_many(name: str, words: str) -> None:
    with pytest.raises(GpuLabError, match=words):
        facts.link(name)


def test_weights_that_stay_lose_nothing_and_weights_that_cross_lose_much() -> None:
    published = {"h2d_gb_s_min": "2.0", "h2d_gb_s_max": "2.0"}
    slow = {**facts.link("thunderbolt4"), **published}
    slot = fit.link_rates(facts.link("pcie4x16"))[1]
    none = fit.slowdown(64, 0.05, factor=2.0, link=slow)
    assert none == pytest.approx((1.0, 1.0), abs=1e-5)
    least, most = fit.slowdown(40e6, 0.05, factor=2.0, link=slow)
    assert least == 1.0  # 20 ms behind 25 to 100 ms
    assert most == pytest.approx((0.025 + 0.02) / (0.025 + 40e6 / slot))
    least, most = fit.slowdown(2e12, 0.05, factor=2.0, link=slow)
    assert least == pytest.approx(slot / 2e9, rel=0.01)
    assert most == pytest.approx(slot / 2e9, rel=0.01)


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


def prediction(**ops: int) -> fit.Prediction:
    sizes = dict.fromkeys(
        ("parameters", "gradients", "optimizer", "activations", "temporaries"), 1
    )
    moved = Op(MOVE, "float32", 0, ops.get("moved", 43_200_000))
    product = Op(MATMUL, "bfloat16", ops.get("flop", 0), 1)
    return fit.Prediction(work=Counter([moved, product]), link_bytes=64, **sizes)


def test_the_interval_stands_beside_the_estimate() -> None:
    (text,) = fitting.speed_lines(prediction(), fit.Setting(), planted(), 0.0, None)
    assert text.startswith("step: about 40 ms, within 20 ms to 90 ms (")
    (text,) = fitting.speed_lines(
        prediction(flop=9), fit.Setting(), planted(), 0.0, None
    )
    assert text.startswith("step: n/a, no rate for one of its dtypes")
