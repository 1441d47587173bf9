"""The answer in words: fits or not, the largest batch, what would help, which card."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_lab import facts, units
from gpu_lab.bench import ceiling
from gpu_lab.fit import speed
from gpu_lab.fit.memory import PARTS, Prediction, predict
from gpu_lab.fit.step import Case, Setting
from gpu_lab.records import GpuLabError, Run

FITS, EDGE, NOT = "fits", "on the edge", "does not fit"
ORDER = (FITS, EDGE, NOT, units.NOT_AVAILABLE)
SIZES = {"gib": 2**30, "mib": 2**20, "gb": 10**9, "mb": 10**6}
MOST_BATCH, LOOKS = 2**20, 24
COLUMNS = ("card", "memory", "answer", "step", "TDP", "default wheel", "price")
Change = tuple[str, Setting, str]


def size_bytes(text: str) -> float:
    """Bytes of "8GiB", "24 GB" or "512MiB".

    Raises:
        GpuLabError: no such size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mg]i?b)", text.strip().lower())
    if not match or not float(match[1]):
        raise GpuLabError(f"memory {text!r}; wanted a size such as 8GiB")
    return float(match[1]) * SIZES[match[2]]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a step is to run, as far as anybody said; 0 bytes for no memory named."""

    memory_bytes: float = 0.0
    speed: speed.Speed | None = None
    link: speed.Link | None = None


def place(*, memory: str, card: str, run: Run | None, link: str) -> Place:
    """The place that the words of a command line name.

    Raises:
        GpuLabError: a memory, card or link that is none, in one line.
    """
    row = ceiling.card(card) if card else None
    there = _card_bytes(row) if row else 0.0
    known = speed.of_run(run) if run else speed.of_card(row) if row else None
    if link and not known:
        raise GpuLabError("--link needs the speed of a card: try --card or --run")
    return Place(
        memory_bytes=size_bytes(memory) if memory else there,
        speed=known,
        link=speed.link_of(link) if link else None,
    )


def _card_bytes(row: facts.Row) -> float:
    return float(row["memory_gb"] or 0) * 2**30


def verdict(found: Prediction, memory_bytes: float) -> str:
    """Whether it fits; on the edge when only the allowance decides."""
    low, high = found.need
    return FITS if high <= memory_bytes else NOT if low > memory_bytes else EDGE


def largest_batch(need: Callable[[int], float], limit: float, *, start: int) -> int:
    """Most samples whose need keeps within the limit; 0 for none, MOST_BATCH at most.

    Memory grows in straight pieces: secants, kept between what fits and what does not.
    """
    low, high, batch = 0, MOST_BATCH + 1, start
    known: list[tuple[float, int]] = []
    for _ in range(LOOKS):
        known.append((need(batch), batch))
        low, high = (batch, high) if known[-1][0] <= limit else (low, batch)
        if high - low == 1:
            break
        (y0, x0), (y1, x1) = sorted(known, key=lambda k: abs(k[0] - limit))[:2] * (
            1 if len(known) > 1 else 2
        )
        meets = x0 + (limit - y0) * (x1 - x0) / (y1 - y0) if y1 != y0 else 2 * low
        batch = int(min(max(meets, low + 1), high - 1, 8 * max(batch, 1)))
    return low


def changes(case: Case, setting: Setting) -> list[Change]:
    """What may save memory: the name of a change, the setting with it, its cost."""
    found = []
    for given in facts.settings("fit")["changes"] if setting.trains else ():
        values = {k: case.batch if v == "batch" else v for k, v in given["set"].items()}
        found.append((given["what"], replace(setting, **values), given["cost"]))
    return [change for change in found if change[1] != setting]


def change_line(
    case: Case, change: Change, memory_bytes: float, *, before: Prediction
) -> str:
    """What one change leads to and what it costs; why not, when it cannot be made."""
    what, setting, cost = change
    try:
        found = predict(case, setting)
    except GpuLabError as error:
        return f"  with {what}: {error}"
    more = found.flop / before.flop - 1 if before.flop else 0.0
    cost += f", {100 * more:+.0f} % FLOP" if abs(more) >= 0.005 else ""
    need = " to ".join(map(units.memory, found.need))
    return f"  with {what}: {verdict(found, memory_bytes)}, {need}; {cost}"


def lines(
    case: Case, setting: Setting, found: Prediction, place: Place
) -> Iterator[str]:
    """The answer in the first line; the split, the largest batch, seconds, the link."""
    limit = place.memory_bytes
    need, there = " to ".join(map(units.memory, found.need)), units.memory(limit)
    said = f"{verdict(found, limit)}: needs {need}, there are {there}"
    yield said if limit else f"needs {need}"
    for part in (*PARTS, "peak"):
        yield f"  {part:12s} {units.memory(getattr(found, part)):>11s}"
    spare = " to ".join(units.memory(need - found.peak) for need in found.need)
    yield f"  allowance    {spare}: CUDA context, rounding, workspaces (stated)"
    if limit:
        most = largest_batch(
            lambda n: predict(case.of_batch(n), setting).need[1],
            limit,
            start=case.batch,
        )
        yield f"largest batch that fits for sure: {most}"
    if not place.speed:
        return
    step_s = place.speed.step_s(found.work)
    yield place.speed.sentence(step_s)
    if place.link and step_s:
        over = max(0.0, found.need[1] - limit) if limit else 0.0
        crossing = found.link_bytes + over * facts.settings("fit")["task"][setting.task]
        factor = place.speed.factor
        yield speed.link_line(crossing, step_s, factor=factor, link=place.link)


def card_rows(found: Prediction, *, prices: dict[str, str]) -> list[tuple[str, ...]]:
    """Rows of COLUMNS for each card: those that fit first, the fastest of them first."""
    rows = []
    for row in facts.table("gpus"):
        there, memory_bytes = speed.of_card(row), _card_bytes(row)
        step_s = there.step_s(found.work) if there else None
        said = verdict(found, memory_bytes) if memory_bytes else ORDER[-1]
        text = (
            row["name"],
            units.memory(memory_bytes or None),
            said,
            units.about(step_s, factor=there.factor if there else 1.0),
            units.power(float(row["tdp_w"]) if row["tdp_w"] else None),
            "yes" if row["torch_2_14_wheel"].startswith("default") else "no",
            prices.get(row["name"], ""),
        )
        rows.append((ORDER.index(said), step_s or math.inf, text))
    return [text for *_, text in sorted(rows)]


def cards_line(rows: list[tuple[str, ...]]) -> str:
    """How many cards have room for it, and which of them is the fastest."""
    fit = [row for row in rows if row[2] == FITS]
    first = f"; fastest on paper: {fit[0][0]}, about {fit[0][3]} a step" if fit else ""
    return f"{FITS} on {len(fit)} of {len(rows)} cards of data/gpus.csv{first}"


def prices(path: Path | None) -> dict[str, str]:
    """The reader's own prices: a CSV file with the columns name and price.

    Raises:
        GpuLabError: other columns, or a card that is not in `data/gpus.csv`.
    """
    rows = csv.DictReader(path.read_text("utf-8").splitlines() if path else ())
    if path and not {"name", "price"} <= set(rows.fieldnames or ()):
        raise GpuLabError(f"{path}: wanted a CSV file with the columns name and price")
    return {ceiling.card(row["name"])["name"]: row["price"] for row in rows}
