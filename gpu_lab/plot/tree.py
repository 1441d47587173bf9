"""The one-page tree: what you see, what to ask in which order, where a "no" leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_lab.plot.picture import Picture, finish, new_axes

PAGE_IN = (10.0, 7.0)  # a printed page, turned
SEE, ASK, LOOK = 0.0, 0.16, 0.58  # where the columns begin
TITLE = "from the symptom down: the first “no” is where to look"
Branch = dict[str, Any]


def tree(branches: Sequence[Branch]) -> Picture:
    """Symptoms on the left, questions from top to bottom, where to look on the right.

    Args:
        branches: each with "see" and "checks", pairs of question and place.
    """
    figure, axes = new_axes(PAGE_IN)
    row = 0.0
    for branch in branches:
        middle = row + (len(branch["checks"]) - 1) / 2
        _box(axes, SEE, middle, branch["see"], "#ffd9a0")
        for ask, look in branch["checks"]:
            axes.plot((SEE + 0.05, ASK), (middle, row), color="#888888", zorder=0)
            axes.plot((ASK, LOOK), (row, row), "--", color="#bd1f01", zorder=0)
            _box(axes, ASK, row, ask, "#d6e8f7")
            _box(axes, LOOK, row, look, "#ffffff")
            row += 1
        row += 0.4
    axes.set(title=TITLE, xlim=(-0.01, 1), ylim=(row, -0.8))
    axes.axis("off")
    return finish(figure, alt=_alt(branches), caption=f"{TITLE}; all “yes”: read on.")


def _box(axes: Any, x: float, y: float, text: str, colour: str) -> None:
    box = {"facecolor": colour, "edgecolor": "#888888", "boxstyle": "round"}
    axes.text(x, y, text, va="center", fontsize=9, bbox=box)


def _alt(branches: Sequence[Branch]) -> str:
    """All that the picture says."""
    texts = [
        f"{b['see']}: {'; '.join(f'{ask} No: {look}' for ask, look in b['checks'])}."
        for b in branches
    ]
    return f"Decision tree. {' '.join(texts)}".replace("\n", " ")
