"""Notebook 02: recorded machines, their map, the environment, the link's look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_lab import fit, hardware, plot, show
from gpu_lab.hardware import snapshot
from gpu_lab.records import Device, Link, Machine

CARD = Device(backend="cuda", name="NVIDIA GeForce RTX 3090", capability="8.6")


@pytest.fixture
def told() -> dict[str, list[dict[str, Any]]]:
    """Title -> cards of the recorded machines."""
    found = snapshot.recorded().items()
    return {title: snapshot.analyse(one["snapshot"])["gpus"] for title, one in found}


def test_recorded_machines_are_cited(told: dict[str, Any]) -> None:
    assert len(told) == 7
    assert {one["kind"] for one in snapshot.recorded().values()} == {"CITED"}
    assert all(one["source"] for one in snapshot.recorded().values())


def test_the_map_names_hops_and_tunnels(told: dict[str, Any], drawn: list[Any]) -> None:
    found = plot.device_map(
        told["one card inside, one in a Thunderbolt 5 dock"], source="CITED"
    )
    assert found.caption.startswith("1 internal, 1 external.")
    assert found.caption.endswith("CITED.")
    assert "PCIe ? x16 to NVIDIA GeForce RTX 5090" in found.alt
    assert "tunnel, thunderbolt5 to 2 bridges of the tunnel" in found.alt
    texts = {text.get_text() for text in drawn[0].axes[0].texts}
    assert {"processor", "not told", "GeForce RTX 3090 Ti"} <= texts


def test_an_empty_map_says_so() -> None:
    found = plot.device_map([], source="Read on this machine")
    assert "no GPU is listed" in found.alt


def test_the_path_ends_at_the_card_with_its_link(told: dict[str, Any]) -> None:
    slot, cable = told["one card in a slot, one on OCuLink"]
    assert slot["path"][-1]["pcie_width_current"] == 16
    assert cable["path"][-1]["pcie_gen_current"] == 3
    assert cable["external"] is None


@pytest.mark.parametrize(
    ("driver", "cuda", "enough"),
    [
        ("580.65.06", "13.0", "yes"),
        ("570.1", "13.0", "no"),
        ("570.1", "12.6", "yes"),
        (None, "13.0", "nothing to ask"),
        ("580.65.06", None, "nothing to ask"),
    ],
)
def test_driver_against_wheel(
    machine: Machine, driver: str | None, cuda: str | None, enough: str
) -> None:
    versions = {"torch": "2.14.1"} | ({"cuda": cuda} if cuda else {})
    one = replace(machine, driver_version=driver, versions=versions)
    found = dict(hardware.environment(one, CARD))
    assert found["driver is new enough"] == enough
    assert found["command"].startswith("pip install -r requirements/torch")


@pytest.mark.parametrize(
    ("architectures", "covered"),
    [(["sm_80"], "yes"), (["sm_75"], "no"), ([], "nothing to ask")],
)
def test_card_against_wheel(
    machine: Machine, architectures: list[str], covered: str
) -> None:
    found = dict(hardware.environment(machine, CARD, architectures=architectures))
    assert found["wheel has kernels for the card"] == covered


def test_a_rate_looks_like_its_published_link() -> None:
    assert "Thunderbolt 4" in fit.links_like(2.8e9)
    assert fit.links_like(6.5e9) == ["OCuLink PCIe 4.0 x4"]
    assert fit.links_like(0.0) == []


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (None, "Large copies: n/a; no link was measured"),
        (6.5e9, "6.5 GB/s, 90.3 % of PCIe 4 x4, 256 bytes a packet; like OCuLink"),
        (9e9, "ceiling or measurement wrong of PCIe 4 x4"),
    ],
)
def test_the_sentence_of_a_link(rate: float | None, words: str) -> None:
    link = Link(pcie_gen_max=4, pcie_width_current=4)
    assert words in show.link_sentence(rate, link)


def test_nothing_is_published_above_what_the_link_can_move() -> None:
    for rate in (2.4e9, 2.8e9, 5.6e9, 6.5e9, 13e9, 25e9, 50e9):
        for name in fit.links_like(rate):
            assert rate <= 1.1 * fit.widest(name), name
