"""PCI functions and who hangs below whom: each bridge knows its `secondary` bus."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from gpu_lab import facts
from gpu_lab.hardware.texts import Thing, address

Functions = dict[str, Thing]
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # GT/s
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
SHOWN = ("0300", "0302", "0380")  # VGA, 3D and other display controllers
ACCELERATOR = "1200"
_TREE = re.compile(r"([-+\\|]+)|\[(?:(\w{4,}):)?(\w\w)(?:-\w\w)?\]|([01]\w\.[0-7])")
# Where a link of /sys/bus/pci leads: all bridges above are in its name.
_PATH = re.compile(r"/pci[0-9a-f]{4,8}:[0-9a-f]{2}((?:/[0-9a-f:]{7,16}\.[0-7])+)")


def read_paths(functions: Functions, text: str) -> None:
    """Bridges above a function, from its path below /sys/devices."""
    for found in _PATH.finditer(text):
        for upper, lower in pairwise(map(address, found[1][1:].split("/"))):
            functions.setdefault(upper, {})["secondary"] = lower.split(":")[1]


def read_tree(functions: Functions, text: str) -> None:
    """`lspci -t`: a branch hangs where a line above opened its column."""
    branches: dict[int, str] = {}
    for line in text.split("\n"):
        place = len(line) - len(line.lstrip(" |"))
        if not line[place:].startswith(("-", "+", "\\")):
            continue
        bus, bridge = branches.get(place, ""), ""
        while found := _TREE.match(line, place):
            signs, domain, number, device = found.groups()
            if device and bus:
                bridge = f"{bus}:{device}"
                functions.setdefault(bridge, {})
            elif number:
                bus = f"{int(domain or bus[:-3] or '0', 16):04x}:{number}"
                functions.get(bridge, {})["secondary"] = number
            plus = (i for i, sign in enumerate(signs or "", place) if sign == "+")
            branches |= dict.fromkeys(plus, bus)
            place = found.end()


def chain(functions: Functions, below: str) -> list[str]:
    """Addresses of the bridges above, the nearest first, as far as they are told."""
    found: list[str] = []
    above = {
        f"{place.split(':')[0]}:{f['secondary']}": place
        for place, f in functions.items()
        if "secondary" in f
    }
    while (bridge := above.get(below[:-5], below)) not in (*found, below):
        found.append(bridge)
        below = bridge
    return found


def maker(function: Thing) -> str:
    """NVIDIA, AMD, Intel or nothing."""
    vendor, name = function.get("vendor", ""), function.get("name", "")
    for number, (who, words) in facts.settings("detect")["makers"].items():
        if vendor == number or (not vendor and re.search(words, name, re.I)):
            return str(who)
    return ""


def ids(function: Thing) -> str:
    """Vendor and device, such as 10de:2684, as far as they are told."""
    who, makers = maker(function), facts.settings("detect")["makers"].items()
    usual = next((number for number, (name, _) in makers if name == who), "")
    return f"{function.get('vendor', usual)}:{function.get('device', '')}"


def fits(function: Thing, rule: dict[str, Any]) -> bool:
    """Whether ids or name are those of a rule in data/detect.toml."""
    named = re.search(rule["words"], function.get("name", ""), re.I)
    return ids(function) in rule["ids"] or bool(named)


def is_part(function: Thing, part: str) -> bool:
    """Whether it is what data/detect.toml describes under `parts`."""
    return fits(function, facts.settings("detect")["parts"][part])


def tunnel(function: Thing) -> str:
    """What a bridge tunnels through, such as thunderbolt3; empty for a plain bridge."""
    kinds = facts.settings("detect")["tunnels"]
    return next((str(kind["link"]) for kind in kinds if fits(function, kind)), "")


def gpus(functions: Functions) -> list[str]:
    """Addresses of the cards of GPU makers, in the order of the bus.

    A PCIe link leads to one device, so further display functions on the bus of a card
    are its virtual functions or its second head. On the root bus each slot is one.
    """
    shown = {place for place, f in functions.items() if _computes(f)}
    roots = {place for place in shown if place.split(":")[1] == "00"}
    first = {p: f"{p[:-1]}0" if p in roots else f"{p[:-4]}00.0" for p in shown}
    return sorted(p for p in shown if first[p] == p or first[p] not in shown)


def _computes(function: Thing) -> bool:
    classes, who = facts.settings("detect")["classes"], maker(function)
    kind = function.get("code") or classes.get(function.get("class", ""), "")
    return (kind in SHOWN and bool(who)) or (kind == ACCELERATOR and who == "AMD")


def speeds(thing: Thing) -> dict[str, int]:
    """Generation and lanes under their names in the answer; only possible ones."""
    found: dict[str, int] = {}
    for when in ("current", "max"):
        gt_s = re.fullmatch(r"\d+(?:\.\d)?", thing.get(f"speed_{when}", ""))
        gen = GENERATIONS.get(float(gt_s[0])) if gt_s else None
        gen = gen or int(thing.get(f"gen_{when}", 0))
        width = int(thing.get(f"width_{when}", 0))
        found |= {f"pcie_gen_{when}": gen} if gen in GENERATIONS.values() else {}
        found |= {f"pcie_width_{when}": width} if width in WIDTHS else {}
    return found
