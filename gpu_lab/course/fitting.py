"""`gpu-lab fit`: will a model run in that memory, how fast, and on which card."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from pathlib import Path

from gpu_lab import bench, facts, fit, show, store, units
from gpu_lab.fit import Case, Prediction, Setting, Speed
from gpu_lab.records import GpuLabError

WORDS = ("task", "optimizer", "precision", "accumulate", "checkpoint", "loss")
PARTS = ("parameters", "gradients", "optimizer", "activations", "temporaries", "peak")
COLUMNS = ("card", "memory", "answer", "step", "TDP", "default wheel", "price")
EXIT_FINDING = 1


def run(args: argparse.Namespace) -> int:
    """Print the answer, its reasons and what would change it; 1 when it does not fit.

    Raises:
        GpuLabError: a model, setting, memory, card, link or run that is none.
    """
    card = bench.ceiling.card(args.card) if args.card else None
    speed = fit.of_card(card) if card else None
    speed = fit.of_run(store.load_run(args.run)) if args.run else speed
    memory_bytes = _card_bytes(card) if card else 0.0
    memory_bytes = units.parse_size(args.memory) if args.memory else memory_bytes
    link = facts.link(args.link) if args.link else None
    if link and not speed:
        raise GpuLabError("--link needs the speed of a card: try --card or --run")
    setting = Setting(**{word: getattr(args, word) for word in WORDS})
    case = fit.load(args.model, inputs=args.input, batch=args.batch)
    found = fit.predict(case, setting)
    if args.cards:
        rows = card_rows(found, prices=_prices(args.prices) if args.prices else {})
        print(cards_line(rows), show.Table(rows, COLUMNS), sep="\n")
        return 0
    said = _print_memory(case, setting, found, memory_bytes)
    if speed:
        over = max(0.0, found.need[1] - memory_bytes) if memory_bytes else 0.0
        print(*speed_lines(found, setting, speed, over=over, link=link), sep="\n")
    _print_changes(case, setting, found, memory_bytes, said=said)
    return EXIT_FINDING if said == fit.NOT else 0


def _print_memory(
    case: Case, setting: Setting, found: Prediction, memory_bytes: float
) -> str:
    """The verdict, after its lines; the largest batch takes a while and comes last."""
    print(*memory_lines(found, memory_bytes), sep="\n", flush=True)
    if not memory_bytes:
        return ""

    def need(batch: int) -> float:
        return fit.predict(case.of_batch(batch), setting).need[1]

    most = fit.largest_batch(need, memory_bytes, start=case.batch)
    print(f"largest batch that fits for sure: {most}", flush=True)
    return fit.verdict(found, memory_bytes)


def _print_changes(
    case: Case, setting: Setting, found: Prediction, memory_bytes: float, *, said: str
) -> None:
    wanted = list(fit.changes(case, setting)) if said in (fit.EDGE, fit.NOT) else []
    for what, changed, cost in show.progress(wanted, what="changes"):
        try:
            then = fit.predict(case, changed)
        except GpuLabError as error:
            print(f"  with {what}: {error}")
            continue
        more = then.flop / found.flop - 1 if found.flop else 0.0
        flop = f", {100 * more:+.0f} % FLOP" if abs(more) >= 0.005 else ""
        answer = f"{fit.verdict(then, memory_bytes)}, {_range(then.need)}"
        print(f"  with {what}: {answer}; {cost}{flop}", flush=True)


def memory_lines(found: Prediction, memory_bytes: float) -> Iterator[str]:
    """The answer in the first line, then the split of the peak and the allowance."""
    need = f"needs {_range(found.need)}"
    if memory_bytes:
        there = units.memory(memory_bytes)
        need = f"{fit.verdict(found, memory_bytes)}: {need}, there are {there}"
    yield need
    for part in PARTS:
        yield f"  {part:12s} {units.memory(getattr(found, part)):>11s}"
    spare = _range((found.need[0] - found.peak, found.need[1] - found.peak))
    yield f"  allowance    {spare}: CUDA context, rounding, workspaces (stated)"


def _range(sizes: tuple[float, float]) -> str:
    return " to ".join(map(units.memory, sizes))


def speed_lines(
    found: Prediction,
    setting: Setting,
    speed: Speed,
    *,
    over: float,
    link: facts.Row | None,
) -> Iterator[str]:
    """Seconds of a step with no digit more than the method has, and the link's loss.

    Args:
        over: bytes that have no room on the card and cross the link in each step.
    """
    step_s = speed.step_s(found.work)
    if step_s is None:
        yield f"step: n/a, no rate for one of its dtypes is known of {speed.name}"
        return
    scales = (1.0, 1 / speed.factor, speed.factor)
    about = [units.about(step_s * f, factor=speed.factor) for f in scales]
    how = f"each operator on the roofline of {speed.name}"
    yield f"step: about {about[0]}, within {about[1]} to {about[2]} ({how})"
    if link:
        given = facts.settings("fit")
        crossing = found.link_bytes + over * given["task"][setting.task]
        least, most = fit.slowdown(crossing, step_s, factor=speed.factor, link=link)
        said = f"{units.ratio(least)} to {units.ratio(most)} the time"
        if most < given["link"]["no_loss"]:
            said = "no loss to be seen, also with copies that wait"
        slowest = units.bandwidth(fit.link_rates(link)[0])
        moved = f"{units.memory(crossing)} a step at {slowest}"
        yield f"{link['link']} against {given['link']['slot']}: {said} ({moved})"


def card_rows(found: Prediction, *, prices: dict[str, str]) -> list[tuple[str, ...]]:
    """Rows of COLUMNS for each card: what fits first, the fastest of these first."""
    order = (fit.FITS, fit.EDGE, fit.NOT, units.NOT_AVAILABLE)
    rows = []
    for row in facts.table("gpus"):
        speed, size_bytes = fit.of_card(row), _card_bytes(row)
        step_s = speed.step_s(found.work) if speed else None
        said = fit.verdict(found, size_bytes) if size_bytes else units.NOT_AVAILABLE
        text = (
            row["name"],
            units.memory(size_bytes or None),
            said,
            units.about(step_s, factor=speed.factor if speed else 1.0),
            units.power(float(row["tdp_w"]) if row["tdp_w"] else None),
            "yes" if row["torch_2_14_wheel"].startswith("default") else "no",
            prices.get(row["name"], ""),
        )
        rows.append((order.index(said), step_s or math.inf, text))
    return [text for *_, text in sorted(rows)]


def _card_bytes(row: facts.Row) -> float:
    """Memory of a card in bytes; 0 where it is not known."""
    return float(row["memory_gb"] or 0) * 2**30


def cards_line(rows: list[tuple[str, ...]]) -> str:
    """How many cards have room for it, and which of them is the fastest."""
    fits = [row for row in rows if row[2] == fit.FITS]
    known = fits and fits[0][3] != units.NOT_AVAILABLE
    first = f"; fastest on paper: {fits[0][0]}, about {fits[0][3]} a step"
    said = f"fits on {len(fits)} of {len(rows)} cards of data/gpus.csv"
    return said + (first if known else "")


def _prices(path: Path) -> dict[str, str]:
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    if not {"name", "price"} <= set(rows.fieldnames or ()):
        raise GpuLabError(f"{path}: wanted a CSV file with the columns name and price")
    return {bench.ceiling.card(row["name"])["name"]: row["price"] for row in rows}
