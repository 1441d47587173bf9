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
from gpu_lab.hardware import host, pci, place, texts
from gpu_lab.hardware.texts import Facts, Thing
from gpu_lab.records import GpuLabError


def load(path: Path) -> dict[str, str]:
    """A recorded snapshot.

    Raises:
        GpuLabError: not a JSON map of texts; says what was found.
    """
    try:
        if not path.is_file():  # a pipe or a device would never end
            raise OSError("not a file")
        stored = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
        if isinstance(stored, dict) and isinstance(stored.get("snapshot"), dict):
            stored = stored["snapshot"]  # a recorded machine, or a doctor's report
        if not isinstance(stored, dict) or not stored:
            raise ValueError("no map, or an empty one")
        if not all(isinstance(text, str) for text in stored.values()):
            raise ValueError("values that are no texts")
        return stored
    except (OSError, ValueError, RecursionError) as error:
        raise GpuLabError(
            f"{path}: wanted a snapshot (JSON map of path or command to its text, as "
            f"`gpu-lab snapshot` writes it), found {type(error).__name__}: {error}"
        ) from error


def record() -> dict[str, str]:
    """This machine now, without anything personal."""
    return {key: redact.text(text) for key, text in host.texts().items()}


def recorded() -> dict[str, dict[str, Any]]:
    """Machines of other people, shipped for lessons: title -> source, snapshot.

    Real texts from public pages (CITED), not made by this code.
    """
    folder = facts.folder("data") / "machines"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    trees = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return {str(tree["title"]): tree for tree in trees}


@functools.cache
def here() -> dict[str, Any]:
    """What this machine's snapshot says, once a process."""
    return analyse(record())


def analyse(snapshot: dict[str, str]) -> dict[str, Any]:
    """GPUs with their links, and what was told of driver and surroundings.

    Every field is there; None where the snapshot does not tell.
    """
    found = texts.read(snapshot)
    for source, text in snapshot.items():
        pci.read_paths(found["pci"], f"{source}\n{text}")
        if "lspci" in source:
            pci.read_tree(found["pci"], texts.clean(source, text))
    for bus_id, function in found["pci"].items():
        function["address"] = bus_id
    rows = [_row(gpu) for gpu in _gpus(found)]
    system = found["system"].get("", {})
    drivers = [card["driver"] for card in found["card"].values() if "driver" in card]
    return {
        "gpus": rows,
        "interconnect": _interconnect(found),
        "mig_devices": len(found["mig"]) or None,
        "driver_version": system.get("driver") or next(iter(drivers), None),
        "cuda_version": system.get("cuda"),
        "notes": sorted(set(_remarks(rows, found))),
    }


def _gpus(found: Facts) -> Iterator[place.Gpu]:
    """Cards of the bus with what the driver says of each, then those it alone lists."""
    functions = {a: found["pci"][a] for a in pci.gpus(found["pci"])}
    cards = [found["card"][key] for key in sorted(found["card"], key=int)]
    cards = cards or [{} for _ in found["topology"]]
    nvidia = [f for f in functions.values() if pci.maker(f) == "NVIDIA"]
    _find_places(cards, nvidia)
    by_place = {card["address"]: card for card in cards if "address" in card}
    for a, function in functions.items():
        yield place.Gpu(function, by_place.get(a, {}), found)
    alone = [c for c in cards if "address" in c or not nvidia]
    for card in alone:
        if card.get("address") not in functions:
            yield place.Gpu({}, card, found)
    for thing in found["listed"].values():  # nvidia-smi has listed NVIDIA's already
        if pci.maker(thing) != "NVIDIA" or not any(_alike(thing, c) for c in cards):
            yield place.Gpu({}, thing, found)


def _find_places(cards: list[Thing], functions: list[Thing]) -> None:
    """Give cards without address the one they must have: by order, else by name.

    nvidia-smi numbers cards in the order of the bus.
    """
    taken = {card.get("address") for card in cards}
    free = [f for f in functions if f["address"] not in taken]
    loose = [card for card in cards if "address" not in card]
    pairs = list(zip(loose, free, strict=False))
    if len(free) != len(loose) or not all(_alike(*pair) for pair in pairs):
        pairs = [
            (card, like[0])
            for card in loose
            if len(like := [f for f in free if _alike(card, f)]) == 1
            and len([other for other in loose if _alike(card, other)]) == 1
        ]
    for card, function in pairs:
        card["address"] = function["address"]


def _alike(one: Thing, other: Thing) -> bool:
    """Whether two names may mean one card: a number in common, or none to compare."""
    names = [thing.get("name", "").lower() for thing in (one, other)]
    first, second = (set(re.findall(r"[a-z]*\d+", name)) for name in names)
    return "..." in "".join(names) or not first or not second or bool(first & second)


def _row(gpu: place.Gpu) -> dict[str, Any]:
    answer, speeds = place.judge(gpu), gpu.link()
    sentences = facts.settings("detect")["notes"]
    return {
        "name": gpu.name,
        "bus_id": gpu.bus_id,
        "external": answer[1],
        "link": answer[0],
        **{name: speeds.get(name) for name in place.LINK_FIELDS},
        "note": " ".join(sentences[key] for key in place.notes(gpu, answer, speeds)),
        "evidence": [answer[2]],
        "path": [_hop(b, pci.tunnel(b)) for b in reversed(gpu.above())]
        + [_hop({"name": gpu.name}, "") | speeds],
    }


def _hop(thing: Thing, tunnel: str) -> dict[str, Any]:
    """One station on the way from the processor to the card, with its upper link."""
    name = thing.get("name") or thing.get("address", "")
    return {"name": name, "tunnel": tunnel, **pci.speeds(thing)}


def _interconnect(found: Facts) -> str | None:
    """How GPUs reach each other: one word of topo -m, or all that occur."""
    rows = [thing["row"].split() for thing in found["topology"].values()]
    words = {word for row in rows for word in row[: len(rows)]} - {"X"}
    return ", ".join(sorted(words)) or None


def _remarks(rows: list[dict[str, Any]], found: Facts) -> Iterator[str]:
    sentences = facts.settings("detect")["remarks"]
    if not rows:
        yield sentences["no_gpu"]
    if failure := found["system"].get("", {}).get("failure"):
        yield sentences["smi"].format(text=failure)
    behind = any(row["external"] is not False for row in rows)
    for box in found["box"].values():
        name, maker = box.get("name", ""), box.get("maker", "")
        title = name if name.startswith(maker) else f"{maker} {name}"
        if name and "gone" not in box and ("denied" in box or not behind):
            text = sentences["denied" if "denied" in box else "enclosure"]
            yield text.format(name=title)
