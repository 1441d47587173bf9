"""The memory clinic: equal gradients, counted bytes, an allocator that fragments."""

from __future__ import annotations

import pytest

from gpu_lab import bench, doctor
from gpu_lab.bench import memory_clinic as clinic
from gpu_lab.bench.memory_clinic import Allocator
from gpu_lab.records import Device

CPU = Device(backend="cpu", name="c")


def gradients(way: str, model: str = "transformer") -> list:
    return clinic.gradients(clinic.training(way, device=CPU, model=model))


@pytest.mark.parametrize("way", ["parts", "recomputed"])
def test_a_cure_keeps_the_gradients(way: str) -> None:
    assert clinic.difference(gradients("whole"), gradients(way)) < 1e-5


def test_recomputed_gradients_are_equal_to_the_last_bit() -> None:
    assert clinic.difference(gradients("whole"), gradients("recomputed")) == 0


def test_without_scaling_the_gradients_are_as_many_times_as_large() -> None:
    found = clinic.difference(gradients("whole"), gradients("unscaled"))
    assert found == pytest.approx(clinic.PARTS - 1, rel=1e-4)


def test_batchnorm_sees_smaller_batches_and_the_gradients_differ() -> None:
    found = clinic.difference(gradients("whole", "cnn"), gradients("parts", "cnn"))
    assert found > 0.01


def test_recomputing_updates_batchnorm_twice() -> None:
    for way, times in (("whole", 1), ("recomputed", 2)):
        (one,) = clinic.training(way, device=CPU, model="cnn")
        clinic.gradients([one])
        network = getattr(one.network, "network", one.network)
        assert int(network[1].num_batches_tracked) == times


def test_saved_bytes_are_exact_and_fall() -> None:
    arms = {way: clinic.cure_arm(way, device=CPU) for way in clinic.WAYS}
    saved = {way: int(arm.observed["saved_bytes"]) for way, arm in arms.items()}
    assert saved["parts"] < saved["whole"] / (clinic.PARTS - 1)
    assert 0 < saved["recomputed"] < saved["whole"] / 4
    again = clinic.cure_arm("recomputed", device=CPU).observed
    assert again["saved_bytes"] == saved["recomputed"]


def test_the_price_can_be_measured() -> None:
    rows = bench.together(
        [clinic.cure_arm(way, device=CPU) for way in clinic.WAYS], device=CPU
    )
    assert [row.name for row in rows] == [f"gradients_{way}" for way in clinic.WAYS]
    assert all(row.available and row.work == clinic.BATCH for row in rows)


def long_and_short(**given: bool) -> Allocator:
    """Four long blocks, freed; four short ones in their places."""
    card = Allocator(400, **given)
    for n in range(4):
        card.take(f"long {n}", 100)
    for n in range(4):
        card.give(f"long {n}")
    for n in range(4):
        card.take(f"short {n}", 60)
    return card


def test_shapes_that_change_fragment_the_pool() -> None:
    card = long_and_short()
    assert (card.held(), card.held(live=True)) == (400, 240)
    before = [list(segment) for segment in card.segments]
    card.empty_cache()
    assert card.segments == before
    with pytest.raises(MemoryError) as stop:
        card.take("long", 100)
    assert [d.id for d in doctor.explain(str(stop.value))] == ["oom-fragmentation"]


def test_expandable_segments_use_the_holes() -> None:
    card = long_and_short(expandable=True)
    card.take("long", 100)
    assert (card.held(), card.held(live=True)) == (340, 340)


def test_a_card_that_is_really_full_says_so() -> None:
    card = Allocator(400)
    card.take("model", 390)
    with pytest.raises(MemoryError) as stop:
        card.take("batch", 20)
    assert [d.id for d in doctor.explain(str(stop.value))] == ["oom-model-too-big"]


def test_best_fit_split_merge_and_segments() -> None:
    card = Allocator(400)
    card.take("a", 5)  # a segment of 20
    card.take("b", 100)
    assert card.segments == [[("a", 5), ("", 15)], [("b", 100)]]
    card.give("b")
    card.take("c", 10)  # the smaller hole
    assert card.segments[0] == [("a", 5), ("c", 10), ("", 5)]
    card.give("a")
    card.give("c")
    assert card.segments[0] == [("", 20)]
    card.take("d", 300)  # needs what it holds: given back without being asked
    assert card.segments == [[("d", 300)]]


SUMMARY = """\
|            CUDA OOMs: {ooms}            |        cudaMalloc retries: 2        |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      | {live:6d} MiB |   5411 MiB |    904 GiB |    901 GiB |
|       from large pool |   3002 MiB |   5411 MiB |    904 GiB |    901 GiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |   5840 MiB |   5840 MiB |      9 GiB |      3 GiB |
|---------------------------------------------------------------------------|
| Non-releasable memory | {stuck:6d} MiB |   2411 MiB |    640 GiB |    638 GiB |
"""


@pytest.mark.parametrize(
    ("ooms", "live", "stuck", "wanted"),
    [
        (1, 3002, 2310, ["oom-fragmentation"]),
        (2, 5700, 100, ["oom-model-too-big"]),
        (0, 3002, 2310, []),
        (1, 3000, 100, []),
    ],
)
def test_a_memory_summary_is_read(ooms, live, stuck, wanted):
    text = SUMMARY.format(ooms=ooms, live=live, stuck=stuck)
    assert [d.id for d in doctor.explain(text)] == wanted
