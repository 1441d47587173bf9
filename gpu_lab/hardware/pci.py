"""PCI functions and who hangs below whom: from sysfs, lspci and kernel texts.

Every reader adds what it finds to one Bus and leaves out what a text does not show,
so texts may be cut, mixed or contradict each other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gpu_lab import facts

ADDRESS = r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])"
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # GT/s
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
GPU_CLASSES = ("0300", "0302", "0380", "1200")
BRIDGE = "0604"
_CLASS_NAMES = {
    "vga compatible controller": "0300",
    "3d controller": "0302",
    "display controller": "0380",
    "processing accelerators": "1200",
    "pci bridge": BRIDGE,
}
_ROOT = re.compile(r"/pci[0-9a-f]{4,8}:[0-9a-f]{2}/", re.I)
_IN_PATH = re.compile(rf"(?<=/){ADDRESS}(?=/|$)", re.I)
_LISTED = re.compile(
    rf"\s{{0,4}}(?:\S+/)?{ADDRESS}\s(.{{1,80}}?)(?:\s\[([0-9a-f]{{4}})\])?:\s(.*)", re.I
)
_IDS = re.compile(r"(?:^|\[)([0-9a-f]{4}):([0-9a-f]{4})(?=\]|\s|$)", re.I)
_UNNAMED = re.compile(r"\bDevice ([0-9a-f]{4})$")
_TAIL = re.compile(r"\s*(?:\[[0-9a-f]{4}:[0-9a-f]{4}\]|\((?:rev|prog-if)[^)]*\))", re.I)
_LNK = re.compile(
    r"Lnk(Cap|Sta):.{0,40}?Speed ([\d.]+)GT/s[^,]{0,20}, Width x(\d+)(?!\d)"
)
_SECONDARY = re.compile(r"Bus: primary=\w\w, secondary=(\w\w),")
_SLOT = re.compile(r"\s*Physical Slot: (.+)")
_TREE = re.compile(r"\[(?:(\w{4,}):)?(\w\w)(?:-\w\w)?\]|([01]\w\.[0-7])|([-+\\|]+)")
_KERNEL = re.compile(rf"(?<![\w:]){ADDRESS}: (.*)", re.I)
_FOUND = re.compile(r"\[(\w{4}):(\w{4})\] type \d\d class 0x(\w{4})")
_TO_BUS = re.compile(r"PCI bridge to \[bus (\w\w)[-\]]")
_HOP = r"([\d.]+) GT/s (?:PCIe )?x(\d+) link"
_LIMIT = re.compile(rf"limited by {_HOP} at {ADDRESS}.{{0,40}}? with {_HOP}", re.I)


@dataclass
class Function:
    """One PCI function as far as the texts show it."""

    bus_id: str
    vendor: str = ""
    device: str = ""
    kind: str = ""  # PCI class and subclass, such as 0300
    name: str = ""
    slot: str = ""
    removable: bool = False
    virtual: bool = False
    link: dict[str, int] = field(default_factory=dict)
    # Kernel's narrowest hop to here: speed, width and the port it is at.
    limit: tuple[dict[str, int], str] | None = None

    @property
    def bus(self) -> str:
        """Domain and bus, such as 0000:0a."""
        return self.bus_id[:-5]

    @property
    def ids(self) -> str:
        """Vendor and device, such as 10de:2684; a bare colon when not told."""
        return f"{self.vendor}:{self.device}"

    @property
    def maker(self) -> str:
        """NVIDIA, AMD, Intel or nothing."""
        for vendor, (maker, words) in facts.settings("detect")["makers"].items():
            named = not self.vendor and re.search(words, self.name, re.I)
            if self.vendor == vendor or named:
                return str(maker)
        return ""


    def fits(self, rule: dict[str, Any]) -> bool:
        """Whether ids or name are those of a rule in data/detect.toml."""
        named = re.search(rule["words"], self.name, re.I)
        return self.ids in rule["ids"] or bool(named)

    def is_part(self, part: str) -> bool:
        """Whether it is what data/detect.toml describes under `parts`."""
        return self.fits(facts.settings("detect")["parts"][part])


class Bus:
    """All functions of a snapshot, and the bridge above each bus."""

    def __init__(self) -> None:
        """An empty bus; the readers fill it."""
        self.functions: dict[str, Function] = {}
        self.above: dict[str, str] = {}
        self.roots: set[str] = set()

    def at(self, bus_id: str) -> Function:
        """The function at that address, new if nothing was known of it."""
        return self.functions.setdefault(bus_id, Function(bus_id))

    def parent(self, function: Function) -> Function | None:
        """The bridge right above; None at the root or when not told."""
        bridge = self.above.get(function.bus)
        return self.at(bridge) if bridge else None

    def chain(self, function: Function) -> list[Function]:
        """Bridges above as far as they are told, the nearest first."""
        found: list[Function] = []
        while (above := self.parent(function)) and above not in found:
            found.append(above)
            function = above
        return found

    def at_root(self, function: Function) -> bool:
        """Whether it sits on a bus of the root complex itself."""
        return function.bus in self.roots or function.bus.endswith(":00")

    def gpus(self) -> list[Function]:
        """Display functions of GPU makers, one a card, in the order of the bus.

        A PCIe link leads to one device, so further display functions on the bus of a
        card are its virtual functions or its second head.
        """
        shown = [f for f in self.functions.values() if f.kind in GPU_CLASSES]
        makers = [f for f in shown if f.maker and (f.kind != "1200" or f.maker == "AMD")]
        heads = {f.bus_id for f in makers}
        cards = [f for f in makers if self._first(f) not in heads - {f.bus_id}]
        return sorted(cards, key=lambda f: f.bus_id)

    def _first(self, function: Function) -> str:
        if self.at_root(function):
            return f"{function.bus_id[:-1]}0"
        return f"{function.bus}:00.0"


def read_sysfs(bus: Bus, path: str, text: str) -> None:
    """One attribute below /sys whose path names PCI addresses."""
    places = [address(*found.groups()) for found in _IN_PATH.finditer(path)]
    if not places:
        return
    if _ROOT.search(path):
        bus.roots.add(places[0][:-5])
    for upper, lower in pairwise(places):
        bus.above[lower[:-5]] = upper
    name, value, found = path.rsplit("/", 1)[-1], text.strip(), bus.at(places[-1])
    if name in ("vendor", "device") and re.fullmatch(r"0x\w{4}", value):
        setattr(found, name, value[2:].lower())
    elif name == "class" and re.fullmatch(r"0x\w{6}", value):
        found.kind = value[2:6]
    elif name == "removable":
        found.removable = value == "removable"
    elif name == "physfn":
        found.virtual = True
    elif link := re.fullmatch(r"(current|max)_link_(speed|width)", name):
        speed = re.match(r"([\d.]+) GT/s", value)
        if link[2] == "width":
            found.link |= speeds(link[1], width=value)
        elif speed:
            found.link |= speeds(link[1], gt_s=speed[1])


def read_lspci(bus: Bus, text: str) -> None:
    """`lspci` in any of -nn, -n, -v, -vv, -D, with or without root, and `lspci -t`."""
    last: Function | None = None
    branches: dict[int, tuple[str, str]] = {}
    for line in text.splitlines():
        if found := _LISTED.match(line):
            last = _listed(bus, found)
        elif last and line[:1].isspace() and not _TREE.match(line.lstrip()):
            _detail(bus, last, line)
        else:
            _branch(bus, line, branches)


def _listed(bus: Bus, found: re.Match[str]) -> Function:
    function = bus.at(address(*found.groups()[:4]))
    kind, number, rest = found.groups()[4:]
    function.kind = number or _CLASS_NAMES.get(kind.lower(), kind[:4])
    if ids := _IDS.search(rest):
        function.vendor, function.device = ids[1].lower(), ids[2].lower()
    lost = re.search(facts.settings("detect")["words"]["lost"], rest)
    function.virtual |= "Virtual Function" in rest
    name = rest if lost else _TAIL.sub("", rest)
    function.name = "" if _IDS.fullmatch(name) else name.strip()
    if (number := _UNNAMED.search(function.name)) and not ids:  # newer than pci.ids
        function.vendor, function.device = _vendor(function.maker), number[1]
    return function


def _vendor(maker: str) -> str:
    makers = facts.settings("detect")["makers"].items()
    return next((vendor for vendor, (name, _) in makers if name == maker), "")


def _detail(bus: Bus, last: Function, line: str) -> None:
    if found := _LNK.search(line):
        when = "max" if found[1] == "Cap" else "current"
        last.link |= speeds(when, gt_s=found[2], width=found[3])
    elif found := _SECONDARY.search(line):
        bus.above[f"{last.bus_id.split(':')[0]}:{found[1].lower()}"] = last.bus_id
    elif found := _SLOT.match(line):
        last.slot = found[1]


def _branch(bus: Bus, line: str, branches: dict[int, tuple[str, str]]) -> None:
    """One line of the tree: a branch hangs where the line above opened its column."""
    place = len(line) - len(line.lstrip(" |"))
    if line[place : place + 1] not in ("-", "+", "\\"):
        return
    domain, number = branches.get(place, ("", ""))
    bridge = ""
    while found := _TREE.match(line, place):
        if found[4]:
            for column, sign in enumerate(found[4], place):
                if sign == "+" and number:
                    branches[column] = (domain, number)
        elif found[3] and number:
            bridge = f"{domain}:{number}:{found[3]}"
            bus.at(bridge)
        elif found[2]:
            domain, number = _domain(found[1] or domain), found[2]
            if bridge:
                bus.above[f"{domain}:{number}"] = bridge
            else:
                bus.roots.add(f"{domain}:{number}")
        place = found.end()


def read_kernel(bus: Bus, text: str) -> None:
    """Lines of the kernel log: functions found, buses behind bridges, slow hops."""
    for line in text.splitlines():
        if not (about := _KERNEL.search(line)):
            continue
        function, rest = bus.at(address(*about.groups()[:4])), about[5]
        if found := _FOUND.match(rest):
            function.vendor, function.device, function.kind = found.groups()
        elif found := _TO_BUS.match(rest):
            bus.above[f"{function.bus_id.split(':')[0]}:{found[1]}"] = function.bus_id
        elif found := _LIMIT.search(rest):
            gt_s, width, *place, most_gt_s, most_width = found.groups()
            now = speeds("current", gt_s=gt_s, width=width)
            function.limit = (now, address(*place))
            function.link |= speeds("max", gt_s=most_gt_s, width=most_width)


def address(domain: str | None, bus: str, device: str, function: str) -> str:
    """PCI address in the one form used here, such as 0000:0a:00.0."""
    return f"{_domain(domain)}:{bus}:{device}.{function}".lower()


def _domain(text: str | None) -> str:
    return f"{int(text or '0', 16):04x}"


def speeds(when: str, *, gt_s: str = "", width: str | int = "") -> dict[str, int]:
    """Generation and lanes under their names in the answer; impossible ones left out.

    Args:
        when: "current" or "max".
    """
    found = {}
    if re.fullmatch(r"\d+(?:\.\d)?", gt_s) and float(gt_s) in GENERATIONS:
        found[f"pcie_gen_{when}"] = GENERATIONS[float(gt_s)]
    if str(width).isdigit() and int(width) in WIDTHS:
        found[f"pcie_width_{when}"] = int(width)
    return found
