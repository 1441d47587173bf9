"""A machine as texts, and what they say of its GPUs and their links.

A snapshot maps a path or a command to what it holds or prints. `record` takes one of
this machine, redacted; `analyse` reads any, so live and recorded go the same way.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_lab import facts, redact
from gpu_lab.hardware import host, listed, pci, place, smi, thunderbolt
from gpu_lab.records import GpuLabError

Snapshot = dict[str, str]
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_LONGEST_LINE = 2000  # no tool prints a longer one
# Texts that say on what the whole system runs.
_SYSTEM = re.compile(r"uname|/proc/version|detect-virt|/dmi/id/|lscpu|dmesg|journalctl")
# Where a link of /sys/bus/pci leads: all bridges above are in its name.
_PATH = re.compile(r"/pci[0-9a-f]{4,8}:[0-9a-f]{2}/[0-9a-f:./]+")
_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)\s")


def load(path: Path) -> Snapshot:
    """A recorded snapshot.

    Raises:
        GpuLabError: not a JSON map of texts; says what was found.
    """
    try:
        if not path.is_file():  # a pipe or a device would never end
            raise OSError("not a file")
        stored = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
        return {str(key): str(text) for key, text in stored.items()}
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise GpuLabError(
            f"{path}: wanted a snapshot (JSON map of path or command to its text, as "
            f"`gpu-lab snapshot` writes it), found {type(error).__name__}: {error}"
        ) from error


def record() -> Snapshot:
    """This machine now, without anything personal."""
    return {key: redact.text(text) for key, text in host.texts().items()}


@functools.cache
def here() -> dict[str, Any]:
    """What this machine's snapshot says, once a process."""
    return analyse(record())


def analyse(snapshot: Snapshot) -> dict[str, Any]:
    """GPUs with their links, and what was told of driver and surroundings.

    Every field is there; None where the snapshot does not tell.
    """
    texts = {key: clean(key, text) for key, text in snapshot.items()}
    answers, cables = smi.Answers(), thunderbolt.Cables()
    world = _world(texts, answers, cables)
    functions, gpus = world.bus.gpus(), list(_gpus(world, answers))
    named = list(_named(texts)) if not functions else []
    rows = [_row(gpu, answers) for gpu in gpus]
    rows += [row for row in named if not _known(row["name"], rows)]
    return {
        "gpus": rows,
        "interconnect": answers.interconnect,
        "mig_devices": answers.mig_devices,
        "driver_version": answers.driver,
        "cuda_version": answers.cuda,
        "notes": list(_remarks(rows, answers, cables)),
    }


def clean(key: str, text: str) -> str:
    """The text with plain line ends and blanks, without what no tool prints.

    A text that ends in a lone 1 may have been cut inside 16: that 1 says nothing.
    """
    text = _ESCAPE.sub("", text.replace("\ufeff", "").replace("\r", ""))
    text = text.replace("\t", " ").replace("\x00", "")
    lines = (line for line in text.split("\n") if len(line) <= _LONGEST_LINE)
    text = "\n".join(lines)
    return text if key.startswith("/") else re.sub(r"(?<![\d.])1\Z", "", text)


def _world(
    texts: Snapshot, answers: smi.Answers, cables: thunderbolt.Cables
) -> place.World:
    """Read every text into the bus, the driver's answers and the list of cables."""
    world, physical = place.World(wsl="/dev/dxg" in texts), False
    for key, text in texts.items():
        _read(world.bus, answers, cables, key, text)
        if _SYSTEM.search(key):
            world.wsl |= _says("wsl", text)
            world.virtual |= _says("virtual", text)
            physical |= "detect-virt" in key and _says("physical", text)
    world.virtual &= not physical  # a whole machine, rented: DMI names the cloud too
    world.switched = answers.switched
    bridges = any(thunderbolt.tunnel(f) for f in world.bus.functions.values())
    world.tunnels = bridges or bool(cables.found)
    return world


def _read(
    bus: pci.Bus,
    answers: smi.Answers,
    cables: thunderbolt.Cables,
    key: str,
    text: str,
) -> None:
    """One text, by the tool or folder that its key names."""
    for path in _PATH.findall(text):
        pci.read_sysfs(bus, f"{path}/", "")
    if key.startswith("/sys/"):
        pci.read_sysfs(bus, key, text)
        cables.read_sysfs(key, text)
    elif "nvidia-smi" in key:
        smi.read(answers, key, text)
    elif "lspci" in key:
        pci.read_lspci(bus, text)
    elif "boltctl" in key:
        cables.read_boltctl(text)
    elif re.search(r"dmesg|journalctl|kern\.log", key):
        pci.read_kernel(bus, text)
        cables.read_kernel(text)
    elif "/driver/nvidia/version" in key and (found := _MODULE.search(text)):
        answers.driver = answers.driver or found[1]


