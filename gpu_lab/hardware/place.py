"""Where one card sits and over what: the chain of bridges decides, names help.

Each rule answers (link, external, evidence) or None, and the first answer counts. What
no rule can tell stays unknown: an OCuLink dock and a short slot look alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gpu_lab import facts
from gpu_lab.hardware import thunderbolt
from gpu_lab.hardware.pci import Bus, Function
from gpu_lab.hardware.smi import Card

WIDE = 8  # lanes; tunnels and OCuLink cables of docks carry four
INTEGRATED_SLOT = {"Intel": "02", "AMD": "01"}  # on the root bus, where there is one
Answer = tuple[str, bool | None, str]
LINK_FIELDS = (
    "pcie_gen_current",
    "pcie_width_current",
    "pcie_gen_max",
    "pcie_width_max",
)


@dataclass
class World:
    """What holds for all cards of a snapshot."""

    bus: Bus = field(default_factory=Bus)
    wsl: bool = False
    virtual: bool = False
    switched: bool = False  # NVLink from each GPU to all others
    tunnels: bool = False  # a Thunderbolt or USB4 part is somewhere


@dataclass
class Gpu:
    """A card as the bus and its driver show it; either may be missing."""

    function: Function | None
    card: Card | None
    world: World

    @property
    def name(self) -> str:
        """The driver's name, else that of lspci, else maker and ids."""
        told = self.card.name if self.card else ""
        listed = self.function.name if self.function else ""
        if told and not ("..." in told and listed):
            return told
        if self.function and not listed:
            ids = self.function.ids.rstrip(":")
            return f"{self.function.maker} GPU [{ids}]"
        return listed or "NVIDIA GPU"

    @property
    def names(self) -> str:
        """All names, for rules that look for a word."""
        told = self.card.name if self.card else ""
        return f"{told} {self.function.name if self.function else ''}".strip()

    @property
    def bus_id(self) -> str | None:
        """PCI address, or None where no text has it."""
        if self.function:
            return self.function.bus_id
        return self.card.bus_id or None if self.card else None

    @property
    def maker(self) -> str:
        """NVIDIA, AMD or Intel; only NVIDIA's driver lists cards without the bus."""
        return self.function.maker if self.function else "NVIDIA"

    @property
    def above(self) -> list[Function]:
        """Bridges above it, as far as they are told, the nearest first."""
        return self.world.bus.chain(self.function) if self.function else []

    @property
    def at_root(self) -> bool:
        """Whether it sits on the root bus, where no card of a real machine does."""
        return bool(self.bus_id) and self.bus_id.split(":")[1] == "00"

    def says(self, word: str) -> bool:
        """Whether its names contain what data/detect.toml lists under that word."""
        words = facts.settings("detect")["words"][word]
        return bool(re.search(words, self.names, re.I))

    @property
    def integrated(self) -> bool:
        """Whether it is part of the processor."""
        if self.says("soc"):
            return True
        if self.function is None or self.maker not in INTEGRATED_SLOT:
            return False
        if self.at_root:
            return self.function.bus_id[-4:-2] == INTEGRATED_SLOT[self.maker]
        inside = self.function.is_part("apu")
        inside |= any(bridge.is_part("internal_bridge") for bridge in self.above[:1])
        return self.maker == "AMD" and inside

    @property
    def port(self) -> Function | None:
        """The function whose link is the card's own; None when it is not in sight.

        On a card with its own switch that is the switch's upstream port.
        """
        function, bus = self.function, self.world.bus
        if function is None or self.maker == "NVIDIA" or self.integrated:
            return function
        down = bus.parent(function) or _before(bus, function, "card_down")
        up = down and (bus.parent(down) or _before(bus, down, "card_up"))
        if down and up and self._own_switch(up, down):
            return up
        known = down and (down.vendor or down.name) and not down.is_part("card_down")
        return function if known or self.says("switchless") else None

    def _own_switch(self, up: Function, down: Function) -> bool:
        if up.is_part("card_up") and down.is_part("card_down"):
            return True
        # Two bridges nobody names, and only the root port above: no room for a dock.
        nameless = not (up.vendor or up.name or down.vendor or down.name)
        return nameless and len(self.above) == 3 and self.world.bus.at_root(self.above[2])

    def link(self) -> dict[str, int]:
        """Generation and lanes of the card's own link, where the texts have them."""
        port, found = self.port, {}
        if port:
            found = dict(port.link)
            if port.limit and self._own_hop(port, port.limit[1]):
                found = port.limit[0] | found
        found |= self.card.link if self.card else {}
        for what in ("gen", "width"):
            now, most = (f"pcie_{what}_{when}" for when in ("current", "max"))
            if found.get(now, 0) > found.get(most, 99):  # one of the two was cut
                del found[now], found[most]
        return found

    def _own_hop(self, port: Function, where: str) -> bool:
        """Whether the port that the kernel names is the one right above the card."""
        above = self.world.bus.parent(port)
        if above:
            return above.bus_id == where
        first = f"{port.bus_id.split(':')[0]}:00:"
        return where.startswith(first) and port.bus.endswith(":01")


