"""Verdicts on rows of one machine, and what must be equal before a comparison."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from gpu_lab import compare
from gpu_lab.records import Machine, Measurement, Session, Source, Verdict

ROUNDS = 40


def rows(
    speedup: float, *, noise: float = 0.01, seed: int = 0, n: int = ROUNDS
) -> tuple[Measurement, Measurement]:
    """Reference and candidate, taken together, whose true speedup is known."""
    draw = random.Random(seed)
    mood = [draw.uniform(1.0, 2.0) for _ in range(n)]  # hits both rows of a round
    first = [m * math.exp(draw.gauss(0, noise)) for m in mood]
    second = [m / speedup * math.exp(draw.gauss(0, noise)) for m in mood]
    return row("a", first), row("b", second)


def row(name: str, times_s: list[float]) -> Measurement:
    return Measurement(
        name=name,
        device="cpu",
        source=Source.MEASURED,
        times_s=tuple(times_s),
        cpu_times_s=tuple(times_s),
        settings={"n": 8},
        group="a|b",
    )


@pytest.mark.parametrize(
    ("speedup", "noise", "verdict"),
    [
        (1.10, 0.01, Verdict.FASTER),
        (1.06, 0.02, Verdict.FASTER),
        (0.90, 0.01, Verdict.SLOWER),
        (1.00, 0.01, Verdict.EQUIVALENT),
        (1.01, 0.005, Verdict.EQUIVALENT),  # certain, and too small to matter
        (1.00, 0.20, Verdict.NO_DIFFERENCE),
    ],
)
@pytest.mark.parametrize("seed", range(10, 15))
def test_verdicts(speedup: float, noise: float, verdict: Verdict, seed: int) -> None:
    found = compare.paired(*rows(speedup, noise=noise, seed=seed))
    assert found.verdict is verdict
    assert (found.low or 0) <= (found.speedup or 0) <= (found.high or 0)
    assert (found.smallest or 0) >= found.margin / 2


def test_the_other_way_round_is_the_inverse() -> None:
    a, b = rows(1.2)
    there, back = compare.paired(a, b), compare.paired(b, a)
    assert (there.verdict, back.verdict) == (Verdict.FASTER, Verdict.SLOWER)
    assert there.speedup == pytest.approx(1 / (back.speedup or 0))
    assert there.low == pytest.approx(1 / (back.high or 0))


def test_few_false_alarms() -> None:
    found = [compare.paired(*rows(1.0, noise=0.05, seed=s, n=12)) for s in range(200)]
    alarms = [f for f in found if f.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    assert len(alarms) <= 10


def test_the_margin_is_that_of_the_device_or_the_users() -> None:
    a, b = rows(1.03, noise=0.002)
    assert compare.paired(a, b).verdict is Verdict.FASTER
    assert compare.paired(a, b).margin == 0.05
    assert compare.paired(a, b, margin=0.1).verdict is Verdict.EQUIVALENT
    events = [replace(r, decided_by="events") for r in (a, b)]
    assert compare.paired(*events).margin == 0.02


def test_cpu_time_decides_where_the_rows_say_so() -> None:
    a, b = rows(1.0)
    slow = tuple(2 * t for t in b.times_s)
    a, b = (
        replace(r, decided_by="cpu", cpu_times_s=c)
        for r, c in ((a, a.times_s), (b, slow))
    )
    assert compare.paired(a, b).verdict is Verdict.SLOWER


def changed(**fields: object) -> tuple[Measurement, Measurement]:
    a, b = rows(1.2)
    return a, replace(b, **fields)  # type: ignore[arg-type]


MISSING = Measurement(
    name="c", device="cpu", source=Source.NOT_MEASURABLE, reason="needs a GPU"
)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (changed(group="other"), "not taken in the same rounds"),
        (changed(group=""), "not taken in the same rounds"),
        (changed(source=Source.SIMULATED), "MEASURED against SIMULATED"),
        (changed(flags=("throttled",)), "only b was throttled"),
        ((rows(1.2)[0], MISSING), "c: needs a GPU"),
        (rows(1.2, n=11), "11 rounds, wanted at least 12: give it more time"),
    ],
)
def test_not_comparable(pair: tuple[Measurement, Measurement], words: str) -> None:
    found = compare.paired(*pair)
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert found.reason == words
    assert found.speedup is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("method_version", 2, "method version: 1, 2"),
        ("settings", {"n": 16}, "n: 8, 16"),
        ("settings", {"n": 8, "threads": 2}, "threads: None, 2"),
        ("decided_by", "events", "timed by the device: False, True"),
    ],
)
def test_keys_of_method(field: str, value: object, words: str) -> None:
    a, _ = rows(1.0)
    assert compare.differences(a, a) == []
    assert compare.differences(a, replace(a, **{field: value})) == [words]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("versions", {"torch": "2.0.0"}, {"torch": ["2.14.1+cpu", "2.0.0"]}),
        ("torch_threads", 1, {"threads": ["None", "1"]}),
        ("driver_version", "580.1", {"driver": ["None", "580.1"]}),
        ("power_source", "battery", {"power": ["None", "battery"]}),
    ],
)
def test_keys_of_condition(
    session: Session, machine: Machine, field: str, value: object, words: object
) -> None:
    other = replace(session, machine=replace(machine, **{field: value}))
    assert compare.conditions([session, session]) == {}
    assert compare.conditions([session, other]) == words


def test_interval_of_sessions_is_students() -> None:
    found = compare.sessions_interval([1.0, 2.0, 4.0])
    assert found.estimate == pytest.approx(2.0)
    # log 2 x t(0.975, 2) / sqrt(3); t from a printed table
    high = math.exp(math.log(2) * 4.302653 / math.sqrt(3))
    assert found.high / found.estimate == pytest.approx(high)
    assert found.low * found.high == pytest.approx(found.estimate**2)
    with pytest.raises(ValueError, match="at least two sessions, found 1"):
        compare.sessions_interval([1.0])
