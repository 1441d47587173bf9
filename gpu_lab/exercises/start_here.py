"""Exercises of notebook 00: guess a ratio, read three ladders."""

from __future__ import annotations

from typing import Any

from gpu_lab import facts, hardware
from gpu_lab.exercises.frame import Exercise, Kind, NotYet, require_keys
from gpu_lab.records import Ladder

RUNG_COUNT = 6
DRIVER, TORCH = 2, 3


def stored_ladders() -> dict[str, Ladder]:
    """The three stored ladders of the exercise: letter -> ladder."""
    ladders = {}
    for path in facts.files("ladders", suffix=".json"):
        findings, about = hardware.load_findings(path)
        note = f"{about['kind']}: {about['source']}"
        found = hardware.climb(findings, device=about["title"], note=note)
        ladders[path.name[0]] = found
    return ladders


def right_rungs() -> dict[str, int]:
    """Number of the first failed rung of each stored ladder, from 1 at the bottom."""
    return {name: _first_failed(found) for name, found in stored_ladders().items()}


def check_first_rungs(answer: Any) -> str:
    """Compare {"a": 1, …} with the first failed rungs; hints for usual mistakes."""
    right = right_rungs()
    require_keys(answer, right)
    given = {name: answer[name] for name in right}
    if not all(type(v) is int and 1 <= v <= RUNG_COUNT for v in given.values()):
        raise NotYet(f"a rung is a whole number from 1 to {RUNG_COUNT}")
    if given != right:
        raise NotYet(_hint(given, right))
    return "each machine's first failed rung is named"


def _hint(given: dict[str, int], right: dict[str, int]) -> str:
    if all(given[k] == right[k] - 1 for k in right):
        return "those are the last rungs that hold; wanted are the first that fail"
    if all(given[k] == RUNG_COUNT + 1 - right[k] for k in right):
        return 'count from the bottom: rung 1 is "OS lists a GPU"'
    if set(given.values()) == {DRIVER}:
        return "not every trouble is the driver: look for the lowest no in each table"
    if set(given.values()) == {TORCH}:
        return "torch seeing nothing is often a consequence: look further down"
    wrong = [k for k in right if given[k] != right[k]]
    return f"look again at {', '.join(wrong)}: the lowest rung whose answer is no"


def _first_failed(found: Ladder) -> int:
    failed = found.first_failed
    return found.rungs.index(failed) + 1 if failed else 0


def _note(answer: Any) -> str:
    raise NotYet("a prediction is made with .predict(guess)")


matmul_ratio = Exercise(
    name="matmul_ratio", kind=Kind.PREDICTION, check=_note, unit="x"
)
first_rungs = Exercise(
    name="first_rungs",
    kind=Kind.VALUE,
    check=check_first_rungs,
    reference=right_rungs,
)
EXERCISES = (matmul_ratio, first_rungs)