def judge(gpu: Gpu) -> Answer:
    """Link, external and evidence of one card, by the first rule that can tell."""
    for rule in RULES:
        if answer := rule(gpu):
            return answer
    return "unknown", None, _seen(gpu)


def notes(gpu: Gpu, link: str, speeds: dict[str, int]) -> Iterator[str]:
    """Keys of the sentences that belong to this card."""
    if link in ("c2c", "virtual", "wsl", "unknown"):
        yield link
    if link.startswith(("thunderbolt", "usb4")):
        yield "tunnel"
    if link != "c2c" and _below(speeds, "gen"):
        yield "idle"
    if link not in ("c2c", "virtual") and _below(speeds, "width"):
        yield "narrow"
    if gpu.function and gpu.says("lost"):
        yield "lost"


def _below(speeds: dict[str, int], what: str) -> bool:
    now, most = speeds.get(f"pcie_{what}_current"), speeds.get(f"pcie_{what}_max")
    return now is not None and most is not None and now < most


def _wsl(gpu: Gpu) -> Answer | None:
    return ("wsl", None, "the kernel is that of WSL") if gpu.world.wsl else None


def _module(gpu: Gpu) -> Answer | None:
    """GPUs that cannot be a card in a slot."""
    if gpu.says("c2c") or (gpu.card and gpu.card.c2c):
        return "c2c", False, f"{gpu.name}: processor and GPU on one module"
    if gpu.says("sxm") and not gpu.says("pcie_card"):
        return "sxm", False, f"{gpu.name} is a module on a board"
    if gpu.world.switched and not gpu.says("pcie_card"):
        return "sxm", False, "nvidia-smi topo -m: NVLink between all GPUs"
    return None


def _virtual(gpu: Gpu) -> Answer | None:
    passed = facts.settings("detect")["words"]["passed_through"]
    if gpu.card and re.search(passed, gpu.card.mode, re.I):
        return "virtual", None, f"nvidia-smi -q: virtualisation {gpu.card.mode}"
    if gpu.says("vgpu") or (gpu.function and gpu.function.virtual):
        return "virtual", None, f"{gpu.name} is a virtual function"
    if gpu.world.virtual:
        return "virtual", None, "the system is a virtual machine"
    if gpu.at_root and not gpu.integrated:
        return "virtual", None, f"{gpu.bus_id}: a card on the root bus, as in a guest"
    return None


def _integrated(gpu: Gpu) -> Answer | None:
    if gpu.integrated:
        return "integrated", False, f"{gpu.name} is part of the processor"
    return None


def _tunnelled(gpu: Gpu) -> Answer | None:
    found = [(thunderbolt.tunnel(bridge), bridge) for bridge in gpu.above]
    kinds = [kind for kind, _ in found if kind]
    if kinds:
        link = thunderbolt.slowest(kinds)
        bridge = next(b for kind, b in found if kind)
        link = "unknown" if link in ("thunderbolt", "thunderbolt2") else link
        name = bridge.name or bridge.ids
        return link, True, f"{gpu.bus_id} is behind {bridge.bus_id} {name}"
    if gpu.function and gpu.function.removable:
        return "unknown", True, f"sysfs: {gpu.bus_id} is removable"
    return None


def _named_slot(gpu: Gpu) -> Answer | None:
    """The firmware's name of the slot. Ports of a tunnel have such names too."""
    slot = gpu.function.slot if gpu.function else ""
    words = facts.settings("detect")["words"]
    if not slot or gpu.world.tunnels or re.search(words["m2"], slot, re.I):
        return None
    if re.search(words["oculink"], slot, re.I):
        return "oculink", True, f"lspci: slot {slot}"
    if gpu.link().get("pcie_width_current", WIDE) >= WIDE:
        return "pcie-slot", False, f"lspci: physical slot {slot}"
    return None


def _laptop(gpu: Gpu) -> Answer | None:
    """A laptop's chip, unless bridges that nobody names stand between it and the root."""
    above = gpu.world.bus.chain(gpu.port) if gpu.port else gpu.above
    if gpu.says("laptop") and len(above) <= 1 and gpu.maker != "AMD":
        return "laptop-internal", False, f"{gpu.name} is a laptop's chip"
    return None


def _wide(gpu: Gpu) -> Answer | None:
    width = gpu.link().get("pcie_width_current", 0)
    if width >= WIDE:
        return "pcie-slot", False, f"{width} lanes: more than a dock's cable has"
    return None


RULES: tuple[Callable[[Gpu], Answer | None], ...] = (
    _wsl,
    _module,
    _tunnelled,
    _virtual,
    _integrated,
    _named_slot,
    _laptop,
    _wide,
)


def _seen(gpu: Gpu) -> str:
    chain = " < ".join(f"{b.bus_id} {b.name}".strip() for b in gpu.above)
    if chain:
        return f"bridges above {gpu.bus_id}, none a tunnel by name: {chain}"
    return "no list of the bridges above this card"


def _before(bus: Bus, function: Function, what: str) -> Function | None:
    """Without a tree: a known part of a card on the bus just before, if there is one."""
    domain, number = function.bus.split(":")
    before = f"{domain}:{int(number, 16) - 1:02x}:00.0" if int(number, 16) else ""
    found = bus.functions.get(before)
    return found if found and found.is_part(what) else None
