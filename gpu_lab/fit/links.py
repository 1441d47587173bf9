"""Which link a measured rate looks like, after published measurements."""

from __future__ import annotations

from gpu_lab import facts

TOLERANCE = 0.10


def links_like(bytes_per_s: float, *, direction: str = "h2d") -> list[str]:
    """Names of the links in `data/links.csv` at which such a rate was published.

    Args:
        bytes_per_s: rate of large copies, in bytes a second (`bench.LinkFit`).
        direction: "h2d" or "d2h".
    """
    return [
        row["link"]
        for row in facts.table("links")
        if (low := row[f"{direction}_gb_s_min"])
        and (1 - TOLERANCE) * float(low) * 1e9 <= bytes_per_s
        and bytes_per_s <= (1 + TOLERANCE) * float(row[f"{direction}_gb_s_max"]) * 1e9
        and bytes_per_s <= widest(row["link"])
    ]


def widest(name: str) -> float:
    """Most bytes a second that a link of the table can move in one direction.

    The tunnel's nominal PCIe share where there is one, else the line rate.

    Raises:
        KeyError: no such link.
    """
    row = {row["link"]: row for row in facts.table("links")}[name]
    tunnel = row["pcie_tunnel_nominal_gbit_s"]
    if tunnel:
        return float(tunnel) * 1e9 / 8
    return float(row["theoretical_gb_s_per_direction"]) * 1e9
