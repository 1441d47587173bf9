"""Batches on their way to the device: copies ahead of the step, and padding."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from gpu_lab.bench.dataloader.loading import Step
from gpu_lab.records import Device
from gpu_lab.timing import Arm

ONLY_STREAMS = "needs a CUDA or ROCm device: a copy on a stream of its own"
WAYS = {"copy_one_by_one": 0, "copy_one_ahead": 1}


class ThrottledLink:
    """A link of a set rate, SIMULATED: one copy at a time, slept and then made."""

    def __init__(self, bytes_per_s: float) -> None:
        """A link with one thread that copies."""
        self._bytes_per_s, self.copier = bytes_per_s, ThreadPoolExecutor(1)

    def start(self, batch: Any) -> Future[Any]:
        """Begin a copy and come back at once."""
        return self.copier.submit(self._copy, batch)

    def finish(self, started: Future[Any]) -> Any:
        """The copy, when it is there."""
        return started.result()

    def _copy(self, batch: Any) -> Any:
        time.sleep(batch.nbytes / self._bytes_per_s)
        return batch.clone()


class StreamLink:
    """The link of a CUDA or ROCm device: copies from pinned memory on a side stream."""

    def __init__(self, device: Device) -> None:
        """A stream of its own for copies to that device."""
        import torch

        self._name = device.torch_name
        self._stream = torch.cuda.Stream(self._name)

    def start(self, batch: Any) -> tuple[Any, Any, Any]:
        """Queue a copy; the given batch is kept until it is finished."""
        import torch

        with torch.cuda.stream(self._stream):
            there = batch.to(self._name, non_blocking=True)
        return batch, there, self._stream.record_event()

    def finish(self, started: tuple[Any, Any, Any]) -> Any:
        """The copy; the device, not the host, waits until it is there."""
        import torch

        current = torch.cuda.current_stream(self._name)
        current.wait_event(started[2])
        started[1].record_stream(current)  # its memory is not given away before
        return started[1]


def arriving(batches: Iterable[Any], link: Any, *, ahead: int = 1) -> Iterator[Any]:
    """Batches on the device; with `ahead`, the next copy runs during this step.

    One ahead is double buffering: two batches are on the device at a time.
    """
    started: list[Any] = []
    for batch in batches:
        started.append(link.start(batch))
        if len(started) > ahead:
            yield link.finish(started.pop(0))
    while started:
        yield link.finish(started.pop(0))


def copy_arms(batches: Sequence[Any], step: Step, *, link: Any) -> list[Arm]:
    """Two arms: copy and step one by one, and the next copy during this step.

    Args:
        link: a StreamLink or ThrottledLink; None where there is none.
    """
    return [
        Arm(
            name=name,
            calls=(partial(_steps, batches, step, link, ahead),) if link else (),
            queued=False,
            work=float(sum(batch.nbytes for batch in batches)),
            work_unit="byte",
            settings={"batches": len(batches), "batch_bytes": batches[0].nbytes},
            reason="" if link else ONLY_STREAMS,
        )
        for name, ahead in WAYS.items()
    ]


def _steps(batches: Sequence[Any], step: Step, link: Any, ahead: int) -> None:
    for batch in arriving(batches, link, ahead=ahead):
        step(batch)


def bucket_batches(lengths: Sequence[int], *, tokens: int, seed: int) -> list[Any]:
    """Dynamic batching: numbers of sequences of like length, in batches.

    Each batch has at most that many tokens, padding included; a longer sequence is
    alone. The order of the batches is random.
    """
    found: list[list[int]] = [[]]
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if found[-1] and lengths[index] * (len(found[-1]) + 1) > tokens:
            found.append([])
        found[-1].append(index)
    random.Random(seed).shuffle(found)
    return found
