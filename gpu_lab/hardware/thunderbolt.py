"""Thunderbolt and USB4: what is attached, and which PCI bridges are tunnels.

Enclosures come from boltctl, sysfs and the kernel log. They prove nothing about a card:
only a tunnel among the bridges above it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_lab import facts
from gpu_lab.hardware.pci import Function

_SYSFS = re.compile(r"/thunderbolt/devices/(\d+-[0-9a-f]+)/(\w+)$")
_HOST = re.compile(r"\d+-0")
_BOLT = re.compile(r"\W*(type|name|vendor|generation|status):\s*(.*)")
_KERNEL = re.compile(r"thunderbolt (\d+-[1-9a-f][0-9a-f]*): (.*)")
# Words of boltctl; "attached" is ours, for a log that says no more.
_ATTACHED = ("authorized", "connected", "authenticating", "authorizing", "attached")


@dataclass
class Enclosure:
    """One attached device: dock, box or anything else on the cable."""

    name: str = ""
    vendor: str = ""
    generation: str = ""
    state: str = ""

    @property
    def title(self) -> str:
        """Maker and model."""
        known = self.name.lower().startswith(self.vendor.lower())
        return (self.name if known else f"{self.vendor} {self.name}").strip()

    @property
    def attached(self) -> bool:
        """Whether the cable is plugged in, authorised or not."""
        return bool(self.title) and self.state in _ATTACHED


class Cables:
    """Enclosures by the place that names them."""

    def __init__(self) -> None:
        """No enclosure yet; the readers add them."""
        self.found: dict[str, Enclosure] = {}

    def attached(self) -> list[Enclosure]:
        """Enclosures that are there now, each model once."""
        there = [e for e in self.found.values() if e.attached]
        return list({e.title: e for e in there}.values())

    def read_sysfs(self, path: str, text: str) -> None:
        """One attribute below /sys/bus/thunderbolt."""
        found = _SYSFS.search(path)
        if not found or _HOST.fullmatch(found[1]):
            return
        about, value = self._at(found[1]), text.strip()
        if found[2] == "authorized":
            about.state = "connected" if value == "0" else "authorized"
        elif found[2] in ("device_name", "vendor_name", "generation"):
            setattr(about, found[2].removesuffix("_name").replace("device", "name"), value)

    def read_boltctl(self, text: str) -> None:
        """`boltctl list`: one block a device, hosts left out."""
        number, block = 0, Enclosure()
        for line in text.splitlines():
            if not (found := _BOLT.fullmatch(line)):
                continue
            key, value = found[1], found[2].strip()
            if key == "type":
                number, block = number + 1, Enclosure()
                if value == "peripheral":
                    self.found[f"bolt {number}"] = block
            else:
                setattr(block, {"status": "state"}.get(key, key), value)

    def read_kernel(self, text: str) -> None:
        """Lines of the kernel log; the last one about a device counts."""
        for place, what in _KERNEL.findall(text):
            about = self._at(place)
            if "disconnected" in what:
                about.state = "disconnected"
            elif what.startswith("new device"):
                about.state = about.state or "attached"
            elif about.state == "attached" and not about.name:
                about.name = what.strip()

    def _at(self, place: str) -> Enclosure:
        return self.found.setdefault(place, Enclosure())


def tunnel(bridge: Function) -> str:
    """What a bridge tunnels through, such as thunderbolt3; empty for a plain bridge."""
    kinds = facts.settings("detect")["tunnels"]
    return next((str(kind["link"]) for kind in kinds if bridge.fits(kind)), "")


def slowest(tunnels: Iterable[str]) -> str:
    """The slowest of several tunnels: it is the link, whatever the others can do."""
    order = [str(kind["link"]) for kind in facts.settings("detect")["tunnels"]]
    return min(tunnels, key=order.index)
