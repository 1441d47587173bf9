"""A drawn figure as an HTML <figure>: PNG inside, alt text and caption beside it."""

from __future__ import annotations

import base64
import html
import io
import warnings
from dataclasses import dataclass
from typing import Any

from gpu_lab import units

SIZE_IN = (6.0, 3.5)
DPI = 100
NAME_LENGTH = 40
STYLE = "petroff10"
HATCH = {"MEASURED": "", "RECORDED": "..", "CITED": "//", "SIMULATED": "xx"}


@dataclass(frozen=True)
class Picture:
    """PNG bytes with the words that say the same."""

    png: bytes
    alt: str
    caption: str

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png).decode("ascii")
        return (
            f'<figure><img alt="{html.escape(self.alt)}" '
            f'src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )

    def __repr__(self) -> str:
        """The alt text, in the form that notebook validation leaves out."""
        return f"<figure>{self.alt}</figure>"


def new_axes(size_in: tuple[float, float] = SIZE_IN) -> tuple[Any, Any]:
    """Figure and axes, of the course's size; no pyplot, so nothing stays open."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(STYLE):
        figure = Figure(figsize=size_in, dpi=DPI, layout="constrained")
        return figure, figure.add_subplot()


def finish(figure: Any, *, alt: str, caption: str) -> Picture:
    """Render the figure to PNG and join it with its words."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # a name in letters that the font lacks: boxes
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(buffer, format="png")
    return Picture(png=buffer.getvalue(), alt=alt, caption=caption)


def literal(text: str, most: int = NAME_LENGTH) -> str:
    """A name of a file as it is, cut short: between dollars matplotlib reads maths."""
    return units.plain(text, most=most).replace("$", r"\$")