def _says(word: str, text: str) -> bool:
    words = facts.settings("detect")["words"][word]
    return bool(re.search(words, text.strip(), re.M))


def _gpus(world: place.World, answers: smi.Answers) -> Iterator[place.Gpu]:
    """Cards of the bus with what the driver says of each, then those it alone lists."""
    functions = world.bus.gpus()
    cards = answers.cards or [smi.Card(i, "NVIDIA GPU") for i in answers.links]
    _find_places(cards, [f for f in functions if f.maker == "NVIDIA"])
    by_place = {card.bus_id: card for card in cards if card.bus_id}
    for function in functions:
        yield place.Gpu(function, by_place.get(function.bus_id), world)
    there = {function.bus_id for function in functions}
    for card in cards:
        if card.bus_id not in there and (card.bus_id or not _nvidia(functions)):
            yield place.Gpu(None, card, world)


def _nvidia(functions: list[pci.Function]) -> bool:
    return any(function.maker == "NVIDIA" for function in functions)


def _find_places(cards: list[smi.Card], functions: list[pci.Function]) -> None:
    """Give cards without address the one they must have: by order, else by name."""
    taken = {card.bus_id for card in cards}
    free = [f for f in functions if f.bus_id not in taken]
    loose = sorted((c for c in cards if not c.bus_id), key=lambda card: card.index)
    if len(free) == len(loose):  # nvidia-smi numbers cards in the order of the bus
        pairs = list(zip(loose, free, strict=True))
        if all(smi.alike(card.name, f.name) for card, f in pairs):
            for card, function in pairs:
                card.bus_id = function.bus_id
            return
    for card in loose:
        like = [f for f in free if smi.alike(card.name, f.name)]
        rivals = [c for c in loose if smi.alike(card.name, c.name)]
        if len(like) == len(rivals) == 1:
            card.bus_id = like[0].bus_id


def _row(gpu: place.Gpu, answers: smi.Answers) -> dict[str, Any]:
    link, external, evidence = place.judge(gpu)
    speeds = gpu.link()
    sentences = facts.settings("detect")["notes"]
    keys = list(place.notes(gpu, link, speeds))
    told = bool(answers.cards)
    if told and gpu.card is None and gpu.function and gpu.function.maker == "NVIDIA":
        keys.append("unseen")
    return {
        "name": gpu.name,
        "bus_id": gpu.bus_id,
        "external": external,
        "link": link,
        **{name: speeds.get(name) for name in place.LINK_FIELDS},
        "note": " ".join(sentences[key] for key in keys),
        "evidence": [evidence],
    }


def _named(texts: Snapshot) -> Iterator[dict[str, Any]]:
    """GPUs that macOS or Windows names, without a PCI tree."""
    for key, text in texts.items():
        if "SPDisplaysDataType" in key:
            yield from (_mac_row(card) for card in listed.of_mac(text))
        elif "VideoController" in key:
            yield from (_plain_row(name) for name in listed.of_windows(text))


def _mac_row(card: dict[str, str]) -> dict[str, Any]:
    name, kind = card.get("Chipset Model", "GPU"), card.get("Type", "")
    row = _plain_row(name)
    if re.search("external|egpu", kind, re.I):  # macOS takes them on Thunderbolt only
        row |= {"external": True, "link": "thunderbolt3", "evidence": [f"type {kind}"]}
    elif "built" in card.get("Bus", "").lower():
        row |= {"external": False, "link": "integrated"}
    lanes = re.fullmatch(r"x(\d+)", card.get("PCIe Lane Width", ""))
    return row | (pci.speeds("current", width=lanes[1]) if lanes else {})


def _plain_row(name: str) -> dict[str, Any]:
    inside = _says("integrated", name)
    return {
        "name": name,
        "bus_id": None,
        "external": False if inside else None,
        "link": "integrated" if inside else "unknown",
        **dict.fromkeys(place.LINK_FIELDS),
        "note": "" if inside else facts.settings("detect")["notes"]["unknown"],
        "evidence": [f"the system names {name}"],
    }


def _known(name: str, rows: list[dict[str, Any]]) -> bool:
    """Whether nvidia-smi has listed this card already."""
    nvidia = re.search("nvidia|geforce|quadro|tesla", name, re.I)
    return bool(nvidia) and any(smi.alike(name, row["name"]) for row in rows)


def _remarks(
    rows: list[dict[str, Any]], answers: smi.Answers, cables: thunderbolt.Cables
) -> Iterator[str]:
    sentences = facts.settings("detect")["remarks"]
    if not rows:
        yield sentences["no_gpu"]
    if answers.failure:
        yield sentences["smi"].format(text=answers.failure)
    behind = any(row["external"] or row["external"] is None for row in rows)
    for box in cables.attached():
        if box.state == "connected":
            yield sentences["denied"].format(name=box.title)
        elif not behind:
            yield sentences["enclosure"].format(name=box.title, state=box.state)
