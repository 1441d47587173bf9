"""Memory: two cures that keep the gradients, and a small allocator that fragments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpu_lab.bench.amp import Training, saved_bytes, untrained
from gpu_lab.records import Device, Settings
from gpu_lab.timing import Arm

METHOD_VERSION = 1
PARTS, BATCH = 4, 16
WAYS = ("whole", "parts", "recomputed")
SEGMENT = 20  # MiB that PyTorch asks of the driver at least (large pool)


@dataclass(frozen=True)
class Recomputed:
    """A network that keeps what enters its layers, and computes the rest again."""

    network: Any

    def __call__(self, inputs: Any) -> Any:
        """Forward pass with one checkpoint a layer."""
        from torch.utils.checkpoint import checkpoint_sequential as by_layer

        net = self.network
        return by_layer(net, len(net), inputs, use_reentrant=False)

    def parameters(self) -> Any:
        """The weights, as of the network itself."""
        return self.network.parameters()


def training(
    way: str, *, device: Device, model: str = "transformer", seed: int = 0
) -> list[Training]:
    """Passes that together make one step: whole, in parts, or recomputed.

    Args:
        way: "whole", "parts" (gradient accumulation, each loss scaled to its share),
            "unscaled" (the same without), or "recomputed" (activation checkpointing).
        model: of `bench.amp`; "transformer" has no BatchNorm, "cnn" has.
    """
    settings: Settings = {"mode": "float32", "channels_last": False, "batch": BATCH}
    whole = untrained(model, device, settings | {"seed": seed})
    if way == "recomputed":
        return [replace(whole, network=Recomputed(whole.network))]
    if way == "whole":
        return [whole]
    weight = 1.0 if way == "unscaled" else 1 / PARTS
    chunks = zip(whole.inputs.chunk(PARTS), whole.labels.chunk(PARTS), strict=True)
    return [replace(whole, inputs=x, labels=y, weight=weight) for x, y in chunks]


def gradients(passes: Sequence[Training]) -> list[Any]:
    """What the optimizer would get after these passes."""
    weights = list(passes[0].network.parameters())
    for weight in weights:
        weight.grad = None
    for one in passes:
        one.loss().backward()
    return [weight.grad for weight in weights]


def difference(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Distance of two gradients, as a share of the first one's length."""
    apart = sum(float((a - b).norm()) ** 2 for a, b in zip(first, second, strict=True))
    return float((apart / sum(float(a.norm()) ** 2 for a in first)) ** 0.5)


def cure_arm(way: str, *, device: Device, seed: int = 0) -> Arm:
    """Gradients of one step, whole or with a cure; `saved_bytes` counted by hooks.

    Inside the clock: forward and backward of all passes. Outside: data and weights.
    """
    passes = training(way, device=device, seed=seed)
    given: dict[str, Any] = {"work": float(BATCH), "work_unit": "sample"}
    given |= {"version": METHOD_VERSION, "settings": {"batch": BATCH, "seed": seed}}
    given |= {"observed": {"saved_bytes": saved_bytes(passes[0])}}
    calls = (partial(gradients, passes),)
    return Arm(name=f"gradients_{way}", calls=calls, queued=False, **given)


class Allocator:
    """PyTorch's allocator in small, in MiB: best fit, split, merge. SIMULATED.

    A segment is what the driver gave in one piece; a block in it has a name, or "" when
    it is free. Live blocks never move.
    """

    def __init__(self, card: int, *, expandable: bool = False) -> None:
        """An empty card; expandable: holes give their pages back."""
        self.card, self.expandable = card, expandable
        self.segments: list[list[tuple[str, int]]] = []

    def take(self, name: str, size: int) -> None:
        """Place a block in the smallest hole that holds it, else in a new segment.

        Raises:
            MemoryError: no room, also after giving all free segments back.
        """
        if not self._fill(name, size) and not self._reserve(name, size):
            self.empty_cache()  # PyTorch does this itself before it gives up
            if not self._reserve(name, size):
                raise MemoryError(self._message(size))

    def give(self, name: str) -> None:
        """Free a block; it joins free neighbours of its own segment."""
        for number, segment in enumerate(self.segments):
            merged: list[tuple[str, int]] = []
            for owner, size in segment:
                kept = "" if owner == name else owner
                joins = bool(merged) and merged[-1][0] == kept == ""
                merged.append((kept, size + (merged.pop()[1] if joins else 0)))
            self.segments[number] = merged

    def empty_cache(self) -> None:
        """Give segments back in which nothing lives, or every hole if expandable."""
        if self.expandable:
            self.segments = [[b for b in s if b[0]] for s in self.segments]
        self.segments = [s for s in self.segments if any(name for name, _ in s)]

    def held(self, *, live: bool = False) -> int:
        """MiB that the driver gave; live: only those in use."""
        return sum(n for s in self.segments for name, n in s if name or not live)

    def _fill(self, name: str, size: int) -> bool:
        holes = [
            (n, i, j)
            for i, segment in enumerate(self.segments)
            for j, (owner, n) in enumerate(segment)
            if not owner and n >= size
        ]
        for n, i, j in sorted(holes)[:1]:
            rest = [("", n - size)] if n > size else []
            self.segments[i][j : j + 1] = [(name, size), *rest]
        return bool(holes)

    def _reserve(self, name: str, size: int) -> bool:
        wanted = max(size, SEGMENT)
        if self.held() + wanted > self.card:
            return False
        self.segments.append([("", wanted)])
        return self._fill(name, size)

    def _message(self, size: int) -> str:
        live, held = self.held(live=True), self.held()
        return (
            f"CUDA out of memory. Tried to allocate {size}.00 MiB. GPU 0 has a total "
            f"capacity of {self.card}.00 MiB of which {self.card - held}.00 MiB is "
            f"free. Of the allocated memory {live}.00 MiB is allocated by PyTorch, and "
            f"{held - live}.00 MiB is reserved by PyTorch but unallocated."
        )
