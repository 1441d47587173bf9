"""Where one card sits and over what: the chain of bridges decides, names help.

Each rule answers (link, external, evidence) or None, and the first answer counts. What
no rule can tell stays unknown: an OCuLink dock and a short slot look alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_lab import facts
from gpu_lab.hardware import pci
from gpu_lab.hardware.texts import Facts, Thing

WIDE = 8  # lanes; tunnels and OCuLink cables of docks carry four
WHEN, WHAT = ("current", "max"), ("gen", "width")
LINK_FIELDS = tuple(f"pcie_{what}_{when}" for when in WHEN for what in WHAT)
# Slot on the root bus where a processor's own graphics are, if not behind a bridge.
INTEGRATED_SLOT = {"Intel": "02", "AMD": "01"}
Answer = tuple[str, bool | None, str]


@dataclass(frozen=True)
class Gpu:
    """A card as the bus and NVIDIA's driver show it; either may be empty."""

    function: Thing
    card: Thing
    found: Facts

    @property
    def name(self) -> str:
        """The driver's name, else that of lspci, else maker and ids."""
        told, listed = self.card.get("name", ""), self.function.get("name", "")
        if told and not ("..." in told and listed):
            return told
        ids = pci.ids(self.function).rstrip(":")
        return listed or f"{self.maker} GPU [{ids}]" if self.function else "NVIDIA GPU"

    @property
    def bus_id(self) -> str | None:
        """PCI address, or None where no text has it."""
        return self.function.get("address") or self.card.get("address")

    @property
    def maker(self) -> str:
        """NVIDIA, AMD or Intel; only NVIDIA's driver lists cards without the bus."""
        return pci.maker(self.function) if self.function else "NVIDIA"

    @property
    def at_root(self) -> bool:
        """Whether it sits on a root bus, as cards do in guests and nowhere else."""
        return (self.bus_id or ":").split(":")[1] == "00"

    def above(self, place: str | None = None) -> list[Thing]:
        """Bridges above the card, or above that address, the nearest first."""
        functions, start = self.found["pci"], place or self.bus_id or ""
        return [functions[bridge] for bridge in pci.chain(functions, start)]

    def says(self, words: str) -> bool:
        """Whether its names contain a pattern."""
        told = (self.card.get("name"), self.function.get("name"), self.card.get("type"))
        return bool(re.search(words, " ".join(filter(None, told)), re.I))

    @property
    def integrated(self) -> bool:
        """Whether it is part of an Intel or AMD processor."""
        if self.at_root:
            slot = INTEGRATED_SLOT.get(self.maker, "none")
            return f":{slot}." in (self.bus_id or "")
        inside = any(pci.is_part(b, "internal_bridge") for b in self.above()[:1])
        return self.maker == "AMD" and (inside or pci.is_part(self.function, "apu"))

    @property
    def port(self) -> Thing | None:
        """The function whose link is the card's own; None when it is not in sight.

        On a card with its own switch that is the switch's upstream port.
        """
        if not self.function or self.maker == "NVIDIA" or self.integrated:
            return self.function or None
        bridges = self.above() or self._just_before()
        parts = [pci.is_part(b, p) for b, p in zip(bridges, _SWITCH, strict=False)]
        nameless = not any({"vendor", "name"} & b.keys() for b in bridges[:2])
        # Two bridges nobody names, and only the root port above: no room for a dock.
        if parts == [True, True] or (nameless and len(bridges) == 3):
            return bridges[1]
        plain = bool(bridges) and not nameless and not parts[0]
        return self.function if plain or self.says(_words("switchless")) else None

    def _just_before(self) -> list[Thing]:
        """Without a tree: the parts of a card on the two buses before, if both are."""
        domain, bus, _ = (self.bus_id or "0:0:").split(":")
        found: list[Thing] = []
        for back, part in enumerate(_SWITCH, 1):
            start = f"{domain}:{int(bus, 16) - back:02x}:"
            near = (f for a, f in self.found["pci"].items() if a.startswith(start))
            found += [f for f in near if pci.is_part(f, part)][:1]
        return found if len(found) == len(_SWITCH) else []

    def link(self) -> dict[str, int]:
        """Generation and lanes of the card's own link, where the texts have them."""
        port = self.port or {}
        found = pci.speeds(port)
        if "limit_at" in port:  # the card's own hop only right above the card
            above = [b["address"] for b in self.above(port["address"])]
            near = (above or [port["address"][:8].replace(":01:", ":00:")])[0]
            hop = {f"{k}_current": port[f"limit_{k}"] for k in ("speed", "width")}
            if port["limit_at"].startswith(near):
                found = pci.speeds(hop) | found
        found |= pci.speeds(self.card)
        for what in WHAT:
            now, most = (f"pcie_{what}_{when}" for when in WHEN)
            if found.get(now, 0) > found.get(most, 99):  # one of the two was cut
                del found[now], found[most]
        return found


_SWITCH = ("card_down", "card_up")


def judge(gpu: Gpu) -> Answer:
    """Link, external and evidence of one card, by the first rule that can tell."""
    return next(answer for rule in RULES if (answer := rule(gpu)))


