"""Predicted bytes and FLOP against numbers that can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peers import real
from torch import nn

from gpu_lab import fit
from gpu_lab.fit import step, work
from gpu_lab.fit.step import Case
from gpu_lab.records import GpuLabError

WIDTH, BATCH = 256, 8
WEIGHTS = WIDTH * WIDTH + WIDTH  # of one layer with its bias
MODELS = Path(__file__).parent / "peers" / "models.py"


class Half(nn.Module):
    """A block of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def layers(number: int = 2) -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(number)))


def case(make=layers, sizes: str = f"{BATCH}x{WIDTH}") -> Case:
    return Case(name="tiny", make=make, inputs=(step._input(sizes),))


@pytest.mark.parametrize(
    ("optimizer", "floats"),
    [("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2), ("rmsprop", 1)],
)
def test_parameters_gradients_and_states_are_exact(optimizer: str, floats: int) -> None:
    found = fit.predict(case(), fit.Setting(optimizer=optimizer))
    tensors = 4
    counters = tensors * 4 if optimizer in ("adam", "adamw", "rmsprop") else 0
    assert found.parameters == 2 * WEIGHTS * 4
    if floats == 2:  # then the fullest moment is the optimizer's: all gradients exist
        assert found.gradients == 2 * WEIGHTS * 4
    assert found.optimizer == floats * 2 * WEIGHTS * 4 + counters


def test_saved_tensors_are_exact_and_agree_with_the_hooks() -> None:
    """Many samples, small layers: the peak is where all activations are alive."""
    batch = 4096
    wide = case(lambda: layers(4), f"{batch}x{WIDTH}")
    found = fit.predict(wide, fit.Setting(optimizer="sgd", loss="mean"))
    model, seen = layers(4), {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        step.loss_of(model(torch.randn(batch, WIDTH)), "mean")
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved = sum(size for at, size in seen.items() if at not in own)
    row = batch * WIDTH * 4
    assert saved == 4 * row  # the input of each layer
    # Besides these the output of the last layer, and the gradients of two of them.
    assert found.activations == pytest.approx(saved + row, abs=64)
    assert found.temporaries == pytest.approx(2 * row, abs=2 * WEIGHTS * 4)


def test_inference_keeps_no_gradients_and_no_states() -> None:
    found = fit.predict(case(), fit.Setting(task="infer"))
    assert (found.gradients, found.optimizer) == (0, 0)
    row = BATCH * WIDTH * 4
    assert found.link_bytes == 2 * row
    assert found.peak == 2 * WEIGHTS * 4 + 3 * row  # input, middle, output


def test_weights_in_bf16_take_half() -> None:
    found = fit.predict(case(), fit.Setting(task="infer", precision="bf16-true"))
    assert found.parameters == 2 * WEIGHTS * 2


def test_autocast_keeps_weights_whole_and_halves_activations() -> None:
    wide = case(lambda: nn.Sequential(*(Half() for _ in range(4))), f"4096x{WIDTH}")
    whole, half = (
        fit.predict(wide, fit.Setting(precision=p, optimizer="sgd"))
        for p in ("fp32", "bf16")
    )
    assert whole.parameters == half.parameters
    assert half.activations < 0.7 * whole.activations


def test_checkpointing_saves_activations_and_costs_a_forward_pass() -> None:
    deep = case(lambda: nn.Sequential(*(Half() for _ in range(8))), f"4096x{WIDTH}")
    plain = fit.predict(deep, fit.Setting(optimizer="sgd"))
    again = fit.predict(deep, fit.Setting(optimizer="sgd", checkpoint=True))
    assert again.activations < 0.6 * plain.activations
    assert plain.gradients == again.gradients
    one = 2 * 16 * 4096 * WIDTH * WIDTH  # the forward pass
    assert plain.flop == pytest.approx(3 * one, rel=0.03)  # input needs no gradient
    assert again.flop - plain.flop == one / 2  # what a block ends with is not needed


def test_nothing_to_checkpoint_is_said() -> None:
    with pytest.raises(GpuLabError, match="nothing to checkpoint"):
        fit.predict(case(), fit.Setting(checkpoint=True))


def test_blocks_are_the_outermost_members_of_lists_that_have_parts() -> None:
    inner = nn.Sequential(Half(), nn.ReLU(), nn.Sequential(Half()))
    model = nn.Sequential(nn.Linear(2, 2), inner, nn.ModuleDict({"a": Half()}))
    found = step.blocks(model)
    assert [type(b) for b in found] == [Half, Half, nn.ModuleDict]


def test_accumulation_shares_the_samples_and_keeps_the_flop() -> None:
    wide = case(lambda: layers(4), f"4096x{WIDTH}")
    whole = fit.predict(wide, fit.Setting(optimizer="sgd"))
    parts = fit.predict(wide, fit.Setting(optimizer="sgd", accumulate=8))
    assert parts.activations == pytest.approx(whole.activations / 8, rel=0.02)
    assert parts.flop == whole.flop
    assert parts.link_bytes == whole.link_bytes


def test_a_foreach_optimizer_takes_room_for_all_parameters_at_once() -> None:
    big = case(lambda: layers(6), f"1x{WIDTH}")
    each, together = (
        fit.predict(big, fit.Setting(on_cpu=on_cpu)) for on_cpu in (True, False)
    )
    assert together.peak - each.peak > 4 * WEIGHTS * 4


def test_flop_of_products_and_grouped_convolutions_are_exact() -> None:
    plain = fit.predict(case(), fit.Setting(task="infer"))
    assert plain.flop == 2 * 2 * BATCH * WIDTH * WIDTH
    picture = "2x8x16x16"
    conv = case(lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), picture)
    forward = 2 * 2 * 8 * 16 * 16 * 9
    infer = fit.predict(conv, fit.Setting(task="infer"))
    assert infer.flop == forward
    train = fit.predict(conv, fit.Setting(optimizer="sgd"))
    assert train.flop == 2 * forward  # and the gradient of the weights alone


def test_bytes_count_what_exists_and_views_are_free() -> None:
    table = torch.zeros(1000, 4)
    with work.recorder() as found:
        torch.ones(8, 1).expand(8, 100).t() + 1.0
        nn.functional.embedding(torch.zeros(3, dtype=torch.int64), table)
    moved = {op.size_bytes for op in found.work}
    assert 8 * 4 + 800 * 4 in moved  # eight numbers read, eight hundred written
    assert max(moved) < 1000 * 4 * 4  # not the whole table
    assert set(found.work.values()) == {1}


def test_a_scalar_output_is_its_own_loss() -> None:
    class Loss(Half):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).square().mean()

    assert fit.predict(case(Loss), fit.Setting()).gradients > 0


@pytest.mark.parametrize("name", ["gpt", "lstm", "mlp"])
def test_models_of_files_are_built_and_predicted(name: str) -> None:
    sizes = "2x512" if name == "mlp" else "2x16:int"
    found = fit.predict(fit.load(f"{MODELS}:{name}", inputs=sizes), fit.Setting())
    assert found.peak > found.parameters + found.optimizer > found.parameters > 0


def test_decoding_sees_one_position_and_gives_one_token() -> None:
    gpt = fit.load(f"{MODELS}:gpt", inputs="4x64:int")
    found = fit.predict(gpt, fit.Setting(task="decode"))
    assert found.link_bytes == 4 * 8 + 4 * 8


class Reads(nn.Module):
    """A module whose sizes depend on its data."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "item":
            return self.layer(x) * x.sum().item()
        if self.how == "if":
            return self.layer(x) if x.sum() > 0 else x
        return self.layer(x[x > 0].reshape(-1, WIDTH))


@pytest.mark.parametrize("how", ["item", "if", "mask"])
def test_what_depends_on_data_is_one_line(how: str) -> None:
    with pytest.raises(GpuLabError, match="reads values of a tensor") as error:
        fit.predict(case(lambda: Reads(how)), fit.Setting())
    assert "\n" not in str(error.value)


def test_shapes_that_do_not_match_are_one_line() -> None:
    with pytest.raises(GpuLabError, match=r"tiny with inputs 8x3: .*") as error:
        fit.predict(case(sizes="8x3"), fit.Setting())
    assert "\n" not in str(error.value)


def test_an_output_without_numbers_cannot_be_trained() -> None:
    class Best(Half):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).argmax(-1)

    with pytest.raises(GpuLabError, match="no floating-point tensor"):
        fit.predict(case(Best), fit.Setting())
    assert fit.predict(case(Best), fit.Setting(task="infer")).peak


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"optimizer": "magic"}, "optimizer 'magic'; wanted one of sgd, momentum"),
        ({"precision": "fp7"}, "precision 'fp7'; wanted one of fp32, bf16"),
        ({"task": "sleep"}, "task 'sleep'; wanted one of train, infer, decode"),
        ({"loss": "x"}, "loss 'x'; wanted one of cross-entropy, mean"),
        ({"accumulate": 0}, "accumulate 0; wanted 1 or more"),
    ],
)
def test_settings_that_nobody_knows(given: dict, words: str) -> None:
    with pytest.raises(GpuLabError, match=words):
        fit.Setting(**given)


@pytest.mark.parametrize(
    ("spec", "inputs", "words"),
    [
        ("resnet50", "", "wanted torchvision:NAME or FILE.py:NAME"),
        ("torchvision:resnet5", "", "ValueError: Unknown model resnet5"),
        ("no.py:make", "1x1", "FileNotFoundError: .*no.py"),
        ("{file}:nothing", "1x1", "no function 'nothing' in it"),
        ("{file}:fine", "", "input ''; wanted sizes"),
        ("{file}:fine", "8xbig", "input '8xbig'; wanted sizes"),
        ("{file}:fine", "8x3:float33", "input '8x3:float33'; wanted sizes"),
        ("{file}:fine", "0x3", "input '0x3'; wanted sizes"),
        ("{broken}:make", "1x1", "ZeroDivisionError: division by zero"),
    ],
)
def test_wrong_specifications(
    spec: str, inputs: str, words: str, tmp_path: Path
) -> None:
    good, broken = tmp_path / "good.py", tmp_path / "broken.py"
    good.write_text("def fine():\n    pass\n")
    broken.write_text("1 / 0\n")
    named = spec.format(file=good, broken=broken)
    with pytest.raises(GpuLabError, match=words) as error:
        fit.predict(fit.load(named, inputs=inputs), fit.Setting())
    assert "\n" not in str(error.value)


def test_a_function_that_returns_no_module(tmp_path: Path) -> None:
    file = tmp_path / "my.py"
    file.write_text("def make():\n    return 3\n")
    with pytest.raises(GpuLabError, match=r"wanted a torch\.nn\.Module, found int"):
        fit.predict(fit.load(f"{file}:make", inputs="1x1"), fit.Setting())


def test_a_batch_replaces_the_first_size_of_each_input() -> None:
    found = fit.load(f"{MODELS}:gpt", inputs="8x16:int,8x3", batch=2)
    assert found.inputs == (((2, 16), "int64"), ((2, 3), "float32"))
    assert str(found).endswith("with inputs 2x16,2x3")
    with pytest.raises(GpuLabError, match="batch 0; wanted 1 or more"):
        fit.load(f"{MODELS}:gpt", inputs="8x16:int", batch=0)


def test_no_weights_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a download")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    for name in ("resnet18", "fcn_resnet50"):  # the second one fetches a backbone
        assert fit.load(f"torchvision:{name}").make()


@pytest.mark.parametrize("words", [{}, {"precision": "bf16"}, {"checkpoint": True}])
def test_the_allocator_of_a_real_step_counts_the_same(words: dict) -> None:
    """Another instrument; F1 of `make bench` does the same with large models."""
    from torch.profiler import ProfilerActivity, profile

    gpt = fit.load(f"{MODELS}:gpt", inputs="2x64:int")
    setting = fit.Setting(on_cpu=True, **words)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        real.steps(gpt, setting, 2)
    assert fit.predict(gpt, setting).peak == pytest.approx(real.peak(found), rel=0.02)
