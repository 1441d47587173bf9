"""Predictions against closed forms, planted links and the simulated device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_lab import bench, facts, fit, timing
from gpu_lab.bench import LinkFit, ceiling
from gpu_lab.exercises import hardware_basics
from gpu_lab.records import (
    Ceiling,
    CeilingKind,
    Device,
    GpuLabError,
    Measurement,
    Source,
)
from gpu_lab.timing import Model

C, F, B = 1e11, 2e13, 2.8e9  # FLOP a second of CPU and GPU, bytes a second of the link
SIZES = (8, 64, 128, 256, 512, 1024)


def curve(flop_per_s: float) -> fit.Curve:
    """A device of constant rate."""
    times_s = tuple(2 * n**3 / flop_per_s for n in SIZES)
    return fit.Curve(Source.SIMULATED, SIZES, times_s)


def offload(rate: float = B, *, start_s: float = 0.0, uses: int = 1) -> fit.Offload:
    link = LinkFit(start_s, rate)
    return fit.Offload(name="x", product=curve(F), link=link, uses=uses)


def row(name: str, *, unit: str, work: float, **settings: int) -> Measurement:
    return Measurement(
        name=name,
        device="cpu",
        source=Source.MEASURED,
        times_s=(0.5,),
        work=work,
        work_unit=unit,
        settings=dict(settings),
    )


@pytest.mark.parametrize("rate", [B, 2 * B, 26e9])
def test_without_a_start_the_crossing_is_that_of_the_formula(rate: float) -> None:
    exact = 6 / (rate * (1 / C - 1 / F))
    cpu = curve(C)
    found = fit.break_even(cpu, offload(rate))
    assert found is not None
    assert found - 1 < exact * (1 + 1e-9)
    assert exact <= found


def test_a_narrower_link_moves_the_crossing_to_the_right() -> None:
    cpu = curve(C)
    rates = (26e9, 6.6e9, 2.8e9, 1e9)
    found = [fit.break_even(cpu, offload(rate, start_s=12e-6)) for rate in rates]
    assert all(found)
    assert found == sorted(found, key=lambda n: n or 0)
    assert len(set(found)) == len(found)


def test_no_crossing_up_to_a_size_and_none_for_a_slower_device() -> None:
    cpu = curve(C)
    assert fit.break_even(cpu, offload(1e9, start_s=1e-4), most=256) is None
    assert fit.break_even(curve(2 * F), offload()) is None


def test_a_gpu_that_always_wins_wins_from_the_smallest_known_size() -> None:
    assert fit.break_even(curve(1e6), offload(26e9)) == SIZES[0]


def test_a_single_early_win_is_not_a_break_even() -> None:
    cpu = fit.Curve(Source.MEASURED, (32, 64, 1024), (1.0, 1e-9, 1.0))
    assert fit.break_even(cpu, offload(), most=64) is None


def test_a_curve_goes_through_its_points_by_power_laws_and_beyond_by_n_cubed() -> None:
    cpu = curve(C)
    for n in (64, 200, 1024, 5000):
        assert cpu.time_s(n) == pytest.approx(2 * n**3 / C)
    assert cpu.time_s(4) == pytest.approx(cpu.time_s(8))  # a call costs something


def test_a_curve_of_rows_takes_medians_in_the_order_of_n_and_names_its_source() -> None:
    rows = [row(f"m{n}", unit="FLOP", work=1.0, n=n) for n in (256, 64)]
    missing = Measurement.not_measurable(
        "m", device=Device(backend="cpu", name="c"), reason="because"
    )
    found = fit.Curve.of([missing, *rows])
    assert found == fit.Curve(Source.MEASURED, (64, 256), (0.5, 0.5))
    with pytest.raises(GpuLabError, match="rows with times"):
        fit.Curve.of([missing])


def test_the_way_back_and_both_starts_are_counted() -> None:
    at = offload(B, start_s=1e-5)
    assert at.link_s(1000) == pytest.approx(2e-5 + 12e6 / B)
    assert at.time_s(1000) == pytest.approx(at.link_s(1000) + 2e9 / F)


def test_data_that_stay_divide_the_link_by_their_uses() -> None:
    once = offload(B, start_s=1e-5)
    often = replace(once, uses=10_000)
    assert often.link_s(512) == pytest.approx(once.link_s(512) / 10_000)
    shares = [replace(once, uses=k).link_share(4096) for k in (1, 10, 100, 10_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert shares[-1] < 0.01


def test_links_are_cited_at_their_lowest_published_rate() -> None:
    found = fit.cited_link("Thunderbolt 4", start_s=1e-5)
    assert found == LinkFit(1e-5, 2.7e9)
    for name in ("Thunderbolt 9", "PCIe 1.0 x1"):  # unknown; nobody measured it
        with pytest.raises(GpuLabError, match="no link"):
            fit.cited_link(name, start_s=0.0)


def test_the_model_agrees_with_the_simulated_device() -> None:
    products = fit.Curve.of(bench.simulated_curve("matmul", SIZES))
    model = Model()
    link = LinkFit(model.link_start_s + model.gap_s, model.link_bytes_per_s)
    predicted = fit.Offload(name="x", product=products, link=link)
    for found in bench.simulated_curve("offload", SIZES):
        n = int(found.settings["n"])
        # A launch and the wait are not in the model: they matter for small products.
        assert found.median_s == pytest.approx(predicted.time_s(n), abs=5e-6, rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_server_link_crosses_and_slow_link_does_not_for_any_seed(seed: int) -> None:
    cpu = fit.Curve.of(hardware_basics.simulated_pair(seed)[0])
    server = Model(link_bytes_per_s=26e9)
    slow = Model(link_bytes_per_s=1e9, link_start_s=1e-4)
    reach = [
        fit.break_even(
            cpu,
            fit.Curve.of(
                bench.simulated_curve(
                    "offload", hardware_basics.SIZES, model=model, seed=seed
                )
            ),
            most=256,
        )
        for model in (server, slow)
    ]
    assert reach[0] is not None
    assert reach[1] is None


def test_simulated_curves_are_seeded_labelled_and_grow() -> None:
    first = bench.simulated_curve("offload", SIZES, seed=1)
    again = bench.simulated_curve("offload", SIZES, seed=1)
    assert [r.times_s for r in first] == [r.times_s for r in again]
    other = bench.simulated_curve("offload", SIZES, seed=2)
    assert [r.times_s for r in first] != [r.times_s for r in other]
    assert {r.source for r in first} == {Source.SIMULATED}
    assert [r.settings["n"] for r in first] == list(SIZES)
    medians = [r.median_s or 0.0 for r in first]
    assert medians == sorted(medians)


def test_the_offload_needs_a_link_and_runs_on_the_stand_in(
    cpu: Device, stand_in: Device
) -> None:
    arm = bench.offload_arm(64, device=cpu)
    assert (arm.name, arm.calls) == ("offload_64", ())
    assert arm.reason.startswith("needs a GPU")
    plan = timing.Plan(rounds=3)
    found = bench.measured(
        bench.offload_arm(64, device=stand_in), device=stand_in, plan=plan
    )
    assert found.source is Source.SIMULATED
    assert found.work == 2 * 64**3
    assert found.settings["n"] == 64


def test_intensity_of_products_triads_and_copies() -> None:
    product = row("matmul_600", unit="FLOP", work=2.0 * 600**3, n=600)
    assert fit.intensity(product) == 100
    assert fit.flop_per_s(product) == 2 * product.work  # type: ignore[operator]
    triad = row("triad", unit="byte", work=12e6)
    assert fit.intensity(triad) == 1 / 6
    assert fit.flop_per_s(triad) == pytest.approx(4e6)  # 2e6 FLOP in half a second
    copy = row("copy", unit="byte", work=8e6)
    assert (fit.intensity(copy), fit.flop_per_s(copy)) == (None, None)


def test_the_bound_is_the_lower_ceiling_and_keeps_its_kind() -> None:
    kind = CeilingKind.DERIVED
    memory = Ceiling(value=100e9, kind=CeilingKind.MEASURED, how="triad")
    peak = Ceiling(value=1e12, kind=kind, how="SM x clock")
    low, high = (fit.bound(at, memory=memory, peak=peak) for at in (2.0, 50.0))
    assert (low.value, low.kind) == (200e9, CeilingKind.MEASURED)
    assert (high.value, high.kind) == (1e12, kind)
    assert low.how == "memory: triad"
    assert high.how == "arithmetic: SM x clock"
    assert fit.bound(2.0, memory=ceiling.UNKNOWN, peak=peak) == peak


def test_power_left_in_a_box() -> None:
    assert fit.left_for_card_w(650, charging_w=100) == 550
    assert fit.left_for_card_w(650, charging_w=100, ports_w=15, own_w=10) == 525
    claim = facts.claim("C020")["correction"]
    assert "650 W" in claim
    assert "100 W" in claim
