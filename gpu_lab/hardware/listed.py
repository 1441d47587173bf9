"""GPUs by their names alone, where a system shows no PCI tree: macOS and Windows."""

from __future__ import annotations

import json
import re
from typing import Any

from gpu_lab import facts

_MAC_KEYS = {
    "sppci_model": "Chipset Model",
    "sppci_device_type": "Type",
    "sppci_bus": "Bus",
    "spdisplays_pcie_width": "PCIe Lane Width",
}


def of_mac(text: str) -> list[dict[str, str]]:
    """`system_profiler SPDisplaysDataType` as text or JSON: name, type, bus, lanes."""
    try:
        cards = json.loads(text)["SPDisplaysDataType"]
        return [_from_json(card) for card in cards]
    except (ValueError, KeyError, TypeError, AttributeError):
        return _from_text(text)


def of_windows(text: str) -> list[str]:
    """Names of Win32_VideoController, one a line, with or without "Name :"."""
    makers = "|".join(words for _, words in facts.settings("detect")["makers"].values())
    names = (re.sub(r"^\s*Name\s*[:=]\s*", "", line) for line in text.splitlines())
    return [n.strip() for n in names if len(n) < 80 and re.match(rf"\s*(?:{makers})", n, re.I)]


def _from_json(card: dict[str, Any]) -> dict[str, str]:
    return {new: str(card[old]) for old, new in _MAC_KEYS.items() if old in card}


def _from_text(text: str) -> list[dict[str, str]]:
    cards: list[dict[str, str]] = []
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "Chipset Model" and value:
            cards.append({})
        if cards and key in _MAC_KEYS.values():
            cards[-1][key] = value
    return cards
