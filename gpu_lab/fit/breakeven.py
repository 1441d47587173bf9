"""Break-even of "copy, compute, copy back": when a GPU behind a link beats the CPU.

    t(n) = (2 t0 + 12 n**2 / B) / uses + t_product(n)

Two n x n float32 matrices cross in one copy, their product comes back in another:
12 n**2 bytes. t0 + size / B is Hockney's model of a message (Parallel Computing 20,
1994, "The communication challenge for MPP"). With constant rates C of the CPU and F of
the GPU, in FLOP a second, and t0 = 0, the crossing is n = 6 / (B (1/C - 1/F)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_lab import facts
from gpu_lab.bench import LinkFit
from gpu_lab.records import GpuLabError, Measurement, Source

CROSSING_BYTES = 12  # times n**2: two float32 matrices there, one back
COPIES = 2
MOST_ROWS = 16_384


@dataclass(frozen=True)
class Curve:
    """Seconds of an n x n product over n, from timed rows of several n.

    Between known sizes a power law; below the smallest one its time, because a call
    costs something by itself; above the largest one n**3.
    """

    source: Source
    sizes: tuple[int, ...]
    times_s: tuple[float, ...]

    @classmethod
    def of(cls, rows: Sequence[Measurement]) -> Curve:
        """The curve through the medians of these rows.

        Raises:
            GpuLabError: none of the rows was timed.
        """
        known = sorted((int(r.settings["n"]), r.median_s) for r in rows if r.median_s)
        if not known:
            raise GpuLabError("wanted rows with times for a curve, found none")
        source = next(r.source for r in rows if r.available)
        return cls(source, tuple(n for n, _ in known), tuple(t for _, t in known))

    def time_s(self, n: Any) -> Any:
        """Seconds for n rows; n may be an array."""
        import numpy as np

        inside = np.interp(np.log(n), np.log(self.sizes), np.log(self.times_s))
        beyond = np.maximum(np.asarray(n) / self.sizes[-1], 1.0)
        return np.exp(inside) * beyond**3


@dataclass(frozen=True, kw_only=True)
class Offload:
    """Copy two matrices there, multiply, copy the product back.

    Attributes:
        product: seconds of the product on the device itself.
        uses: products computed for each crossing: data that stays is used again.
        source: where the numbers of the link come from.
    """

    name: str
    product: Curve
    link: LinkFit
    uses: int = 1
    source: Source = Source.CITED

    def link_s(self, n: Any) -> Any:
        """Seconds that one product spends on the link."""
        moving_s = CROSSING_BYTES * n**2 / self.link.bytes_per_s
        return (COPIES * self.link.start_s + moving_s) / self.uses

    def time_s(self, n: Any) -> Any:
        """Seconds of one product with its share of the crossing."""
        return self.link_s(n) + self.product.time_s(n)

    def link_share(self, n: Any) -> Any:
        """Share of the time that goes to the link, from 0 to 1."""
        return self.link_s(n) / self.time_s(n)


def break_even(
    cpu: Curve, offload: Curve | Offload, *, most: int = MOST_ROWS
) -> int | None:
    """Rows from which on the offload is faster, up to `most`; None when never.

    Not looked for below the smallest size at which the CPU was timed.
    """
    import numpy as np

    n = np.arange(cpu.sizes[0], most + 1)
    losses = np.flatnonzero(offload.time_s(n) >= cpu.time_s(n))
    first = cpu.sizes[0] + (int(losses[-1]) + 1 if len(losses) else 0)
    return first if first <= most else None


def cited_link(name: str, *, start_s: float) -> LinkFit:
    """A link of `data/links.csv` at the lowest H2D rate published for it: CITED.

    Args:
        start_s: seconds to start a copy, which nobody publishes.

    Raises:
        GpuLabError: no such link, or nobody has published a rate.
    """
    for row in facts.table("links"):
        if row["link"] == name and row["h2d_gb_s_min"]:
            return LinkFit(start_s, 1e9 * float(row["h2d_gb_s_min"]))
    raise GpuLabError(f"no link {name!r} with a published copy rate in data/links.csv")
