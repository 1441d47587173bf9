"""The ladder picture: six rungs, those that hold are lit."""

from __future__ import annotations

from typing import Any

from gpu_lab.plot.picture import Picture, finish, new_axes
from gpu_lab.records import Ladder, Rung

# Colour and hatch say the same, so that neither is needed to read the picture.
LOOKS = {
    "yes": {"color": "#3f90da", "hatch": ""},
    "no": {"color": "#bd1f01", "hatch": "//"},
    "cannot tell": {"color": "#b9b9b9", "hatch": ".."},
}


def ladder(found: Ladder, *, title: str = "") -> Picture:
    """Six rungs from the bottom: lit (yes), failed (no), grey (cannot tell)."""
    figure, axes = new_axes()
    for height, rung in enumerate(found.rungs, 1):
        _draw_rung(axes, height, rung)
    axes.set(xlim=(0, 1), ylim=(0.4, len(found.rungs) + 0.6), xticks=[])
    axes.set_yticks(range(1, len(found.rungs) + 1))
    axes.set_ylabel("rung, from the bottom")
    axes.set_title(title or heading(found))
    return finish(figure, alt=alt_text(found), caption=heading(found))


def heading(found: Ladder) -> str:
    """The finding in one line."""
    return f"{found.owner}: {found.height} of {len(found.rungs)} rungs hold"


def alt_text(found: Ladder) -> str:
    """All that the picture shows, as a sentence."""
    rungs = "; ".join(f"{i} {r.name}: {r.answer}" for i, r in enumerate(found.rungs, 1))
    return f"Ladder of {found.owner}. {rungs}."


def _draw_rung(axes: Any, height: int, rung: Rung) -> None:
    looks = LOOKS[rung.answer]
    axes.barh(height, 1, height=0.7, edgecolor="white", alpha=0.85, **looks)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(0.02, height, rung.name, va="center", bbox=box)
    axes.text(0.98, height, rung.answer, va="center", ha="right", bbox=box)
