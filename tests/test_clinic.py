"""The texts of notebook 08: each case at its leaf, the healthy one at none."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_lab import doctor, facts, plot
from gpu_lab.doctor import rules
from gpu_lab.exercises import troubleshooting

CLINIC = facts.settings("clinic")
SYMPTOMS = ("not there", "error", "memory", "slow", "gone", "hangs")
# What must not be advised as a step, not even with a warning.
DESTRUCTIVE = re.compile(r"rm -rf /|dkms remove|kill -9|mkfs|\bdd if=|--force|-pf\b")


@pytest.mark.parametrize("case", CLINIC["cases"], ids=lambda case: case["leaf"])
def test_each_case_ends_at_its_leaf(case: dict[str, str]) -> None:
    found = doctor.explain(case["text"])
    assert found[0].id == case["leaf"]
    assert case["source"]


def test_the_clinic_covers_every_symptom() -> None:
    assert len({case["leaf"] for case in CLINIC["cases"]}) >= 12
    assert {case["symptom"] for case in CLINIC["cases"]} == set(SYMPTOMS)


def test_the_healthy_log_gives_nothing() -> None:
    assert doctor.explain(CLINIC["healthy"]["text"]) == []


def test_no_step_is_destructive() -> None:
    for name, rule in rules.rules().items():
        assert not [s for s in rule["steps"] if DESTRUCTIVE.search(s)], name


@pytest.mark.parametrize("exam", CLINIC["exam"])
def test_each_exam_asks_for_each_word_once(exam: str) -> None:
    right = troubleshooting.right(exam)
    assert sorted(right.values()) == sorted(CLINIC["exam"][exam]["words"].values())
    assert set(CLINIC["exam"][exam]["advice"]) <= set(troubleshooting.words(exam))
    assert all(f"--- {letter}\n" in troubleshooting.texts(exam) for letter in right)


def header() -> Path | None:
    """driver_types.h of an installed CUDA package; None without one."""
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations if found else None
    paths = [p for f in folders or () for p in Path(f).glob("*/include/driver_types.h")]
    return paths[0] if paths else None


def test_error_numbers_are_those_of_the_header() -> None:
    codes = CLINIC["codes"]
    names = {int(number): name for number, name in codes["names"].items()}
    assert {11, 77} & set(names) == set()
    assert {int(n) for n in codes["look"]} - set(names) == {11, 77}
    if header() is None:
        pytest.skip("no CUDA header is installed with this torch")
    text = header().read_text(errors="replace")
    there = {int(n): k for k, n in re.findall(r"(cudaError\w+) *= *(\d+)", text)}
    assert {n: there[n] for n in names} == names
    assert not {11, 77} & set(there)


def test_the_tree_is_one_page_and_says_all(drawn: list[Any]) -> None:
    shown = plot.tree(CLINIC["tree"])
    (axes,) = drawn[0].axes
    texts = [text.get_text() for text in axes.texts]
    for branch in CLINIC["tree"]:
        wanted = [branch["see"], *(text for pair in branch["checks"] for text in pair)]
        assert set(wanted) <= set(texts)
        assert all(text.replace("\n", " ") in shown.alt for text in wanted)
    assert tuple(drawn[0].get_size_inches()) == (10.0, 7.0)
    assert "first “no”" in shown.caption
    width = axes.get_xlim()[1]
    for text in axes.texts:
        box = text.get_window_extent().transformed(axes.transData.inverted())
        assert box.x1 <= width, text.get_text()