def notes(gpu: Gpu, answer: Answer, speeds: dict[str, int]) -> Iterator[str]:
    """Keys of the sentences that belong to this card."""
    link, external, _ = answer
    if link in ("c2c", "virtual", "wsl") or (link == "unknown" and not external):
        yield link
    if link.startswith(("thunderbolt", "usb4")):
        yield "tunnel"
    for what, key in (("gen", "idle"), ("width", "narrow")):
        now, most = (speeds.get(f"pcie_{what}_{when}") for when in WHEN)
        if now and most and now < most and link not in ("c2c", "virtual"):
            yield key
    if "lost" in gpu.function:
        yield "lost"
    if not gpu.card and gpu.maker == "NVIDIA" and gpu.found["card"]:
        yield "unseen"


def _words(name: str) -> str:
    return str(facts.settings("detect")["words"][name])


def _by_name(gpu: Gpu) -> Answer | None:
    if "wsl" in gpu.found["system"].get("", {}):
        return "wsl", None, "the kernel is that of WSL"
    for rule in facts.settings("detect")["named"]:
        if gpu.says(rule["words"]):
            return rule["link"], rule.get("external"), f"{gpu.name}: {rule['why']}"
    if "c2c" in gpu.card:
        return "c2c", False, "nvidia-smi -q: C2C mode is enabled"
    rows = [thing["row"].split() for thing in gpu.found["topology"].values()]
    pairs = {word[:2] for row in rows for word in row[: len(rows)]}
    whole = all(len(row) >= len(rows) > 2 for row in rows)
    if rows and whole and pairs == {"X", "NV"} and not gpu.says(_words("pcie_card")):
        return "sxm", False, "nvidia-smi topo -m: NVLink between all GPUs"
    return None


def _by_bridges(gpu: Gpu) -> Answer | None:
    order = [str(kind["link"]) for kind in facts.settings("detect")["tunnels"]]
    tunnels = [(pci.tunnel(b), b) for b in gpu.above() if pci.tunnel(b)]
    if tunnels:
        slowest = min((kind for kind, _ in tunnels), key=order.index)
        known = slowest not in ("thunderbolt", "thunderbolt2")
        bridge = tunnels[0][1]
        name = bridge.get("name") or pci.ids(bridge)
        why = f"{gpu.bus_id} is behind {bridge['address']} {name}"
        return slowest if known else "unknown", True, why
    if "removable" in gpu.function:
        return "unknown", True, f"sysfs: {gpu.bus_id} is removable"
    return None


def _by_guest(gpu: Gpu) -> Answer | None:
    system, mode = gpu.found["system"].get("", {}), gpu.card.get("mode", "")
    if re.search(_words("passed_through"), mode, re.I):
        return "virtual", None, f"nvidia-smi -q: virtualisation {mode}"
    # A whole machine may be rented too: its DMI names the cloud, and it is no guest.
    if "virtual" in gpu.function or ("virtual" in system and "physical" not in system):
        return "virtual", None, f"the system is a guest ({system.get('virtual', 'VF')})"
    if any(re.search(_words("emulated"), f"{b.get('name')}") for b in gpu.above()):
        return "virtual", None, "a bridge above the card is an emulated one"
    if gpu.integrated:
        return "integrated", False, f"{gpu.name} is part of the processor"
    if gpu.at_root:
        return "virtual", None, f"{gpu.bus_id}: a card on the root bus, as in a guest"
    return None


def _by_slot(gpu: Gpu) -> Answer | None:
    """The firmware's name of the slot. Ports of a tunnel have such names too."""
    slot, found = gpu.function.get("slot", ""), gpu.found
    tunnels = found["box"] or any(map(pci.tunnel, found["pci"].values()))
    if not slot or tunnels or re.search(_words("m2"), slot, re.I):
        return None
    if re.search(_words("oculink"), slot, re.I):
        return "oculink", True, f"lspci: slot {slot}"
    wide = gpu.link().get("pcie_width_current", WIDE) >= WIDE
    return ("pcie-slot", False, f"lspci: physical slot {slot}") if wide else None


def _by_form(gpu: Gpu) -> Answer | None:
    """More lanes than a dock's cable has; a laptop's chip right below the root.

    The chip's name alone proves nothing: some docks hold one too.
    """
    bridges = gpu.above((gpu.port or {}).get("address"))
    width = gpu.link().get("pcie_width_current", 0)
    laptop = gpu.says(_words("laptop")) and gpu.maker != "AMD"
    if laptop and (len(bridges) == 1 or width >= WIDE):
        where = "right below the root" if len(bridges) == 1 else f"with {width} lanes"
        return "laptop-internal", False, f"{gpu.name}, a laptop's chip, {where}"
    if width >= WIDE:
        return "pcie-slot", False, f"{width} lanes: more than a dock's cable has"
    return None


def _unknown(gpu: Gpu) -> Answer:
    names = " < ".join(f"{b['address']} {b.get('name', '')}" for b in gpu.above())
    why = f"no tunnel among the bridges above by name: {names}" if names else ""
    return "unknown", None, why or "no list of the bridges above this card"


# Bridges before names: a data-centre card on an adapter may stand in a Thunderbolt box.
RULES: tuple[Callable[[Gpu], Answer | None], ...] = (
    _by_bridges,
    _by_name,
    _by_guest,
    _by_slot,
    _by_form,
    _unknown,
)
