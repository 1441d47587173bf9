"""Exercises of notebook 05: the knee, a dataset to send, overlap, bytes of a batch."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpu_lab import facts
from gpu_lab.exercises.frame import Exercise, Kind, NotYet
from gpu_lab.exercises.hardware_basics import break_even_rows
from gpu_lab.fit import PAYS, LoaderModel
from gpu_lab.timing import Sleeper

TIMES_S = tuple(map(LoaderModel(0.048, 0.018).batch_s, range(6)))
COPY_S, STEP_S, BATCHES = 0.010, 0.008, 4


def pays(times_s: Sequence[float]) -> int:
    """Fewest workers that are as fast as the fastest; entry i is for i workers."""
    return next(i for i, t in enumerate(times_s) if t <= (1 + PAYS) * min(times_s))


def _refuse(faults: dict[str, bool], **told: object) -> None:
    """Raises NotYet with the hint of the first fault that is there."""
    hints = facts.settings("dataloader")["hints"]
    for name in (name for name, there in faults.items() if there):
        raise NotYet(hints[name].format(**told))


def check_workers(answer: Any, *, times_s: Sequence[float] = TIMES_S) -> str:
    """Compare with the fewest workers that pay; SIMULATED times by default."""
    right, most = pays(times_s), len(times_s) - 1
    _refuse({"count": type(answer) is not int or not 0 <= answer <= most}, most=most)
    faults = {"more": answer > right, "none": answer == 0 < right}
    _refuse(faults | {"fewer": answer < right}, answer=answer, right=right)
    return f"{right} workers, and one more gains nothing"


def check_sendable(answer: Any) -> str:
    """Could a worker that starts from nothing get this dataset?"""
    home = type(answer).__module__
    protocol = hasattr(answer, "__getitem__") and hasattr(answer, "__len__")
    _refuse({"cell": home == "__main__", "dataset": home == "builtins" or not protocol})
    sent = len(pickle.dumps(answer))  # what raises is the learner's hint
    _refuse({"empty": not len(answer), "large": sent > 2**16}, sent=sent)
    return "little goes to each worker, and its class can be imported"


@dataclass(frozen=True)
class WatchedBatch:
    """A batch in host memory, or its copy on the simulated device."""

    number: int
    pinned: bool = False
    there_s: float = 0.0

    def is_pinned(self) -> bool:
        """Whether its pages are locked."""
        return self.pinned

    def pin_memory(self) -> WatchedBatch:
        """The same batch in locked pages."""
        return replace(self, pinned=True)


class WatchedGpu:
    """A simulated GPU on virtual time: a main queue, and a side queue for copies."""

    def __init__(self) -> None:
        """An idle device; `log` tells what was asked, `spans` when it was done."""
        self.log: list[tuple[Any, ...]] = []
        self.spans: dict[str, list[tuple[float, float]]] = {"copy": [], "step": []}
        self._now_s, self._free_s = 0.0, [0.0, 0.0]

    def copy(
        self, batch: Any, *, non_blocking: bool = False, side: bool = False
    ) -> Any:
        """Queue a copy; the host waits for it unless it may go on from locked pages."""
        self.log.append(("copy", batch.is_pinned(), non_blocking, side))
        there_s = self._queue("copy", COPY_S, side, 0.0)
        if not (non_blocking and batch.is_pinned()):
            self._now_s = there_s
        return replace(batch, there_s=there_s)

    def step(self, batch: WatchedBatch) -> None:
        """Queue a step; the device, not the host, waits until the batch is there."""
        self.log.append(("step", batch.number))
        self._queue("step", STEP_S, False, batch.there_s)

    def wait(self) -> None:
        """Return when all is done, as `synchronize()` and `.item()` do."""
        self.log.append(("wait",))
        self._now_s = max(self._now_s, *self._free_s)

    def _queue(self, kind: str, work_s: float, side: bool, after_s: float) -> float:
        end_s = max(self._now_s, self._free_s[side], after_s) + work_s
        self._free_s[side] = end_s
        self.spans[kind].append((end_s - work_s, end_s))
        return end_s

    @property
    def hidden(self) -> int:
        """Copies of which a part ran during a step."""
        pairs = self.spans["copy"], self.spans["step"]
        return sum(any(a < d and c < b for c, d in pairs[1]) for a, b in pairs[0])


def right_loop(gpu: WatchedGpu, batches: Sequence[WatchedBatch]) -> None:
    """Locked pages, a host that goes on, a queue of its own for copies."""
    for batch in batches:
        gpu.step(gpu.copy(batch.pin_memory(), non_blocking=True, side=True))


def check_overlap(answer: Any) -> str:
    """Run the learner's loop on a watched GPU and read its trace."""
    _refuse({"called": not callable(answer)})
    gpu, everything = WatchedGpu(), list(range(BATCHES))
    answer(gpu, [WatchedBatch(number) for number in everything])
    copies = [event[1:] for event in gpu.log if event[0] == "copy"]
    steps = [event[1] for event in gpu.log if event[0] == "step"]
    _refuse({"order": steps != everything or len(copies) != BATCHES})
    pinned, free, side = (all(column) for column in zip(*copies, strict=True))
    faults = {"wait": ("wait",) in gpu.log[:-1], "pageable": free and not pinned}
    faults |= {"blocking": pinned and not free, "both": not pinned}
    _refuse(faults | {"one_queue": not side})
    return f"{gpu.hidden} of {BATCHES} copies run during a step"


class CountedLink:
    """A link that counts the bytes of what is copied over it."""

    size_bytes = 0

    def copy(self, tensor: Any) -> Any:
        """The same tensor on the other side."""
        self.size_bytes += tensor.nbytes
        return tensor.clone()


def right_transfer(pictures: Any, link: CountedLink) -> Any:
    """Send uint8, convert on the other side."""
    from gpu_lab.bench.dataloader import images

    return images.ready(link.copy(pictures))


def check_transfer(answer: Any) -> str:
    """The same result as sending float32, with a quarter of the bytes."""
    import torch

    _refuse({"called": not callable(answer)})
    generator, link = torch.Generator().manual_seed(0), CountedLink()
    given = torch.randint(256, (4, 16, 16, 3), generator=generator, dtype=torch.uint8)
    right, found = right_transfer(given, CountedLink()), answer(given, link)
    same = torch.is_tensor(found) and torch.equal(found, right)
    times = link.size_bytes / given.nbytes
    faults = {"not_sent": not times, "rounded": not same and 1 < times < 4}
    _refuse(faults | {"other": not same, "early": times > 1}, times=times)
    return "the same numbers, and a quarter of the bytes"


R, S, V = Kind.RATIO, Kind.STRUCTURE, Kind.VALUE
EXERCISES = (
    knee := replace(break_even_rows, name="knee", unit="workers"),
    workers := Exercise("workers", R, check_workers, lambda: pays(TIMES_S)),
    sendable := Exercise("sendable", S, check_sendable, lambda: Sleeper(8, 0.001)),
    overlap := Exercise("overlap", S, check_overlap, lambda: right_loop),
    fewer_bytes := Exercise("fewer_bytes", V, check_transfer, lambda: right_transfer),
)
