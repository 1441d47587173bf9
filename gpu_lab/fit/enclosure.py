"""Power of an enclosure: what its supply has left for the card."""

from __future__ import annotations


def left_for_card_w(
    supply_w: float, *, charging_w: float, ports_w: float = 0.0, own_w: float = 0.0
) -> float:
    """Watts left for the card: supply minus laptop charging, ports and own use.

    The form of a maker's worked budget: sources of claim C020 in `data/claims.csv`.
    """
    return supply_w - charging_w - ports_w - own_w
