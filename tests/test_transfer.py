"""The link: fits of its times, curves, its state under load, overlap."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gpu_lab import bench
from gpu_lab.bench import transfer
from gpu_lab.records import Device, Link, Source
from gpu_lab.timing import SIMULATED, Arm, Model, Plan, SimulatedGpu, interleave

TINY = Plan(rounds=3, sample_s=0.0001, warmup=1)
START_S, RATE = 12e-6, 2.8e9


def times(noise: float, *, each: int = 1000, seed: int = 0) -> tuple[Any, Any]:
    """Copies of all sizes over a link with known start and rate."""
    sizes = np.repeat(np.array(transfer.SIZES, dtype=float), each)
    draw = np.random.default_rng(seed).normal(0, noise, len(sizes))
    return sizes, (START_S + sizes / RATE) * np.exp(draw)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_finds_what_was_planted(noise: float, seed: int) -> None:
    fit = bench.fit_link(*times(noise, seed=seed))
    assert fit.start_s == pytest.approx(START_S, rel=0.02)
    assert fit.bytes_per_s == pytest.approx(RATE, rel=0.02)
    assert fit.half_size_bytes == pytest.approx(START_S * RATE, rel=0.04)
    assert fit.time_s(2**20) == pytest.approx(START_S + 2**20 / RATE, rel=0.02)


def test_odd_samples_do_not_pull_the_line() -> None:
    sizes, seconds = times(0.02, each=50)
    seconds[::10] *= 5
    fit = bench.fit_link(sizes, seconds)
    assert fit.bytes_per_s == pytest.approx(RATE, rel=0.05)


def test_a_link_without_a_start() -> None:
    sizes = np.array(transfer.SIZES, dtype=float)
    fit = bench.fit_link(sizes, sizes / RATE)
    assert fit.start_s < 1e-7
    assert fit.bytes_per_s == pytest.approx(RATE, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "seconds", "words"),
    [
        ([4096, 4096], [1.0, 1.0], "at least two sizes"),
        ([4096, 8192], [1.0], "one time for each size"),
        ([4096, 8192], [1.0, 1.0], "do not grow with the size"),
        ([4096, 8192], [2.0, 1.0], "do not grow with the size"),
    ],
)
def test_what_cannot_be_fitted(
    sizes: list[float], seconds: list[float], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        bench.fit_link(sizes, seconds)


def test_the_curve_of_the_simulated_link_is_its_own_model() -> None:
    gpu = SimulatedGpu(Model(noise=0.0))
    arms = [Arm(name=str(n), calls=(lambda n=n: gpu.copy(n),)) for n in transfer.SIZES]
    found = interleave(arms, device=SIMULATED, clock=gpu, plan=Plan(rounds=1))
    fit = bench.fit_link(transfer.SIZES, [t.times_s[0] for t in found])
    assert fit.start_s == pytest.approx(START_S + gpu.model.gap_s, rel=1e-6)
    assert fit.bytes_per_s == pytest.approx(gpu.model.link_bytes_per_s, rel=1e-6)


def test_link_curve_names_each_size(stand_in: Device, cpu: Device) -> None:
    given: dict[str, Any] = {"plan": TINY, "sizes": (4096, 16384)}
    found = bench.link_curve("d2h", device=stand_in, pinned=False, **given)
    assert [r.name for r in found] == ["d2h_pageable_4096", "d2h_pageable_16384"]
    assert all(r.source is Source.SIMULATED for r in found)
    none = bench.link_curve(device=cpu, **given)
    assert [r.source for r in none] == [Source.NOT_MEASURABLE] * 2


def test_sizes_go_from_4_kib_to_256_mib_in_powers_of_4() -> None:
    assert (transfer.SIZES[0], transfer.SIZES[-1]) == (2**12, 2**28)
    ratios = {b / a for a, b in zip(transfer.SIZES, transfer.SIZES[1:], strict=False)}
    assert ratios == {4.0}


def test_link_under_load_reads_before_and_during(
    stand_in: Device, cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "LOAD_BYTES", 4096)
    read = iter([Link(pcie_gen_current=1), Link(pcie_gen_current=4)])
    monkeypatch.setattr(
        transfer.nvidia, "link", lambda index: next(read) if index == 0 else None
    )
    listed = dataclasses.replace(stand_in, bus_id="00000000:2F:00.0", index=0)
    monkeypatch.setattr(transfer.nvidia, "devices", lambda: (listed,))
    device = dataclasses.replace(stand_in, bus_id="0:2F:00.0", link=Link(), index=3)
    before, during = bench.link_under_load(device=device) or (None, None)
    assert before
    assert during
    assert (before.pcie_gen_current, during.pcie_gen_current) == (1, 4)
    assert bench.link_under_load(device=cpu) is None


@pytest.mark.parametrize(
    ("both_s", "share"), [(3.0, 0.0), (2.0, 1.0), (2.5, 0.5), (3.5, -0.5)]
)
def test_overlap_share(both_s: float, share: float) -> None:
    assert bench.overlap_share(1.0, 2.0, both_s) == pytest.approx(share)


def test_overlap_needs_two_streams_on_a_real_link(
    cpu: Device, stand_in: Device
) -> None:
    for device in (cpu, stand_in):
        arms = bench.overlap_arms(4096, 8, device=device)
        assert [a.name for a in arms] == [
            "overlap_copy",
            "overlap_compute",
            "overlap_both",
        ]
        assert all("two streams" in a.reason for a in arms)


def test_overlap_of_the_simulated_device() -> None:
    """The two streams of the simulated device hide the copy behind the kernel."""
    gpu = SimulatedGpu(Model(noise=0.0, launch_s=0.0, gap_s=0.0))
    spent = {}
    works = {"copy": [1], "compute": [0], "both": [1, 0]}
    for name, streams in works.items():
        start = gpu.wall()
        for stream in streams:
            gpu.copy(2**24, stream=stream)
        gpu.synchronize()
        spent[name] = gpu.wall() - start
    share = bench.overlap_share(spent["copy"], spent["compute"], spent["both"])
    assert math.isclose(share, 1.0, rel_tol=0.01)
