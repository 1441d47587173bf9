"""Mixed precision: exact numerics, autocast's list, the scaler, steps and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpu_lab import bench, facts, plot
from gpu_lab.bench import amp, amp_numerics
from gpu_lab.bench.rows import WrongResult
from gpu_lab.exercises import mixed_precision as lesson
from gpu_lab.plot.gradients import HIGHEST, LOWEST, outside
from gpu_lab.records import Device, Source
from gpu_lab.timing import Plan

TINY = Plan(rounds=3, sample_s=0.0001, warmup=1)
each_mode = pytest.mark.parametrize("mode", ["float32", "float16", "bfloat16"])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """On a busy machine threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# -- numerics: exact, on any CPU --


@pytest.fixture(scope="module", params=[0, 1, 2])
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def trained(seed: int, **given: Any) -> amp_numerics.Outcome:
    cpu = Device(backend="cpu", name="c")
    return amp_numerics.train(**given, device=cpu, seed=seed)


def test_float16_loses_all_gradients_and_learns_nothing(seed: int) -> None:
    found = trained(seed, dtype="float16")
    assert found.zero_share > 0.99
    assert not found.moved
    assert found.accuracy < 0.5


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({}, 0.0),
        ({"dtype": "bfloat16"}, 0.001),
        ({"dtype": "float16", "scaled": True}, 0.01),
        ({"dtype": "float16", "weight": 1.0}, 0.01),
    ],
)
def test_range_or_a_scale_rescues_them(
    seed: int, given: dict[str, Any], most: float
) -> None:
    found = trained(seed, **given)
    assert found.zero_share <= most
    assert found.moved
    assert found.accuracy > 0.9


def test_a_training_is_the_same_each_time_and_leaves_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    assert trained(0) == trained(0)
    assert trained(0) != trained(1)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_gradients_lie_below_the_window_and_the_scale_slides_them_in() -> None:
    counts = trained(0).exponents
    assert list(counts) == sorted(counts)
    assert outside(counts) > 0.9
    assert outside(counts, scale=amp_numerics.SCALE) < 0.05
    assert trained(0, dtype="bfloat16").exponents == counts  # those of float32


def test_the_window_is_that_of_float16() -> None:
    info = torch.finfo(torch.float16)
    assert info.smallest_normal * info.eps == 2.0**LOWEST
    assert 2.0**HIGHEST <= info.max < 2.0 ** (HIGHEST + 1)
    assert outside({LOWEST - 1: 1, LOWEST: 1, HIGHEST: 1, HIGHEST + 1: 1}) == 0.5
    assert outside({LOWEST - 1: 1, HIGHEST: 3}, scale=2.0) == 0.75
    assert outside({}) == 0.0


def test_the_scaler_backs_off_at_inf_and_grows_back(cpu: Device) -> None:
    good, overflow = 1.0, float("inf")
    given = [good] * 4 + [overflow] * 2 + [good] * 6 + [float("nan")]
    trace = amp_numerics.scaler_trace(given, device=cpu)
    powers = [16, 16, 17, 17, 16, 15, 15, 15, 16, 16, 16, 17, 16]
    assert [scale for scale, _ in trace] == [2.0**p for p in powers]
    weights = [-1, -2, -3, -4, -4, -4, -5, -6, -7, -8, -9, -10, -10]
    assert [weight for _, weight in trace] == weights


def test_what_autocast_does_is_seen_by_hooks(cpu: Device) -> None:
    for dtype in ("bfloat16", "float16"):
        ops = amp_numerics.op_table(device=cpu, dtype=dtype)
        assert next(iter(ops)) == "Linear"
        assert len(ops) == 7
        assert ops["Linear"] == ("float32", dtype)
        assert ops["Conv1d"] == ops["GELU"] == (dtype, dtype)
        for name in ("CrossEntropyLoss", "MSELoss"):
            assert ops[name] == (dtype, "float32"), name


def test_old_names_are_in_the_data_alone() -> None:
    replaced = facts.settings("mixed_precision")["replaced"]
    assert [row["old"] for row in replaced if "cuda.amp" in row["old"]]
    for path in (*facts.folder("data").parent.glob("gpu_lab/**/*.py"),):
        assert "cuda.amp" not in path.read_text(encoding="utf-8"), path.name


# -- steps: speed and memory --


@each_mode
@pytest.mark.parametrize("model", ["toy", "mlp"])
def test_steps_of_linear_layers(cpu: Device, model: str, mode: str) -> None:
    arm = amp.step_arm(model, device=cpu, mode=mode, batch=6, seed=3)
    row = bench.measured(arm, device=cpu, plan=TINY)
    assert row.name == f"{model}_{mode}"
    assert row.source is Source.MEASURED
    batch = amp.TOY_BATCH if model == "toy" else 6
    assert (row.work, row.work_unit) == (batch, "sample")
    wanted = {"mode": mode, "channels_last": False, "batch": batch, "seed": 3}
    assert row.settings == wanted
    assert row.observed["saved_bytes"] > 0
    assert "peak_bytes" not in row.observed  # a CPU does not count


