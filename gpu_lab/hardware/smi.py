"""nvidia-smi: its table, -L, -q, --query-gpu and topo -m, from old to the 610 format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpu_lab import facts
from gpu_lab.hardware import pci

_ROW = re.compile(r"\s*(\d{1,3})\s+(\S.{0,60}?)\s+\S+\s*")
_LISTED = re.compile(r"GPU (\d{1,3}): (.{1,80}?) \(UUID")
_MIG = re.compile(r"\s+MIG .{0,40}Device\s+\d+:")
_ADDRESS = re.compile(rf"\s*{pci.ADDRESS}(?!\S)", re.I)
_FIELDS = re.compile(r"--query-gpu[= ]([\w.,]+)")
# "Driver Version" and "CUDA Version" became "KMD Version" and "CUDA UMD Version".
_DRIVER = re.compile(r"(?:Driver|KMD) Version\s*: (\d[\d.]*)\s")
_CUDA = re.compile(r"CUDA (?:UMD |Driver )?Version\s*: (\d[\d.]*)\s")
_BARE = re.compile(r"(?<![\d.])\d{3}\.\d{2,3}(?:\.\d{2})?(?![\d.])")
_QUERY_LINKS = {
    "pcie.link.gen.current": ("gen", "current"),
    "pcie.link.gen.gpucurrent": ("gen", "current"),
    "pcie.link.gen.max": ("gen", "max"),
    "pcie.link.width.current": ("width", "current"),
    "pcie.link.width.max": ("width", "max"),
}
_HEADINGS = {"PCIe Generation": "gen", "Link Width": "width"}
_BLOCK = re.compile(rf"\s*GPU {pci.ADDRESS}\s*", re.I)
_TOPOLOGY = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")


@dataclass
class Card:
    """One GPU as the driver lists it, as far as the texts show it."""

    index: int
    name: str = ""
    bus_id: str = ""
    mode: str = ""  # virtualisation mode
    c2c: bool = False
    link: dict[str, int] = field(default_factory=dict)

    def same(self, other: Card) -> bool:
        """Whether both are one card: by address, else by number and name."""
        if self.bus_id and other.bus_id:
            return self.bus_id == other.bus_id
        return self.index == other.index and alike(self.name, other.name)

    def take(self, other: Card) -> None:
        """Add what another text says of the same card."""
        if not self.name or ("..." in self.name and other.name):
            self.name = other.name
        self.bus_id = self.bus_id or other.bus_id
        self.mode = self.mode or other.mode
        self.c2c |= other.c2c
        self.link = other.link | self.link


@dataclass
class Answers:
    """All that the texts of nvidia-smi say."""

    cards: list[Card] = field(default_factory=list)
    driver: str | None = None
    cuda: str | None = None
    mig_devices: int | None = None
    links: dict[int, list[str]] = field(default_factory=dict)  # rows of topo -m
    failure: str = ""

    @property
    def interconnect(self) -> str | None:
        """How GPUs reach each other: one word, or all that occur; None if not told."""
        words = {w for row in self.links.values() for w in row if w != "X"}
        order = ("NV", "PIX", "PXB", "PHB", "NODE", "SYS")
        return ", ".join(sorted(words, key=lambda w: _rank(w, order))) or None

    @property
    def switched(self) -> bool:
        """NVLink between all of more than two GPUs: a board, not bridged cards."""
        whole = all(len(row) == len(self.links) for row in self.links.values())
        words = {w[:2] for row in self.links.values() for w in row}
        return len(self.links) > 2 and whole and words == {"X", "NV"}

    def add(self, found: Card) -> None:
        """Join a card with the one already known, or list it."""
        known = next((card for card in self.cards if card.same(found)), None)
        if known:
            known.take(found)
        else:
            self.cards.append(found)


def read(answers: Answers, command: str, text: str) -> None:
    """Any text of nvidia-smi; which one it is shows in the text or the command."""
    if found := _DRIVER.search(text):
        answers.driver = found[1]
    if found := _CUDA.search(text):
        answers.cuda = found[1]
    if found := re.search(r"^(?:NVIDIA-SMI has failed.*|No devices.*)", text, re.M):
        answers.failure = found[0]
    fields = _FIELDS.search(command)
    if fields and "driver_version" in fields[1] and (found := _BARE.search(text)):
        answers.driver = found[0]
    cards = _csv(fields[1].split(","), text) if fields else _lines(answers, text)
    for card in cards:
        answers.add(card)


def alike(one: str, other: str) -> bool:
    """Whether two names may mean one card: a number in common, or none to compare."""
    numbers = [set(re.findall(r"[a-z]*\d+", name.lower())) for name in (one, other)]
    cut = "..." in one + other
    return cut or not all(numbers) or bool(numbers[0] & numbers[1])


def _lines(answers: Answers, text: str) -> Iterator[Card]:
    lines, columns = text.splitlines(), 0
    for line in lines:
        cells, words = line.split("|"), line.split()
        if len(cells) > 2 and (row := _ROW.fullmatch(cells[1])):
            if place := _ADDRESS.match(cells[2]):
                yield Card(int(row[1]), row[2], pci.address(*place.groups()))
        elif found := _LISTED.match(line):
            yield Card(int(found[1]), found[2])
            answers.mig_devices = answers.mig_devices or 0
        elif _MIG.match(line) and answers.mig_devices is not None:
            answers.mig_devices += 1
        elif words[:1] == ["GPU0"] and words[1:2] != ["X"]:
            columns = sum(bool(re.fullmatch(r"GPU\d+", word)) for word in words)
        elif columns and (row := re.match(r"GPU(\d+)\s", line)):
            told = words[1 : columns + 1]
            answers.links[int(row[1])] = [w for w in told if _TOPOLOGY.fullmatch(w)]
    yield from _query(lines)


def _query(lines: list[str]) -> Iterator[Card]:
    """Blocks of -q; an excerpt may begin inside one, so a second name ends it too."""
    cards, heading = [Card(0)], ""
    for line in lines:
        key, colon, value = (part.strip() for part in line.partition(":"))
        if place := _BLOCK.fullmatch(line):
            cards.append(Card(len(cards) - 1, bus_id=pci.address(*place.groups())))
        elif key == "Product Name" and cards[-1].name:
            cards.append(Card(len(cards), value))
        elif colon:
            _fact(cards[-1], heading, key, value)
        else:
            heading = key
    yield from (card for card in cards if card.name)


def _fact(card: Card, heading: str, key: str, value: str) -> None:
    if key == "Product Name":
        card.name = value
    elif key == "Bus Id" and (place := _ADDRESS.match(value)):
        card.bus_id = pci.address(*place.groups())
    elif key == "Virtualization Mode":
        card.mode = value
    elif key.endswith("C2C Mode"):
        card.c2c = value == "Enabled"
    elif heading in _HEADINGS and key in ("Max", "Current"):
        card.link |= _speed(_HEADINGS[heading], key.lower(), value)


def _csv(fields: list[str], text: str) -> Iterator[Card]:
    name = re.compile(facts.settings("detect")["words"]["gpu"], re.I)
    number = 0
    for line in text.splitlines():
        values = (value.strip() for value in line.split(","))
        cells = dict(zip(fields, values, strict=False))
        title = cells.get("name") or cells.get("gpu_name") or ""
        place = _ADDRESS.match(cells.get("pci.bus_id") or cells.get("gpu_bus_id") or "")
        index = cells.get("index", str(number))
        known = name.match(title) if title else place or "index" in cells
        if not known or not index.isdecimal():  # the header, or no row at all
            continue
        card = Card(int(index), title, pci.address(*place.groups()) if place else "")
        for key, (what, when) in _QUERY_LINKS.items():
            card.link |= _speed(what, when, cells.get(key, ""))
        number += 1
        yield card


def _speed(what: str, when: str, value: str) -> dict[str, int]:
    """Generation as "4"; lanes as "16" in CSV and "16x" in -q."""
    found = re.fullmatch(r"(\d{1,2})x?", value)
    number = int(found[1]) if found else 0
    if what == "width":
        return pci.speeds(when, width=number)
    return {f"pcie_gen_{when}": number} if number in pci.GENERATIONS.values() else {}


def _rank(word: str, order: tuple[str, ...]) -> tuple[int, int]:
    digits = re.sub(r"\D", "", word)
    return order.index(re.sub(r"\d", "", word)), -int(digits or 0)
