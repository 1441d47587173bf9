"""Every card of `data/gpus.csv` for one step: does it fit, how fast, what it draws."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from gpu_lab import facts, units
from gpu_lab.bench import ceiling
from gpu_lab.fit import speed
from gpu_lab.fit.answer import EDGE, FITS, NOT, verdict
from gpu_lab.fit.memory import Prediction
from gpu_lab.records import GpuLabError

COLUMNS = ("card", "memory", "answer", "step", "TDP", "default wheel", "price")
DEFAULT_WHEEL = "default"
ORDER = (FITS, EDGE, NOT, units.NOT_AVAILABLE)


def card_bytes(row: facts.Row) -> float:
    """Memory of a card in bytes; 0 where it is not known."""
    return float(row["memory_gb"] or 0) * 2**30


def card_rows(found: Prediction, *, prices: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Rows of COLUMNS: cards that fit first, the fastest of them first."""
    rows = [_row(row, found, prices) for row in facts.table("gpus")]
    return [text for *_, text in sorted(rows)]


def _row(
    row: facts.Row, found: Prediction, prices: Mapping[str, str]
) -> tuple[int, float, tuple[str, ...]]:
    there, size_bytes = speed.of_card(row), card_bytes(row)
    step_s = there.step_s(found.work) if there else None
    said = verdict(found, size_bytes) if size_bytes else units.NOT_AVAILABLE
    text = (
        row["name"],
        units.memory(size_bytes or None),
        said,
        units.about(step_s, factor=speed.CARD_FACTOR),
        units.power(float(row["tdp_w"]) if row["tdp_w"] else None),
        "yes" if row["torch_2_14_wheel"].startswith(DEFAULT_WHEEL) else "no",
        prices.get(row["name"], ""),
    )
    return ORDER.index(said), step_s or math.inf, text


def cards_sentence(rows: list[tuple[str, ...]]) -> str:
    """How many cards have room for it, and which of them is the fastest."""
    fit = [row for row in rows if row[2] == FITS]
    if not fit:
        return f"{NOT} on any of the {len(rows)} cards of data/gpus.csv"
    first = f"{fit[0][0]}, about {fit[0][3]} a step"
    return f"{FITS} on {len(fit)} of {len(rows)} cards; fastest on paper: {first}"


def prices(path: Path | None) -> dict[str, str]:
    """The reader's own prices: a CSV file with the columns name and price.

    Raises:
        GpuLabError: other columns, or a card that is not in `data/gpus.csv`.
    """
    if path is None:
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"name", "price"} <= set(rows[0]):
        raise GpuLabError(f"{path}: wanted a CSV file with the columns name and price")
    return {ceiling.card(row["name"])["name"]: row["price"] for row in rows}