@pytest.mark.parametrize("model", ["cnn", "transformer"])
def test_larger_models_and_what_a_cpu_cannot(cpu: Device, model: str) -> None:
    last = model == "cnn"
    names = [f"{model}_{mode}{'_channels_last' * last}" for mode in amp.MODES]
    arms = [
        amp.step_arm(model, device=cpu, mode=mode, channels_last=last, batch=1)
        for mode in amp.MODES
    ]
    assert [arm.name for arm in arms] == names
    assert [bool(arm.calls) for arm in arms] == [True, False, False, True]
    assert "compute capability 8.0" in arms[1].reason
    assert "float16 convolutions and attention" in arms[2].reason
    for arm in (arms[0], arms[3]):
        arm.calls[0]()


def test_a_gpu_that_is_simulated_runs_the_same_steps(stand_in: Device) -> None:
    arm = amp.step_arm("toy", device=stand_in, mode="float16")
    row = bench.measured(arm, device=stand_in, plan=TINY)
    assert row.source is Source.SIMULATED


@pytest.mark.parametrize(("model", "mode"), [("vgg", "float32"), ("toy", "int8")])
def test_unknown_models_and_modes_are_refused(
    cpu: Device, model: str, mode: str
) -> None:
    with pytest.raises(ValueError, match=f"found '{model}' and '{mode}'"):
        amp.step_arm(model, device=cpu, mode=mode)


def untrained(cpu: Device, mode: str, batch: int = 8) -> amp.Training:
    given = {"mode": mode, "channels_last": False, "batch": batch, "seed": 0}
    return amp.untrained("mlp", cpu, given)


def test_saved_bytes_are_exact(cpu: Device) -> None:
    whole, half = (
        amp.saved_bytes(untrained(cpu, mode)) for mode in ("float32", "bfloat16")
    )
    # Inputs, the results of two activations and the log-probabilities; the weights
    # are there anyway. cross_entropy also keeps the labels and one number.
    assert whole == 4 * 8 * (64 + 64 + 64 + 10) + 8 * 8 + 4
    # The layers keep short copies of inputs, activations and weights (not of the first
    # layer's: nobody asks for the gradient of its inputs), the loss its own in float32.
    weights = 64 * 64 + 64 * 10
    assert half == 2 * (8 * 3 * 64 + weights) + 4 * 8 * 10 + 8 * 8 + 4


def test_saved_bytes_grow_with_the_batch(cpu: Device) -> None:
    one, two = (amp.saved_bytes(untrained(cpu, "float32", n)) for n in (8, 16))
    assert two - 4 == 2 * (one - 4)


def test_a_step_trains_and_a_wrong_loss_is_not_timed(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = untrained(cpu, "bfloat16")
    before = training.loss().item()
    for _ in range(50):
        training.step()
    assert training.loss().item() < before
    honest = amp.Training.loss

    def wrong(self: amp.Training) -> Any:
        return honest(self) * (1.1 if self.mode == "bfloat16" else 1.0)

    monkeypatch.setattr(amp.Training, "loss", wrong)
    with pytest.raises(WrongResult, match=r"toy_bfloat16: loss .* not shown"):
        amp.step_arm("toy", device=cpu, mode="bfloat16")


@pytest.mark.parametrize(("budget_s", "fits"), [(0.0, 1), (1e9, 2)])
def test_the_batch_follows_the_budget(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, budget_s: float, fits: int
) -> None:
    monkeypatch.setattr(amp, "BATCHES", ((1, 2), (1, 2)))
    plan = Plan(budget_s=budget_s)
    assert amp.fitting_batch("mlp", device=cpu, plan=plan) == fits


# -- picture and exercises --


def test_the_gradient_histogram_slides_into_the_window(drawn: list[Any]) -> None:
    shown = plot.gradients({-30: 3, -20: 1}, scale=2.0**16)
    (axes,) = drawn[0].axes
    assert axes.get_title() == "outside of float16: 75.0 %, scaled: 0.0 %"
    assert axes.get_xlabel() == "size of a gradient (power of two)"
    assert axes.get_ylabel() == "how many"
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["float16", "as they are", "times 2**16"]
    window, *bars = axes.patches
    assert (window.get_x(), window.get_x() + window.get_width()) == (-24, 16)
    assert [bar.get_x() for bar in bars] == [-30, -20, -14, -4]
    assert "from 2**-30 to 2**-19" in shown.alt
    assert shown.caption.startswith("outside of float16: 75.0 %")
    plot.gradients({}, scale=1.0)  # a training without gradients


def test_right_scales_are_the_smallest_that_float16_bears() -> None:
    for net in facts.settings("mixed_precision")["nets"].values():
        edges = torch.tensor([2.0 ** net["thousandth"], 1.9 * 2.0 ** net["largest"]])
        safe = []
        for power in range(40):
            low, high = (edges * 2.0**power).half().tolist()
            kept = (edges * 2.0**power)[0] >= 2.0**LOWEST
            if kept and low > 0 and high < float("inf"):
                safe.append(2**power)
        assert net["right"] == (safe[0] if safe else "bf16")


def test_shapes_that_cannot_be_compared_are_not_judged() -> None:
    pairs = lesson.simulated_pairs()
    alone = [replace(row, group="") for row in pairs["small"]]
    answer = lesson.right_gains()
    assert answer == {"small": "no", "middle": "yes", "large": "yes"}
    found = lesson.who_gains(answer, pairs=pairs | {"small": alone})
    assert found.verdict == "NOT MEASURABLE HERE"
