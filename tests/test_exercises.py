"""Every exercise: the reference passes, wrong answers get hints, untouched is TODO."""

import pytest
from wrong_answers import MALFORMED_GUESSES, wrong_answers

from gpu_lab import exercises
from gpu_lab.exercises.frame import (
    Exercise,
    Kind,
    NotMeasurable,
    Verdict,
    distance,
)
from gpu_lab.records import GpuLabError

CHECKED = [e for e in exercises.ALL if e.kind is not Kind.PREDICTION]
PREDICTED = [e for e in exercises.ALL if e.kind is Kind.PREDICTION]


def by_name(exercise):
    return exercise.name


def test_names_are_unique_and_both_kinds_are_there():
    names = [e.name for e in exercises.ALL]
    assert len(names) == len(set(names))
    assert CHECKED
    assert PREDICTED


@pytest.mark.parametrize("exercise", CHECKED, ids=by_name)
def test_reference_passes_and_each_wrong_answer_has_its_own_hint(exercise):
    assert exercise.reference is not None
    assert exercise(exercise.reference()).verdict == Verdict.PASS
    wrong = wrong_answers()[exercise.name]
    assert len(wrong) >= 3
    hints = set()
    for mistake, (answer, words) in wrong.items():
        found = exercise(answer)
        assert found.verdict == Verdict.NOT_YET, mistake
        assert words in found.detail, mistake
        hints.add(found.detail)
    assert len(hints) == len(wrong)


@pytest.mark.parametrize("exercise", CHECKED, ids=by_name)
@pytest.mark.parametrize("answer", ["text", 3.5, [], {}, object(), {"a": {}}])
def test_no_answer_raises(exercise, answer):
    assert exercise(answer).verdict == Verdict.NOT_YET


@pytest.mark.parametrize("exercise", exercises.ALL, ids=by_name)
def test_untouched_is_todo(exercise):
    ask = exercise.predict if exercise.kind is Kind.PREDICTION else exercise
    assert ask(...).verdict == Verdict.TODO
    assert ask({"a": ..., "b": ...}).verdict == Verdict.TODO


@pytest.mark.parametrize("exercise", PREDICTED, ids=by_name)
def test_predictions_are_noted_never_failed_and_malformed_ones_named(exercise):
    good = f"40{exercise.unit}"
    before, after = exercise.predict(good), exercise.predict(good, 20.0)
    assert (before.verdict, before.value) == (Verdict.PASS, 40.0)
    assert after.verdict == Verdict.PASS
    assert "off by a factor of 2.0x" in after.detail
    for fault, (guess, words) in MALFORMED_GUESSES.items():
        text = guess.format(unit=exercise.unit) if isinstance(guess, str) else guess
        found = exercise.predict(text, 20.0)
        assert found.verdict == Verdict.NOT_YET, fault
        assert words in found.detail, fault
        assert found.value is None


@pytest.mark.parametrize("guess", ["64x", "64 x", "64X", "64×", "64 times", "6.4e1x"])
def test_a_ratio_may_be_spelled_in_many_ways(guess):
    assert exercises.start_here.matmul_ratio.predict(guess).value == 64.0


def test_distance_is_the_same_both_ways():
    assert distance(10, 40, unit="ms").endswith("4.0x")
    assert distance(40, 10, unit="ms").endswith("4.0x")


def test_an_answer_shows_verdict_exercise_and_hint_in_one_line():
    text = repr(exercises.start_here.first_rungs({"a": ..., "b": ..., "c": ...}))
    assert text == "TODO  first_rungs: replace the three dots"


def test_not_measurable_and_raising_checks_are_answers():
    def not_here(answer):
        raise NotMeasurable("needs two GPUs")

    def broken(answer):
        raise GpuLabError("no such thing")

    here = Exercise(name="x", kind=Kind.RATIO, check=not_here)(1)
    assert (here.verdict, here.detail) == ("NOT MEASURABLE HERE", "needs two GPUs")
    raised = Exercise(name="y", kind=Kind.STRUCTURE, check=broken)(1)
    assert raised.verdict == Verdict.NOT_YET
    assert "GpuLabError: no such thing" in raised.detail
