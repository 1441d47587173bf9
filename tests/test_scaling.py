"""The law of a DDP step, sharded bytes, and the picture of the fan."""

from __future__ import annotations

import pytest

from gpu_lab import fit, plot
from gpu_lab.bench import LinkFit
from gpu_lab.bench.ddp import bus_factor
from gpu_lab.records import Comparison, Measurement, Source, Verdict

NO_LINK = LinkFit(0.0, 1e30)


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0), (2, 1), (4, 1.5), (8, 1.75)])
def test_bus_factor(ranks: int, factor: float) -> None:
    assert bus_factor(ranks) == factor


def test_one_rank_only_computes_and_a_free_link_costs_nothing() -> None:
    step = fit.Step(0.3, 8e6, 1e6)
    assert step.time_s(LinkFit(1.0, 1.0), 1) == pytest.approx(0.3)
    assert step.time_s(NO_LINK, 2) == pytest.approx(0.3)
    assert step.speedup(NO_LINK, 4) == pytest.approx(4)


def test_messages_hide_behind_the_backward_pass_only() -> None:
    """forward 0.1 s, backward 0.2 s, 8 buckets of 0.01 s each on two ranks."""
    link = LinkFit(0.0, 1e8)
    hidden = fit.Step(0.3, 8e6, 1e6).time_s(link, 2)
    assert hidden == pytest.approx(0.3 + 0.01)  # all but the last bucket
    assert fit.Step(0.3, 8e6, 8e6).time_s(link, 2) == pytest.approx(0.3 + 0.08)
    narrow = fit.Step(0.3, 8e6, 1e6).time_s(LinkFit(0.0, 1e7), 2)
    assert narrow == pytest.approx(0.1 + 0.8 + 0.2 / 8)  # the first bucket's wait


def test_a_start_is_paid_once_a_bucket() -> None:
    link = LinkFit(0.5, 1e30)
    assert fit.Step(0.3, 8e6, 8e6).time_s(link, 2) == pytest.approx(0.8)
    assert fit.Step(0.3, 8e6, 1e6).time_s(link, 2) > 0.1 + 8 * 0.5


def test_the_link_is_read_from_all_reduce_rows() -> None:
    rows = [
        Measurement(
            name=str(size),
            device="cpu",
            source=Source.MEASURED,
            times_s=(1e-3 + 1.5 * size / 1e9,) * 3,
            work=size,
            work_unit="byte",
            settings={"ranks": 4},
        )
        for size in (2**12, 2**16, 2**20, 2**24)
    ]
    link = fit.link_of(rows)
    assert link.start_s == pytest.approx(1e-3, rel=1e-3)
    assert link.bytes_per_s == pytest.approx(1e9, rel=1e-3)


def test_each_stage_shards_one_part_more() -> None:
    totals = [
        sum(fit.zero_bytes(stage, parameters=100, ranks=4).values())
        for stage in range(4)
    ]
    assert totals == [1600, 1000, 700, 400]
    held = fit.zero_bytes(2, parameters=100, ranks=4)
    assert held == {"parameters": 400, "gradients": 100, "optimizer": 200}


def found(speedup: float | None) -> Comparison:
    ends = (None, None) if speedup is None else (speedup - 0.1, speedup + 0.1)
    verdict = Verdict.SLOWER if speedup else Verdict.NOT_COMPARABLE
    return Comparison(verdict=verdict, speedup=speedup, low=ends[0], high=ends[1])


def test_the_fan_says_who_loses_and_what_was_measured() -> None:
    step = fit.Step(0.02, 8e6, 1e6)
    links = {"wide, CITED": LinkFit(0, 1e11), "thin, SIMULATED": LinkFit(0, 1e8)}
    picture = plot.scaling_fan(step, links, here=found(0.75))
    assert "2 devices give 1.5x here, MEASURED" in picture.alt
    assert "Two devices lose against one with: thin, SIMULATED." in picture.caption
    assert "Lines calculated" in picture.caption
    assert "wide, CITED: 8.0x" in picture.alt
    assert picture.png.startswith(b"\x89PNG")


def test_a_fan_without_a_point() -> None:
    picture = plot.scaling_fan(fit.Step(1, 1, 1), {"any": NO_LINK}, here=found(None))
    assert "2 devices give n/a here" in picture.alt
    assert "none of these" in picture.alt
