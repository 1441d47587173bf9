"""What notebook 01 shows: the roofline, the link over sizes, the break-even chart."""

from __future__ import annotations

from typing import Any

from gpu_lab import bench, fit, plot
from gpu_lab.bench import LinkFit, ceiling
from gpu_lab.records import Ceiling, CeilingKind, Device, Measurement, Source

CPU = Device(backend="cpu", name="c")
MEMORY = Ceiling(value=10e9, kind=CeilingKind.MEASURED, how="triad")
PEAK = Ceiling(value=100e9, kind=CeilingKind.DERIVED, how="formula")
LINKS = ("PCIe 4.0 x16", "Thunderbolt 4", "Thunderbolt 3")
SIZES = (64, 256, 1024)


def row(name: str, *, unit: str, work: float, **settings: int) -> Measurement:
    return Measurement(
        name=name,
        device="cpu",
        source=Source.MEASURED,
        times_s=(1.0,),
        work=work,
        work_unit=unit,
        settings=dict(settings),
    )


def missing(name: str) -> Measurement:
    return Measurement.not_measurable(name, device=CPU, reason="needs a GPU")


def curve(flop_per_s: float, source: Source = Source.MEASURED) -> fit.Curve:
    return fit.Curve(source, SIZES, tuple(2 * n**3 / flop_per_s for n in SIZES))


def fan(*names: str, start_s: float = 1e-5) -> list[fit.Offload]:
    product = curve(2e13, Source.SIMULATED)
    links = [(name, fit.cited_link(name, start_s=start_s)) for name in names]
    return [fit.Offload(name=n, product=product, link=link) for n, link in links]


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_roofline_has_its_points_ceilings_and_kinds(drawn: list[Any]) -> None:
    triad = row("triad", unit="byte", work=9e9)
    products = [row(f"m{n}", unit="FLOP", work=5e10, n=n) for n in (6, 600)]
    shown = plot.roofline([triad, *products, missing("m9")], memory=MEMORY, peak=PEAK)
    (axes,) = drawn[0].axes
    assert axes.get_title() == "below 10.0 FLOP per byte the memory is the limit"
    assert axes.get_xlabel() == "FLOP per byte of memory"
    assert axes.get_ylabel() == "rate (TFLOPS)"
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    texts = [text.get_text() for text in axes.texts]
    assert {"triad", "6", "600"} <= set(texts)
    assert "memory 10.0 GB/s, measured" in texts
    assert "arithmetic 0.1 TFLOPS, derived" in texts
    assert "triad: 0.0015 TFLOPS, 90.0 % of its bound" in shown.alt
    assert "n = 600: 0.05 TFLOPS, 50.0 % of its bound" in shown.alt
    # A point above its bound is never given a percentage.
    assert "n = 6: 0.05 TFLOPS, ceiling or measurement wrong" in shown.alt
    assert "Points: MEASURED" in shown.caption


def test_all_points_lie_inside_the_roofline_picture(drawn: list[Any]) -> None:
    slow = row("m64", unit="FLOP", work=1e6, n=64)
    plot.roofline([slow], memory=MEMORY, peak=PEAK)
    (axes,) = drawn[0].axes
    low, high = axes.get_ylim()
    assert low < 1e6 / 1e12
    assert high > (PEAK.value or 0) / 1e12


def test_a_roofline_without_a_ceiling_says_so() -> None:
    unknown = ceiling.UNKNOWN
    shown = plot.roofline([missing("m")], memory=unknown, peak=unknown)
    assert "no ceiling is known" in shown.caption
    assert "Points: none" in shown.caption


def test_link_curves_label_their_source_and_hatch_what_is_cited(
    drawn: list[Any],
) -> None:
    sizes = (4096, 2**20, 2**26)
    rows = bench.simulated_curve("link", sizes)
    timed = [
        row(f"h{s}", unit="byte", work=1e9 * (i + 1), size_bytes=s)
        for i, s in enumerate(sizes)
    ]
    shown = plot.link_curves({"H2D": timed, "stand-in": rows}, cited=LINKS)
    (axes,) = drawn[0].axes
    assert axes.get_title() == "H2D: a copy of 4 KiB reaches 33.3 % of the best rate"
    assert axes.get_ylabel() == "rate (GB/s)"
    assert "size" in axes.get_xlabel()
    assert set(labels(axes)) == {
        "H2D, MEASURED",
        "stand-in, SIMULATED",
        *(f"{name}, CITED" for name in LINKS),
    }
    assert [line.get_linestyle() for line in axes.lines] == ["-", ":"]
    assert {patch.get_hatch() for patch in axes.patches} == {"//"}
    assert "Thunderbolt 4 CITED: 2.7 to 2.9 GB/s" in shown.alt
    assert "H2D MEASURED: 1.0 GB/s to 3.0 GB/s" in shown.alt


def test_a_link_that_cannot_be_timed_leaves_the_cited_bands(drawn: list[Any]) -> None:
    shown = plot.link_curves({"H2D": [missing("h2d")]}, cited=LINKS)
    assert "no copy could be timed here" in shown.caption
    assert drawn[0].axes[0].lines == [] or len(drawn[0].axes[0].lines) == 0
    assert len(drawn[0].axes[0].patches) == len(LINKS)


def test_the_break_even_chart_names_each_crossing_and_moves_right(
    drawn: list[Any],
) -> None:
    links, cpu = fan(*LINKS), curve(1e11)
    at = [fit.break_even(cpu, link) for link in links]
    shown = plot.break_even(cpu, links)
    (axes,) = drawn[0].axes
    title = f"narrower link: the crossing moves from n = {at[0]} to {at[-1]}"
    assert axes.get_title() == title
    assert axes.get_xlabel() == "rows and columns n"
    assert axes.get_ylabel() == "time (ms)"
    assert labels(axes)[0] == "CPU, MEASURED"
    assert labels(axes)[1:] == [
        f"{name}, CITED: wins from n = {n}" for name, n in zip(LINKS, at, strict=True)
    ]
    solid = [x for x in axes.lines if x.get_linestyle() == "-"]
    assert [x.get_label() for x in solid] == ["CPU, MEASURED"]
    rings = [x.get_xdata()[0] for x in axes.lines if len(x.get_xdata()) == 1]
    assert rings == at
    assert "CPU MEASURED; GPU: product SIMULATED, link as named" in shown.caption
    assert f"Thunderbolt 3: wins from n = {at[-1]}" in shown.alt


def test_a_chart_without_a_crossing_and_with_one_for_all() -> None:
    product = curve(2e13, Source.SIMULATED)
    link = LinkFit(1e-5, 1e9)
    one = fit.Offload(name="a", product=product, link=link)
    slow = plot.break_even(curve(4e13), [one])
    assert "no GPU line crosses the CPU's" in slow.caption
    assert "a: never wins" in slow.alt
    fast = plot.break_even(curve(1e6), [one])
    assert "the GPU wins from n = 64" in fast.caption
