"""The frame of all exercises: kinds, verdicts, guesses with units.

Kinds: V value on given input; S structure (what the code did); R ratio in this
session; P prediction, which is recorded with its distance and never failed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpu_lab import units
from gpu_lab.records import Answer

NUMBER = re.compile(r"\s*([-+]?[\d.,]+(?:e[-+]?\d+)?)\s*(\S.*)?$", re.IGNORECASE)
SPELLINGS = {"X": "x", "×": "x", "times": "x"}  # of a ratio


class Kind(StrEnum):
    """What an exercise checks."""

    VALUE = "V"
    STRUCTURE = "S"
    RATIO = "R"
    PREDICTION = "P"


class Verdict(StrEnum):
    """What a check can say."""

    PASS = "PASS"
    NOT_YET = "NOT YET"
    TODO = "TODO"
    NOT_MEASURABLE = "NOT MEASURABLE HERE"


class NotYet(Exception):
    """Raised by a check with the hint for the learner."""


class NotMeasurable(Exception):
    """Raised by a check that this machine cannot decide, with the reason."""


@dataclass(frozen=True)
class Exercise:
    """One exercise: calling it with an answer gives its Answer, and never raises.

    Attributes:
        check: takes the answer (and context by keyword), returns praise or raises
            NotYet with a hint.
        reference: makes the right answer; None for predictions, which have none.
        unit: of a prediction, such as "x", "ms" or "GB/s".
    """

    name: str
    kind: Kind
    check: Callable[..., str]
    reference: Callable[[], Any] | None = None
    unit: str = ""

    def __call__(self, answer: Any, **context: Any) -> Answer:
        """PASS, NOT YET with a hint, TODO, or NOT MEASURABLE HERE; never raises."""
        if untouched(answer):
            return self._answer(Verdict.TODO, "replace the three dots")
        try:
            return self._answer(Verdict.PASS, self.check(answer, **context))
        except NotYet as hint:
            return self._answer(Verdict.NOT_YET, str(hint))
        except NotMeasurable as reason:
            return self._answer(Verdict.NOT_MEASURABLE, str(reason))
        except Exception as error:  # a learner's answer may do anything
            text = f"your answer raised {type(error).__name__}: {error}"
            return self._answer(Verdict.NOT_YET, text)

    def predict(self, guess: Any, measured: float | None = None) -> Answer:
        """A guess before the run, or its distance after it; malformed ones are named.

        Args:
            guess: text with unit, such as "40x".
            measured: the measured value in the same unit; None before the run.
        """
        if untouched(guess):
            return self._answer(Verdict.TODO, "write a guess before the run")
        try:
            value = parse_guess(guess, unit=self.unit)
        except NotYet as hint:
            return self._answer(Verdict.NOT_YET, str(hint))
        text = f"{value:g}{self.unit} noted"
        if measured is not None:
            text = distance(value, measured, unit=self.unit)
        return self._answer(Verdict.PASS, text, value=value)

    def _answer(
        self, verdict: Verdict, detail: str, *, value: float | None = None
    ) -> Answer:
        return Answer(
            exercise=self.name,
            kind=str(self.kind),
            verdict=str(verdict),
            detail=detail,
            value=value,
        )


def untouched(answer: Any) -> bool:
    """True for the three dots of the student edition, alone or as all values."""
    if isinstance(answer, dict) and answer:
        return all(value is ... for value in answer.values())
    return answer is ... or answer is None


def require_keys(answer: Any, wanted: Collection[str]) -> None:
    """Raises NotYet unless the answer is a dict with these keys, none of them open."""
    if not isinstance(answer, dict) or set(answer) != set(wanted):
        raise NotYet(f"wanted a dict with the keys {', '.join(wanted)}")
    open_ones = [name for name in wanted if answer[name] is ...]
    if open_ones:
        raise NotYet(f"still open: {', '.join(open_ones)}")


def parse_guess(guess: Any, *, unit: str) -> float:
    """Number of a guess such as "40x".

    Raises:
        NotYet: no number, no unit, another unit, or not above zero; says which.
    """
    example = f'wanted text such as "40{_gap(unit)}{unit}"'
    if isinstance(guess, (int, float)):
        raise NotYet(f"{guess} has no unit; {example}")
    found = NUMBER.match(str(guess))
    if not found:
        raise NotYet(f"{guess!r} is not a number with a unit; {example}")
    try:
        value = float(found[1])
    except ValueError:
        text = f"{found[1]!r} is not a number with a decimal point"
        raise NotYet(f"{text}; {example}") from None
    if found[2] is None:
        raise NotYet(f"{guess!r} has no unit; {example}")
    given = found[2].strip()
    if SPELLINGS.get(given, given) != unit:
        raise NotYet(f"the unit is {unit}, not {given}; {example}")
    if not math.isfinite(value):
        raise NotYet(f"{guess!r} is too large to be a guess; {example}")
    if value < 0:
        raise NotYet(f"{guess!r} has the wrong sign: this quantity is above zero")
    if value == 0:
        raise NotYet(f"{guess!r} cannot be: this quantity is above zero")
    return value


def distance(guess: float, measured: float, *, unit: str) -> str:
    """How far a guess lies from the measured value, as a factor of at least one."""
    factor = max(guess / measured, measured / guess)
    said, was = f"{guess:g}{_gap(unit)}{unit}", f"{measured:.3g}{_gap(unit)}{unit}"
    return f"you said {said}, measured {was}: off by a factor of {units.ratio(factor)}"


def _gap(unit: str) -> str:
    return "" if unit == "x" else " "
