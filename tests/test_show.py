"""Views: the same rows on every machine, whole texts, verdicts that can fail."""

from dataclasses import replace

import pytest

from gpu_lab import show
from gpu_lab.records import Device, Ladder, Link, Machine, Measurement, Rung, Source

CPU = Device(backend="cpu", name="some CPU", memory_bytes=2**30)
GPU = Device(
    backend="cuda",
    name="some GPU",
    simulated=True,
    link=Link(
        pcie_gen_current=3, pcie_width_current=4, pcie_gen_max=4, pcie_width_max=16
    ),
)
MACHINE = Machine(
    system="Linux",
    python="3.11",
    cpu_name="some CPU",
    cpu_cores=1,
    cpu_threads=2,
    memory_bytes=2**30,
    versions={"torch": "2.14.1", "cuda": "13.0"},
    devices=(CPU, GPU),
)


def timed(name: str, *times_s: float) -> Measurement:
    return Measurement(name=name, device="cpu", source=Source.MEASURED, times_s=times_s)


def test_passport_has_the_same_rows_on_every_machine():
    on_cpu = dict(show.passport_rows(MACHINE, CPU))
    on_gpu = dict(show.passport_rows(MACHINE, GPU))
    assert list(on_cpu) == list(on_gpu)
    assert on_cpu["link"] == "n/a"
    assert on_gpu["link"] == "PCIe 3 x4 (max 4 x16)"
    assert on_gpu["device"] == "cuda:0 some GPU [SIMULATED]"
    assert on_cpu["torch"] == "2.14.1 (cuda 13.0 build)"
    assert on_cpu["other devices"] == "cuda:0 some GPU [SIMULATED]"


def test_passport_names_what_the_machine_stopped_inside():
    stopped = show.passport(MACHINE, GPU, crashed=["h2d"]).frame.iloc[-1].tolist()
    assert stopped[1] == "h2d; GPU_LAB_SKIP=h2d leaves it out"
    assert show.passport(MACHINE, GPU).frame.iloc[-1, 1] == "none"


def test_tables_show_long_texts_whole_in_both_forms():
    long = "x" * 300
    table = show.Table([("a", long)], ("k", "v"), "legend")
    assert long in table._repr_html_()
    assert long in repr(table)
    assert repr(table).endswith("legend")


def test_measurements_give_reasons_where_there_is_no_number():
    row = Measurement.not_measurable("h2d", device=CPU, reason="needs a GPU")
    frame = show.measurements([row, timed("a", 0.002)]).frame
    assert frame.loc[0].tolist() == [
        "h2d",
        "NOT MEASURABLE HERE",
        "n/a",
        "n/a",
        "n/a",
        "needs a GPU",
    ]
    assert frame.loc[1, "time (ms)"] == "2.0"


def pair(ratio: float, flags: tuple[str, ...] = ()) -> list[Measurement]:
    """Two rows taken together, the second so many times as fast."""
    first = [1.0 + i / 1000 for i in range(20)]
    times = {"a": first, "b": [t / ratio for t in first]}
    rows = [timed(name, *t) for name, t in times.items()]
    return [replace(r, group="a|b", flags=flags) for r in rows]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            pair(2.0),
            "b against a: faster, speedup 2.00x (2.00x to 2.00x), MEASURED",
        ),
        (
            pair(0.5, ("busy",)),
            "b against a: slower, speedup 0.500x (0.500x to 0.500x), MEASURED; "
            "flags: busy",
        ),
        (
            [timed("a", 1.0), timed("b", 2.0)],
            "b against a: not comparable (not taken in the same rounds)",
        ),
        (
            [
                timed("a", 1.0),
                Measurement.not_measurable("c", device=CPU, reason="needs a GPU"),
            ],
            "c against a: not comparable (c: needs a GPU)",
        ),
    ],
)
def test_paired_sentence(rows, text):
    assert show.paired_sentence(*rows) == text


def test_paired_sentence_says_what_could_have_been_shown():
    rows = [replace(r, group="a|b") for r in (timed("a", *range(1, 13)), None) if r]
    rows.append(replace(rows[0], name="b", times_s=rows[0].times_s[::-1]))
    text = show.paired_sentence(*rows)
    assert "no difference shown" in text
    assert "; these data could have shown " in text


def test_flags_are_named_by_row():
    assert show.flags(pair(2.0)) == "Flags: none"
    raised = show.flags(pair(2.0, ("busy", "drifting")))
    assert raised == "Flags: a: busy, drifting; b: busy, drifting"


def test_a_hot_row_says_that_it_is_not_the_memory():
    row = replace(timed("host_copy", 0.002), flags=("hot-cache",))
    assert show.measurements([row]).frame.loc[0, "remark"] == show.HOT


def test_claims_are_shown_whole():
    frame = show.claims("C007", "C021").frame
    assert frame["id"].tolist() == ["C007", "C021"]
    assert all(frame.loc[0] != "")


def test_ladder_sentence_gives_the_remedy_of_the_first_failed_rung():
    rungs = [
        Rung(name=n, question="?", answer=a, evidence="e")
        for n, a in (("one", "yes"), ("two", "no"), ("three", "no"))
    ]
    found = Ladder(rungs=tuple(rungs), device="cuda:0", remedy="Do this.")
    text = show.ladder_sentence(found)
    assert text == "cuda:0 stands on rung 1 of 3. First failed: two. Do this."


def test_verdict_prints_a_count_and_one_line_per_check_and_can_fail(capsys):
    show.verdict("lesson", {"a": True, "b": True})
    assert capsys.readouterr().out == "lesson: 2 checks\nok  a\nok  b\n"
    with pytest.raises(AssertionError, match="not true: b"):
        show.verdict("lesson", {"a": True, "b": False})
    assert "NOT OK  b" in capsys.readouterr().out


def test_progress_is_silent_when_switched_off_or_nobody_watches(monkeypatch, capsys):
    monkeypatch.setenv(show.PROGRESS_VARIABLE, "0")
    assert list(show.progress([1, 2], what="x")) == [1, 2]
    monkeypatch.delenv(show.PROGRESS_VARIABLE)
    assert list(show.progress([1, 2], what="x")) == [1, 2]
    assert capsys.readouterr().err == ""
