"""`gpu-lab fit`: the answer first, the search, the options, the table of cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_lab import cli, facts, fit, store
from gpu_lab.records import Session

WIDTH = 1024
GPT = f"{Path(__file__).parent / 'peers' / 'models.py'}:gpt"
TEXT = f"""
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear({WIDTH}, {WIDTH}), nn.ReLU(), nn.Linear({WIDTH}, {WIDTH})
        )

    def forward(self, x):
        return self.layers(x)

def make():
    return nn.Sequential(*(Block() for _ in range(4)))
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "my_model.py"
    file.write_text(TEXT)
    return f"{file}:make"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    code = cli.main(["fit", *words])
    ended = capsys.readouterr()
    return code, (ended.out or ended.err).splitlines()


def test_what_fits_is_said_first_and_the_batch_is_the_largest(spec, capsys) -> None:
    code, lines = run(capsys, spec, "--input", f"4096x{WIDTH}", "--memory", "3GiB")
    assert code == 0
    assert lines[0].startswith("fits: needs ")
    assert "there are 3.0 GiB" in lines[0]
    (most,) = [int(x.rsplit(" ", 1)[1]) for x in lines if x.startswith("largest batch")]
    case, setting, limit = fit.load(spec, inputs=f"1x{WIDTH}"), fit.Setting(), 3 * 2**30
    assert fit.predict(case.of_batch(most), setting).need[1] <= limit
    assert fit.predict(case.of_batch(most + 1), setting).need[1] > limit


def test_what_does_not_fit_is_a_finding_with_options(spec, capsys) -> None:
    code, lines = run(capsys, spec, "--input", f"65536x{WIDTH}", "--memory", "3GiB")
    assert code == 1
    assert lines[0].startswith("does not fit: ")
    said = {x.split()[1].strip(":"): x for x in lines if x.startswith("  with ")}
    assert set(said) == {"bf16", "checkpointing", "micro-batches", "plain"}
    assert ": fits, " in said["micro-batches"]
    assert ": does not fit, " in said["plain"]
    assert "% FLOP" in said["checkpointing"]


def test_on_the_edge_is_where_only_the_allowance_decides(spec, capsys) -> None:
    found = fit.predict(fit.load(spec, inputs=f"4096x{WIDTH}"), fit.Setting())
    low, high = found.need
    between = (low + high) / 2
    assert fit.verdict(found, between) == fit.EDGE
    assert fit.verdict(found, high) == fit.FITS
    assert fit.verdict(found, low - 1) == fit.NOT
    memory = f"{between / 2**20:.0f}MiB"
    code, lines = run(capsys, spec, "--input", f"4096x{WIDTH}", "--memory", memory)
    assert (code, lines[0].split(":")[0]) == (0, "on the edge")


@pytest.mark.parametrize("start", [1, 7, 1000])
@pytest.mark.parametrize(
    ("limit", "most"), [(99, 0), (100, 9), (150, 12), (1000, 97), (10**9, 2**20)]
)
def test_the_search_finds_the_last_that_fits(
    start: int, limit: float, most: int
) -> None:
    """Flat up to 10 samples, as where the optimizer decides, then a line."""

    def need(n: int) -> float:
        return max(100.0, 10.6 * n + 20) if n < 10 else 10.05 * n + 25

    right = max((n for n in range(1, 200) if need(n) <= limit), default=0)
    found = fit.largest_batch(need, limit, start=start)
    assert found == (right if most < 2**20 else found)
    assert found <= 2**20
    assert need(found) <= limit or found == 0
    assert need(found + 1) > limit or most == 2**20


def test_without_a_memory_the_need_is_the_answer(spec, capsys) -> None:
    code, lines = run(capsys, spec, "--input", f"8x{WIDTH}")
    assert code == 0
    assert lines[0].startswith("needs ")


def test_a_card_gives_memory_and_time(spec, capsys) -> None:
    words = (spec, "--input", f"8x{WIDTH}", "--card", "NVIDIA GeForce RTX 3090")
    _, lines = run(capsys, *words)
    assert "there are 24.0 GiB" in lines[0]
    assert any(x.startswith("step: about ") and "RTX 3090" in x for x in lines)


