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
Link = facts.Row | None
COLUMNS = ("card", "memory", "answer", "step", "TDP", "default wheel", "price")


def run(args: argparse.Namespace) -> int:
    """Print the answer, its reasons and what would change it; 1 when it does not fit.

    Raises:
        GpuLabError: a model, setting, memory, card, link or run that is none.
    """
    card = bench.ceiling.card(args.card) if args.card else None
    speed = fit.of_card(card) if card else None
    speed = fit.of_run(store.load_run(args.run)) if args.run else speed
    room = _card_bytes(card) if card else 0.0
    room = units.parse_size(args.memory) if args.memory else room
    link = facts.link(args.link) if args.link else None
    if link and not speed:
        raise GpuLabError("--link needs the speed of a card: try --card or --run")
    setting = Setting(**{word: getattr(args, word) for word in WORDS})
    case = fit.load(args.model, inputs=args.input, batch=args.batch)
    found = fit.predict(case, setting)
    if args.cards:
        rows = card_rows(found, prices=_prices(args.prices))
        print(cards_line(rows), show.Table(rows, COLUMNS), sep="\n")
        return 0
    for line in memory_lines(case, setting, found, room):
        print(line, flush=True)
    if speed:
        print(*speed_lines(found, setting, speed, room, link), sep="\n")
    return int(room > 0 and fit.verdict(found, room) == fit.NOT)


def memory_lines(
    case: Case, setting: Setting, found: Prediction, room: float
) -> Iterator[str]:
    """The answer in the first line; the split, the largest batch, what would help.

    Args:
        room: bytes that there are; 0 when nobody said.
    """
    said = fit.verdict(found, room)
    there = f", there are {units.memory(room)}" if room else ""
    yield f"{f'{said}: ' if room else ''}needs {_range(*found.need)}{there}"
    for part in PARTS:
        yield f"  {part:12s} {units.memory(getattr(found, part)):>11s}"
    spare = _range(*(need - found.peak for need in found.need))
    yield f"  allowance    {spare}: CUDA context, rounding, workspaces (stated)"
    if not room:
        return
    most = fit.largest_batch(
        lambda n: fit.predict(case.of_batch(n), setting).need[1], room, start=case.batch
    )
    yield f"largest batch that fits for sure: {most}"
    changes = list(fit.changes(case, setting)) if said != fit.FITS else []
    for what, changed, cost in show.progress(changes, what="changes"):
        yield f"  with {what}: {_change(case, changed, found, room)}; {cost}"


def _change(case: Case, changed: Setting, found: Prediction, room: float) -> str:
    try:
        then = fit.predict(case, changed)
    except GpuLabError as error:
        return str(error)
    more = 100 * (then.flop / (found.flop or 1.0) - 1)
    flop = f", {more:+.0f} % FLOP" if abs(more) >= 0.5 else ""
    return f"{fit.verdict(then, room)}, {_range(*then.need)}{flop}"


def _range(*sizes: float) -> str:
    return " to ".join(map(units.memory, sizes))


def speed_lines(
    found: Prediction, setting: Setting, speed: Speed, room: float, link: Link
) -> Iterator[str]:
    """Seconds of a step with no digit more than the method has, and the link's loss."""
    step_s = speed.step_s(found.work)
    if step_s is None:
        yield f"step: n/a, no rate for one of its dtypes is known of {speed.name}"
        return
    scales = (1.0, 1 / speed.factor, speed.factor)
    about = [units.about(step_s * f, factor=speed.factor) for f in scales]
    how = f"each operator on the roofline of {speed.name}"
    yield f"step: about {about[0]}, within {about[1]} to {about[2]} ({how})"
    if not link:
        return
    given = facts.settings("fit")
    over = max(0.0, found.need[1] - room) if room else 0.0
    crossing = found.link_bytes + over * given["task"][setting.task]
    least, most = fit.slowdown(crossing, step_s, factor=speed.factor, link=link)
    said = f"{units.ratio(least)} to {units.ratio(most)} the time"
    if most < given["link"]["no_loss"]:
        said = "no loss to be seen, also with copies that wait"
    moved = f"{units.memory(crossing)} a step"
    yield f"{link['link']} against {given['link']['slot']}: {said} ({moved})"


def _card_bytes(row: facts.Row) -> float:
    return float(row["memory_gb"] or 0) * 2**30


def card_rows(found: Prediction, *, prices: dict[str, str]) -> list[tuple[str, ...]]:
    """Rows of COLUMNS for each card: what fits first, the fastest of these first."""
    order, rows = (fit.FITS, fit.EDGE, fit.NOT, units.NOT_AVAILABLE), []
    for row in facts.table("gpus"):
        speed, room = fit.of_card(row), _card_bytes(row)
        step_s = speed.step_s(found.work) if speed else None
        said = fit.verdict(found, room) if room else units.NOT_AVAILABLE
        about = units.about(step_s, factor=speed.factor if speed else 1.0)
        watts = units.power(float(row["tdp_w"]) if row["tdp_w"] else None)
        wheel = "yes" if row["torch_2_14_wheel"].startswith("default") else "no"
        text = (row["name"], units.memory(room or None), said, about, watts, wheel)
        priced = (*text, prices.get(row["name"], ""))
        rows.append((order.index(said), step_s or math.inf, priced))
    return [text for *_, text in sorted(rows)]


def cards_line(rows: list[tuple[str, ...]]) -> str:
    """How many cards have room for it, and which of them is the fastest."""
    fits = [row for row in rows if row[2] == fit.FITS]
    first = f"; fastest on paper: {fits[0][0]}, {fits[0][3]} a step" if fits else ""
    return f"fits on {len(fits)} of {len(rows)} cards of data/gpus.csv{first}"


def _prices(path: Path | None) -> dict[str, str]:
    rows = csv.DictReader(path.read_text("utf-8").splitlines() if path else ())
    if path and not {"name", "price"} <= set(rows.fieldnames or ()):
        raise GpuLabError(f"{path}: wanted a CSV file with the columns name and price")
    return {bench.ceiling.card(row["name"])["name"]: row["price"] for row in rows}
