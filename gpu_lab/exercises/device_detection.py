"""Exercises of notebook 02: pick a device on any machine; find the narrowest hop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gpu_lab import facts, units
from gpu_lab.bench import ceiling
from gpu_lab.exercises.frame import Exercise, Kind, NotYet, require_keys
from gpu_lab.show import Table

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_90", "gfx1100")
Settings = dict[str, Any]
NO_DRIVER = "Found no NVIDIA driver on your system"


def stand_in_torch(machine: Settings) -> Any:
    """What `torch` answers on a machine of the table; SIMULATED.

    It has torch.accelerator, torch.cuda, torch.xpu, torch.backends.mps and
    torch.ones(…, device=…), as far as choosing a device needs them.
    """
    build, available = machine["build"], machine["available"]
    kind = None if build == "cpu" else SimpleNamespace(type=build, index=None)
    return SimpleNamespace(
        accelerator=SimpleNamespace(
            is_available=lambda: available,
            current_accelerator=lambda check_available=False: (
                kind if available or not check_available else None
            ),
            device_count=lambda: len(machine.get("devices", [])),
        ),
        cuda=_backend(machine, "cuda"),
        xpu=_backend(machine, "xpu"),
        backends=SimpleNamespace(mps=_backend(machine, "mps")),
        ones=lambda *_size, device="cpu": _tensor(machine, str(device)),
        zeros=lambda *_size, device="cpu": _tensor(machine, str(device)),
    )


def _backend(machine: Settings, kind: str) -> Any:
    there = machine["build"] == kind and machine["available"]
    devices = machine.get("devices", []) if there else []

    def properties(index: Any = 0) -> Any:
        card = devices[_index(str(index))]
        memory = card["memory_gib"] * 2**30
        return SimpleNamespace(name=card["name"], total_memory=memory)

    return SimpleNamespace(
        is_available=lambda: there,
        device_count=lambda: len(devices),
        get_device_properties=properties,
        get_arch_list=lambda: list(ARCHITECTURES) if there else [],
        get_device_name=lambda index=0: properties(index).name,
        get_device_capability=lambda index=0: tuple(
            devices[_index(str(index))]["capability"]
        ),
    )


def _index(text: str) -> int:
    number = text.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _tensor(machine: Settings, device: str) -> Any:
    """A tensor on that device, or the error that torch would raise."""
    kind = device.split(":", maxsplit=1)[0]
    if kind != "cpu":
        if kind != machine["build"] or not machine["available"]:
            raise RuntimeError(NO_DRIVER if kind == "cuda" else f"no {kind} here")
        for number, card in enumerate(machine.get("devices", [])):
            if number == _index(device) and not card["works"]:
                raise RuntimeError(card["error"])
    tensor: Any = SimpleNamespace(item=lambda: 1.0, device=device)
    tensor.sum = tensor.cpu = lambda: tensor
    return tensor


def right_pick(torch: Any) -> str:
    """The device with the most memory on which a kernel runs, else mps, else cpu."""
    best, most = "cpu", 0
    for kind in ("cuda", "xpu"):
        backend = getattr(torch, kind)
        for index in range(backend.device_count() if backend.is_available() else 0):
            memory = backend.get_device_properties(index).total_memory
            try:
                torch.ones(1, device=f"{kind}:{index}").sum().item()
            except RuntimeError:
                continue
            if memory > most:
                best, most = f"{kind}:{index}", memory
    return "mps" if best == "cpu" and torch.backends.mps.is_available() else best


def machines() -> list[Settings]:
    """The machines of the exercise."""
    return list(facts.settings("device_detection")["machines"])


def machines_table() -> Table:
    """What there is to meet: name, build, cards."""
    rows = [
        (m["name"], m["build"], ", ".join(c["name"] for c in m.get("devices", [])))
        for m in machines()
    ]
    return Table(rows, ("machine", "torch build", "cards"), "SIMULATED.")


def check_pick(answer: Any) -> str:
    """Run the learner's pick_device(torch) on each machine."""
    if not callable(answer):
        raise NotYet("wanted a function pick_device(torch) that returns a device name")
    for machine in machines():
        try:
            found = str(answer(stand_in_torch(machine)))
        except RuntimeError as error:
            raise NotYet(f"on {machine['name']!r} it raised: {error}") from None
        if _plain(found) != _plain(machine["picks"]):
            hints = machine["hints"]
            hint = hints.get(found.split(":", maxsplit=1)[0], hints.get("any", ""))
            text = f"on {machine['name']!r} it picks {found}"
            raise NotYet(f"{text}: {hint or 'look at what that machine has'}")
    return f"right on all {len(machines())} machines"


def _plain(device: str) -> str:
    return device.removesuffix(":0")


def paths_table() -> Table:
    """The hops of each path, as tools print them."""
    rows = []
    for name, hops in _paths().items():
        for number, hop in enumerate(hops, 1):
            now = f"PCIe {hop['now']} x{hop['lanes']}"
            rows.append((name, str(number), hop["name"], now, f"PCIe {hop['most']}"))
    columns = ("path", "hop", "from and to", "shown now", "at most")
    return Table(rows, columns, "SIMULATED. The cards are idle.")


def _paths() -> dict[str, list[Settings]]:
    return {
        k: p["hops"] for k, p in facts.settings("device_detection")["paths"].items()
    }


def hop_rate(hop: Settings) -> float:
    """Bytes a second that a hop can move in one direction; of a tunnel its share."""
    if "tunnel_gbit_s" in hop:
        return float(hop["tunnel_gbit_s"]) * 1e9 / 8
    return ceiling.pcie(hop["most"], hop["lanes"]).value or 0.0


def right_hops() -> dict[str, int]:
    """Path -> number of its narrowest hop."""
    rates = {name: [hop_rate(hop) for hop in hops] for name, hops in _paths().items()}
    return {name: found.index(min(found)) + 1 for name, found in rates.items()}


def check_hops(answer: Any) -> str:
    """Compare the hop numbers; the hint names what the chosen hop really moves."""
    right = right_hops()
    require_keys(answer, right)
    for name, number in right.items():
        hops = _paths()[name]
        if answer[name] not in range(1, len(hops) + 1):
            raise NotYet(f"path {name}: wanted a hop from 1 to {len(hops)}")
        chosen = hops[answer[name] - 1]
        if answer[name] != number:
            rate = units.bandwidth(hop_rate(chosen))
            why = f"it can move {rate}, another one less"
            if chosen["now"] < chosen["most"]:
                why = f"an idle card shows a low generation; under load {why}"
            if any("tunnel_gbit_s" in hop for hop in hops):
                why = f"{why}; what PCIe shows of a tunnel is a placeholder"
            raise NotYet(f"path {name}, hop {answer[name]}: {why}")
    return "all narrowest hops found"


pick_device = Exercise(
    "pick_device", Kind.VALUE, check_pick, reference=lambda: right_pick
)
narrowest_hop = Exercise("narrowest_hop", Kind.VALUE, check_hops, reference=right_hops)
EXERCISES = (pick_device, narrowest_hop)