def test_the_link_costs_nothing_when_weights_stay(capsys) -> None:
    words = (GPT, "--input", "1x64:int", "--card", "NVIDIA GeForce RTX 3090")
    _, lines = run(capsys, *words, "--task", "decode", "--link", "thunderbolt4")
    (said,) = [x for x in lines if x.startswith("Thunderbolt 4 against PCIe 4.0 x16")]
    assert "no loss to be seen" in said


def test_the_link_costs_much_when_weights_have_no_room(spec, capsys) -> None:
    words = (spec, "--input", f"8x{WIDTH}", "--card", "NVIDIA GeForce RTX 3090")
    small = (*words, "--memory", "300MiB", "--task", "infer")
    _, lines = run(capsys, *small, "--link", "thunderbolt4")
    (said,) = [x for x in lines if x.startswith("Thunderbolt 4 against")]
    assert "no loss" not in said


def test_a_run_gives_the_speed(spec, capsys, tmp_path, session: Session) -> None:
    folder = tmp_path / "run"
    store.save(session, folder / "sessions" / "core.json")
    words = (spec, "--input", f"8x{WIDTH}", "--run", str(folder))
    code, lines = run(capsys, *words)
    assert (code, len(lines)) == (2, 1)  # it has a copy and no product
    assert "wanted timed rows of products and of copies" in lines[0]


def test_the_table_of_cards(spec, capsys, tmp_path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("name,price\nGeForce RTX 3090,700\n")
    words = (spec, "--input", f"32768x{WIDTH}", "--cards", "--prices", str(prices))
    code, lines = run(capsys, *words)
    assert code == 0
    cards = len(facts.table("gpus"))
    assert lines[0].startswith("fits on ")
    assert f"of {cards} cards" in lines[0]
    assert len(lines) == cards + 2
    (own,) = [x for x in lines if "NVIDIA GeForce RTX 3090 " in x]
    assert own.split()[-2:] == ["yes", "700"]
    fits = [" fits " in x for x in lines[2:]]
    assert fits == sorted(fits, reverse=True)
    assert any(fits)
    assert not all(fits)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["torchvision:nothing"], "ValueError: Unknown model nothing"),
        (["{spec}"], "input ''; wanted sizes"),
        (["{spec}", "--input", "8x3"], "with inputs 8x3: RuntimeError"),
        (["{spec}", "--input", "8x1024", "--memory", "8"], "memory '8'; wanted a size"),
        (["{spec}", "--input", "8x1024", "--card", "x"], "no card 'x'"),
        (["{spec}", "--input", "8x1024", "--link", "teapot"], "no link 'teapot'"),
        (
            ["{spec}", "--input", "8x1024", "--link", "thunderbolt4"],
            "--link needs the speed",
        ),
        (["{spec}", "--input", "8x1024", "--optimizer", "x"], "optimizer 'x'; wanted"),
    ],
)
def test_errors_are_one_line_and_2(words, found, spec, capsys) -> None:
    assert cli.main(["fit", *(w.format(spec=spec) for w in words)]) == 2
    error = capsys.readouterr().err
    assert found in error
    assert error.count("\n") == 1


def test_prices_need_their_columns(spec, capsys, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("card,euro\nx,1\n")
    words = (spec, "--input", f"8x{WIDTH}", "--cards", "--prices", str(file))
    code, lines = run(capsys, *words)
    assert (code, len(lines)) == (2, 1)
    assert "columns name and price" in lines[0]


def test_changes_are_those_that_change_something(spec) -> None:
    case = fit.load(spec, inputs=f"8x{WIDTH}")
    infer = fit.changes(case, fit.Setting(task="infer"))
    assert [what for what, _, _ in infer] == ["weights in bf16"]
    small = fit.Setting(
        precision="bf16", optimizer="sgd", accumulate=8, checkpoint=True
    )
    assert list(fit.changes(case, small)) == []
    assert len(list(fit.changes(case, fit.Setting()))) == 4
