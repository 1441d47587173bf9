"""Verdicts on two runs: how often they are right, and what may not be compared."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import run_maker as runs
from scipy import stats

from gpu_lab import compare
from gpu_lab.compare import Side
from gpu_lab.compare.sessions import difference, p_value, smallest_shown
from gpu_lab.records import Comparison, GpuLabError, Run, Source, Verdict

SURE = (Verdict.FASTER, Verdict.SLOWER)


def verdicts(*both: Run, **options: object) -> dict[str, Comparison]:
    return {row.name: row.comparison for row in compare.versus(*both, **options)}


def changed(made: Run, **fields: object) -> Run:
    """The run with other fields in each of its measurements."""
    sessions = tuple(
        replace(s, measurements=tuple(replace(m, **fields) for m in s.measurements))
        for s in made.sessions
    )
    return replace(made, sessions=sessions)


def on_machine(made: Run, **fields: object) -> Run:
    sessions = tuple(
        replace(s, machine=replace(s.machine, **fields)) for s in made.sessions
    )
    return replace(made, sessions=sessions)


def test_a_run_against_itself_shows_no_difference() -> None:
    for seed in range(20):
        made = runs.run(seed, between=0.05)
        for found in verdicts(made, made).values():
            assert found.verdict in (Verdict.EQUIVALENT, Verdict.NO_DIFFERENCE)
            assert found.speedup == pytest.approx(1.0)


def test_false_alarms_of_whole_runs_are_at_most_one_in_twenty() -> None:
    """Holm over all rows: the family errs, not each row."""
    alarms = 0
    for seed in range(200):
        pair = (runs.run(2 * seed, between=0.03), runs.run(2 * seed + 1, between=0.03))
        alarms += any(c.verdict in SURE for c in verdicts(*pair).values())
    assert alarms <= 10


def test_a_row_that_takes_ten_percent_longer_is_found() -> None:
    found = 0
    for seed in range(50):
        slower = runs.run(2 * seed + 1, scale={"host_copy": 1.1}, between=0.015)
        by = verdicts(runs.run(2 * seed, between=0.015), slower)
        found += by["host_copy"].verdict is Verdict.SLOWER
        assert by["host_copy"].speedup == pytest.approx(1 / 1.1, rel=0.08)
    assert found >= 45


def test_the_other_way_round_is_the_inverse() -> None:
    a, b = runs.run(0), runs.run(1, scale={"h2d": 0.5})
    there, back = verdicts(a, b)["h2d"], verdicts(b, a)["h2d"]
    assert (there.verdict, back.verdict) == SURE
    assert there.speedup == pytest.approx(1 / (back.speedup or 1))


@pytest.mark.parametrize("sessions", [2, 3])
def test_few_sessions_never_say_faster_or_slower(sessions: int) -> None:
    a = runs.run(0, sessions=sessions, between=0.02)
    b = runs.run(1, sessions=sessions, between=0.02, scale={"h2d": 0.25})
    found = verdicts(a, b)["h2d"]
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.sessions == (sessions, sessions)
    assert 0.02 < (found.smallest or 0) < 0.5  # what five against five could show


def test_one_session_a_side_has_no_interval() -> None:
    found = verdicts(runs.run(0, sessions=1), runs.run(1, sessions=1))["h2d"]
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.low is found.high is found.smallest is None


def test_statistics_are_scipys() -> None:
    first, second = [0.0, 0.02, 0.01, 0.03], [0.05, 0.04, 0.06, 0.055, 0.07]
    a, b = (Side(tuple((v,) for v in values)) for values in (first, second))
    test = stats.ttest_ind(first, second, equal_var=False)
    assert p_value(a, b) == pytest.approx(test.pvalue, rel=1e-9)
    found, ends = difference(a, b), test.confidence_interval(0.95)
    assert found.low == pytest.approx(ends.low, rel=1e-9)
    assert found.high == pytest.approx(ends.high, rel=1e-9)


def test_rounds_that_scatter_widen_the_interval() -> None:
    """The second level: Welch alone knows nothing of the rounds."""
    calm = Side(tuple((0.001 * k,) for k in range(5)))
    wild = Side(tuple((0.001 * k - 0.5, 0.001 * k, 0.001 * k + 0.5) for k in range(5)))
    assert difference(wild, wild).half_width > 5 * difference(calm, calm).half_width


@pytest.mark.parametrize(
    ("spread", "k", "percent"),
    [(0.01, 3, 3.0), (0.01, 5, 2.0), (0.02, 10, 2.7), (0.05, 5, 10), (0.10, 5, 20)],
)
def test_smallest_effect_that_could_be_shown(
    spread: float, k: int, percent: float
) -> None:
    """The table of measuring notes, section 2.3; computed there with scipy."""
    half = spread / math.sqrt(2)  # two values that far from zero have that spread
    side = Side(((-half,), (half,)))
    found = smallest_shown(side, side, sessions=(k, k))
    assert 100 * math.log1p(found or 0) == pytest.approx(percent, rel=0.07)


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("settings", {"n": 16}, "n: 8, 16"),
        ("method_version", 9, "method version: 1, 9"),
        ("source", Source.SIMULATED, "SIMULATED: only what was measured"),
        ("source", Source.CITED, "CITED: only what was measured"),
        ("flags", ("throttled",), "throttled in the candidate run only"),
        ("flags", ("busy",), "candidate: 5 left out (busy)"),
        ("device", "cuda:0", "driver"),
    ],
)
def test_what_may_not_be_compared(field: str, value: object, word: str) -> None:
    a = runs.run(0)
    b = changed(runs.run(1), **{field: value})
    b = on_machine(b, driver_version="590.1")
    found = verdicts(a, b)["h2d"]
    if field == "device":  # only then the driver touches the row
        found = verdicts(changed(a, device="cuda:0"), b)["h2d"]
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert word in found.reason
    assert found.speedup is None


def test_recorded_rows_are_compared() -> None:
    found = verdicts(runs.run(0), changed(runs.run(1), source=Source.RECORDED))
    assert found["h2d"].verdict is not Verdict.NOT_COMPARABLE


def test_only_the_rows_that_differ_are_not_comparable() -> None:
    a, b = runs.run(0), runs.run(1)
    sessions = tuple(
        replace(
            s,
            measurements=tuple(
                replace(m, settings={"n": 9}) if m.name == "h2d" else m
                for m in s.measurements
            ),
        )
        for s in b.sessions
    )
    found = verdicts(a, replace(b, sessions=sessions))
    assert found.pop("h2d").verdict is Verdict.NOT_COMPARABLE
    assert all(c.verdict is not Verdict.NOT_COMPARABLE for c in found.values())


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"versions": {"torch": "2.13.0", "cuda": "13.0"}}, "torch"),
        ({"torch_threads": 1}, "threads"),
        ({"power_source": "battery"}, "power"),
    ],
)
def test_other_conditions_need_leave(fields: dict[str, object], key: str) -> None:
    a, b = runs.run(0), on_machine(runs.run(1), **fields)
    denied, allowed = verdicts(a, b)["h2d"], verdicts(a, b, allow=[key])["h2d"]
    assert denied.verdict is Verdict.NOT_COMPARABLE
    assert f"--allow {key}" in denied.reason
    assert allowed.verdict is not Verdict.NOT_COMPARABLE
    assert allowed.note == f"with another {key}"


def test_a_condition_touches_only_some_rows() -> None:
    a = runs.run(0, device="cuda:0")
    assert verdicts(a, on_machine(a, torch_threads=1))["h2d"].speedup
    assert not verdicts(a, on_machine(a, torch_threads=1))["host_copy"].speedup
    a = runs.run(0)
    assert verdicts(a, on_machine(a, driver_version="1"))["h2d"].speedup


def test_an_unknown_condition_is_refused() -> None:
    with pytest.raises(
        GpuLabError, match="unknown key 'weather'; wanted some of torch"
    ):
        compare.versus(runs.run(0), runs.run(1), allow=["weather"])


def test_a_busy_session_is_left_out_and_said() -> None:
    b = runs.run(1)
    busy = changed(replace(b, sessions=b.sessions[:1]), flags=("busy",)).sessions
    found = verdicts(runs.run(0), replace(b, sessions=(*busy, *b.sessions[1:])))["h2d"]
    assert found.sessions == (5, 4)
    assert found.note == "candidate: 1 left out (busy)"


def test_a_higher_clock_is_named() -> None:
    a = runs.run(0, **runs.on_gpu(1500))
    b = runs.run(1, scale=dict.fromkeys(runs.TIMES_S, 0.75), **runs.on_gpu(2000))
    found = verdicts(a, b)["matmul_fp32"]
    assert found.verdict is Verdict.FASTER
    assert found.note == "because the clock is higher"
    other = runs.run(1, scale=dict.fromkeys(runs.TIMES_S, 0.5), **runs.on_gpu(2000))
    assert verdicts(a, other)["matmul_fp32"].note == "in clock cycles too"


@pytest.mark.parametrize(
    ("anchor_s", "word"),
    [(2e-6, "slower"), (2.2e-6, "not comparable")],
)
def test_a_machine_that_slowed_down_as_a_whole(anchor_s: float, word: str) -> None:
    """The anchor tells a slow row from a slow hour."""
    usual = {"anchor_s": (1.99e-6, 2.01e-6) * (runs.ROUNDS // 2)}
    slow = {"anchor_s": (0.995 * anchor_s, 1.005 * anchor_s) * (runs.ROUNDS // 2)}
    a = runs.run(0, **usual)
    b = runs.run(1, scale=dict.fromkeys(runs.TIMES_S, 1.1), **slow)
    found = verdicts(a, b)["host_copy"]
    assert str(found.verdict) == word
    assert ("conditions changed: the anchor too took 1.10" in found.reason) == (
        word == "not comparable"
    )


def test_a_b_a_says_when_conditions_changed() -> None:
    a, b = runs.run(0), runs.run(1, scale={"h2d": 0.5})
    warm = runs.run(2, scale={"h2d": 1.2})
    found = verdicts(a, b, again=warm)
    assert found["h2d"].verdict is Verdict.NOT_COMPARABLE
    assert "conditions changed: the reference again took 1." in found["h2d"].reason
    same = verdicts(a, b, again=runs.run(3))["h2d"]
    assert (same.verdict, same.sessions) == (Verdict.FASTER, (10, 5))


def test_a_b_a_asks_for_more_than_the_reference_changes_by_itself() -> None:
    """Two occasions of one dock lie apart; the other dock lies between them."""
    a, b = runs.run(0, between=0.05), runs.run(1, scale={"h2d": 0.93}, between=0.002)
    later = runs.run(2, scale={"h2d": 0.91}, between=0.05)
    found = verdicts(a, b, again=later)["h2d"]
    assert found.verdict not in SURE


def test_transfers_have_no_sm_clock() -> None:
    a = runs.run(0, **runs.on_gpu(900))
    b = runs.run(1, scale={"h2d": 0.5}, **runs.on_gpu(1800))
    found = verdicts(a, b)["h2d"]
    assert (found.verdict, found.note) == (Verdict.FASTER, "")


def test_a_clock_that_explains_little_is_not_named() -> None:
    a = runs.run(0, **runs.on_gpu(1500))
    b = runs.run(1, scale={"matmul_fp32": 0.8}, **runs.on_gpu(1510))
    assert verdicts(a, b)["matmul_fp32"].note == "in clock cycles too"


@pytest.mark.parametrize("field", ["cpu_name", "system"])
def test_one_run_is_of_one_machine(field: str) -> None:
    a = runs.run(0)
    mixed = on_machine(replace(a, sessions=a.sessions[:2]), **{field: "other"})
    found = verdicts(a, replace(a, sessions=(*mixed.sessions, *a.sessions[2:])))["h2d"]
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert "one run, different machines: " in found.reason


def test_another_computer_is_said() -> None:
    found = verdicts(runs.run(0), on_machine(runs.run(1), cpu_name="other"))["h2d"]
    assert found.note == "with another computer"


def test_allowed_threads_are_also_allowed_in_the_settings() -> None:
    a = changed(runs.run(0), settings={"n": 8, "threads": 2})
    b = changed(runs.run(1), settings={"n": 8, "threads": 4})
    b = on_machine(b, torch_threads=4)
    assert "--allow threads" in verdicts(a, b)["h2d"].reason
    assert verdicts(a, b, allow=["threads"])["h2d"].speedup


def test_a_row_listed_twice_counts_once() -> None:
    a = runs.run(0)
    sessions = tuple(
        replace(s, measurements=s.measurements * 3) for s in a.sessions[:2]
    )
    assert verdicts(a, replace(a, sessions=sessions))["h2d"].sessions == (5, 2)


def test_flags_that_do_not_exclude_are_noted() -> None:
    found = verdicts(runs.run(0), changed(runs.run(1), flags=("launch-bound",)))["h2d"]
    assert found.note == "candidate: launch-bound"


def test_no_geometric_mean_of_what_is_not_comparable() -> None:
    a = runs.run(0, anchor_s=(1.99e-6, 2.01e-6) * (runs.ROUNDS // 2))
    slow = dict.fromkeys(runs.TIMES_S, 1.2)
    b = runs.run(1, scale=slow, anchor_s=(2.38e-6, 2.42e-6) * (runs.ROUNDS // 2))
    assert compare.groups(compare.versus(a, b)) == []
    few = (runs.run(0, sessions=3), runs.run(1, sessions=3))
    assert compare.groups(compare.versus(*few)) == []


def test_a_busy_run_is_marked_in_the_fleet() -> None:
    busy = changed(runs.run(0, name="busy"), flags=("busy",))
    one = runs.run(1)
    part = changed(replace(one, sessions=one.sessions[:1]), flags=("busy",))
    mixed = replace(one, sessions=(*part.sessions, *one.sessions[1:]))
    flags = {m.run.name: m.rows["h2d"].flags for m in compare.fleet([busy, mixed])}
    assert flags == {"busy": ("busy",), "run": ()}


def test_a_row_of_one_side_only() -> None:
    a, b = runs.run(0), runs.run(1, rows=("h2d", "launch"))
    found = verdicts(a, b)
    assert found["launch"].reason == "not in the reference run"
    assert found["host_copy"].reason == "not in the candidate run"


def test_geometric_means_by_group() -> None:
    a = runs.run(0)
    b = runs.run(1, scale={"matmul_fp32": 0.5, "matmul_fp16": 0.125})
    (compute,) = compare.groups(compare.versus(a, b))
    assert compute.rows == ("matmul_fp32", "matmul_fp16")
    assert compute.speedup == pytest.approx(4.0, rel=0.03)
    assert compute.low < 4.0 < compute.high


def test_a_fleet_is_sorted_slowest_first() -> None:
    names = {"quick": 0.5, "slow": 3.0, "usual": 1.0}
    made = [
        runs.run(i, name=name, scale={"matmul_fp32": scale})
        for i, (name, scale) in enumerate(names.items())
    ]
    assert [m.run.name for m in compare.fleet(made)] == ["slow", "usual", "quick"]
    other = changed(runs.run(9, name="other"), settings={"n": 9})
    assert compare.fleet([*made, other])[0].times_s == {}
    with pytest.raises(GpuLabError, match="no run has 'launch'"):
        compare.fleet(made, by="launch")


def test_simulated_rows_stay_out_of_a_fleet() -> None:
    made = changed(runs.run(0), source=Source.SIMULATED)
    assert compare.fleet([made, runs.run(1)])[0].times_s == {}
