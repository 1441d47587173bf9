"""Pictures by their words: labels, units, findings, hatches; not by their pixels."""

import html
import re
import sys

import matplotlib.pyplot
import pytest

from gpu_lab import plot
from gpu_lab.plot import picture
from gpu_lab.records import Device, Ladder, Machine, Measurement, Rung, Session, Source

ANSWERS = ("yes", "yes", "no", "cannot tell", "cannot tell", "cannot tell")
LADDER = Ladder(
    device="cuda:0",
    rungs=tuple(
        Rung(name=f"rung {i}", question="?", answer=a, evidence="e")
        for i, a in enumerate(ANSWERS)
    ),
)


def product(n: int, source: Source = Source.MEASURED) -> Measurement:
    return Measurement(
        name=f"matmul_{n}",
        device="cpu",
        source=source,
        times_s=(n / 1e6,),
        work=2.0 * n**3,
        work_unit="FLOP",
        settings={"n": n},
    )


@pytest.fixture
def drawn(monkeypatch):
    """The figure behind the last picture."""
    kept = []
    real = picture.finish

    def finish(figure, **words):
        kept.append(figure)
        return real(figure, **words)

    for name in ("ladder", "rates"):  # plot.ladder is the function of that name
        monkeypatch.setattr(sys.modules[f"gpu_lab.plot.{name}"], "finish", finish)
    return kept


def test_a_picture_is_an_html_figure_with_png_alt_text_and_caption():
    shown = plot.ladder(LADDER)
    assert shown.png.startswith(b"\x89PNG")
    text = shown._repr_html_()
    assert re.fullmatch(r"(?s)<figure><img alt=.*</figcaption></figure>", text)
    assert html.escape(shown.alt) in text
    assert shown.caption in text
    assert repr(shown) == f"<figure>{shown.alt}</figure>"


def test_words_of_a_picture_cannot_break_out_of_it():
    text = picture.Picture(png=b"", alt='"><script>', caption="<b>")._repr_html_()
    assert "<script>" not in text
    assert "<b>" not in text


def test_nothing_stays_open_in_pyplot():
    plot.ladder(LADDER)
    assert matplotlib.pyplot.get_fignums() == []


def test_ladder_says_its_finding_and_each_rung(drawn):
    shown = plot.ladder(LADDER)
    assert shown.caption == "cuda:0: 2 of 6 rungs hold"
    for number, answer in enumerate(ANSWERS, 1):
        assert f"{number} rung {number - 1}: {answer}" in shown.alt
    (axes,) = drawn[0].axes
    assert axes.get_title() == shown.caption
    assert "rung" in axes.get_ylabel()
    hatches = [patch.get_hatch() for patch in axes.patches]
    assert len(set(hatches)) == 3  # colour is not the only difference


def test_rates_carry_quantity_unit_and_source(drawn):
    shown = plot.matmul_rates([product(256), product(512, Source.SIMULATED)])
    (axes,) = drawn[0].axes
    assert axes.get_ylabel() == "rate (TFLOPS)"
    assert axes.get_xlabel() == "rows and columns"
    assert axes.get_title() == "size 512 is fastest: 0.524 TFLOPS"
    assert "SIMULATED" in shown.caption
    assert "256: 0.131 TFLOPS" in shown.alt
    assert [p.get_hatch() for p in axes.patches] == ["", "xx"]


def test_rates_without_any_time_say_so():
    cpu = Device(backend="cpu", name="c")
    row = Measurement.not_measurable("matmul_9", device=cpu, reason="because")
    shown = plot.matmul_rates([row])
    assert "no matrix product could be timed" in shown.caption
    assert "n/a" in shown.alt


def test_sessions_are_shown_against_their_median(drawn):
    machine = Machine(
        system="s", python="3", cpu_name="c", cpu_cores=1, cpu_threads=1, memory_bytes=1
    )
    sessions = [
        Session(
            suite="core",
            created="now",
            profile="quick",
            device="cpu",
            seed=0,
            machine=machine,
            measurements=(
                Measurement(
                    name="row", device="cpu", source=Source.MEASURED, times_s=(t,)
                ),
            ),
        )
        for t in (1.0, 2.0, 4.0)
    ]
    shown = plot.session_spread(sessions)
    assert shown.caption == "3 fresh processes differ by up to 4.0x (row). MEASURED."
    (axes,) = drawn[0].axes
    assert axes.collections[0].get_offsets()[:, 0].tolist() == [0.5, 1.0, 2.0]
    assert "ratio" in axes.get_xlabel()
