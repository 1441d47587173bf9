"""Loaders that leave nothing behind, and say in one line what to do when they fail."""

from __future__ import annotations

import functools
import multiprocessing.util
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpu_lab import facts
from gpu_lab.records import Device, GpuLabError
from gpu_lab.timing import Arm

BATCH = 16
ASKED_FOR = "This DataLoader will create|This process .* multi-threaded"  # warnings
ONLY_PIN = "needs a GPU: pages are locked so that its copy engine can reach them"
CPU = Device(backend="cpu", name="host")
Step = Callable[[Any], Any]


class LoaderFault(GpuLabError):
    """A loader failed for a known reason; the text names the remedy."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The knobs of a loader.

    Attributes:
        workers: processes that load; 0 = the loop itself.
        prefetch: batches that each worker may be ahead.
        persistent: workers outlive the epoch.
        start: how workers start: fork, spawn, forkserver; "" = as `start_method`.
        sharing: how batches come over: file_descriptor, file_system; "" = default.
    """

    workers: int = 0
    prefetch: int = 2
    pin: bool = False
    persistent: bool = True
    start: str = ""
    sharing: str = ""


def start_method() -> str:
    """How workers start: the system's way, but no fork where Python warns of it."""
    own = multiprocessing.get_start_method()
    # Since 3.12 Python warns when a process with threads forks.
    return "forkserver" if own == "fork" and sys.version_info >= (3, 12) else own


class Loader:
    """A DataLoader whose workers end with it, also after an error and after Ctrl-C."""

    def __init__(self, dataset: Any, *, batch: int = BATCH, **knobs: Any) -> None:
        """Nothing starts before the first batch is asked for; knobs as in `Setting`."""
        self.dataset, self.batch, self.setting = dataset, batch, Setting(**knobs)
        self._loader: Any = None
        self._running: Any = None

    def __iter__(self) -> Iterator[Any]:
        """One epoch, in the order of the samples.

        Raises:
            LoaderFault: a worker died, a picture is broken, memory or files ran out.
        """
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ASKED_FOR)
                self._loader = self._loader or self._made()
                self._running = iter(self._loader)
            yield from self._running
        except BaseException as error:  # also Ctrl-C, and a loop that was left
            self.close()
            raise named(error) from None
        if not self.setting.persistent:
            self.close()

    def close(self) -> None:
        """End the workers and wait for them."""
        running, self._running, self._loader = self._running, None, None
        with suppress(RuntimeError, AttributeError):  # one died; without any, no method
            running._shutdown_workers()

    def _made(self) -> Any:
        import torch.multiprocessing
        from torch.utils.data import DataLoader

        s = self.setting
        given: dict[str, Any] = {"batch_size": self.batch, "collate_fn": collate}
        if s.workers:
            multiprocessing.util.get_temp_dir()  # ours: a killed worker leaves none
            sharing = s.sharing or torch.multiprocessing.get_sharing_strategy()
            given |= {"prefetch_factor": s.prefetch, "persistent_workers": s.persistent}
            given |= {"worker_init_fn": functools.partial(_begin, sharing)}
            given |= {"multiprocessing_context": s.start or start_method()}
            given |= {"num_workers": s.workers, "timeout": 60.0}
        return DataLoader(self.dataset, pin_memory=s.pin, **given)


def _begin(sharing: str, _worker: int) -> None:
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy(sharing)


def collate(samples: Sequence[Any]) -> Any:
    """One tensor of a list of arrays or tensors, in shared memory if in a worker.

    Sharing it here, not on the way, makes want of memory an error that is told.
    """
    import torch

    batch = torch.from_numpy(np.stack(samples))
    return batch.share_memory_() if torch.utils.data.get_worker_info() else batch


def named(error: BaseException) -> BaseException:
    """The same error with its remedy in one line, where there is a known one."""
    text = str(error).strip() or type(error).__name__
    last = text.splitlines()[-1]
    for fault in facts.settings("dataloader")["faults"]:
        if re.search(fault["pattern"], text):
            return LoaderFault(f"{fault['what']} ({last}): {fault['remedy']}")
    return LoaderFault(last) if isinstance(error, GpuLabError) else error


class Pool(ExitStack):
    """Loaders that end together; meanwhile torch computes with one thread."""

    def __enter__(self) -> Pool:
        import torch

        self.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        return self

    def loader(self, dataset: Any, **given: Any) -> Loader:
        """A Loader that ends with the pool; batch and knobs as there."""
        found = Loader(dataset, **given)
        self.callback(found.close)
        return found

    def arm(
        self, dataset: Any, *, step: Step = id, device: Device = CPU, **given: Any
    ) -> Arm:
        """An epoch to be timed: every batch is loaded and handed to `step`.

        Inside the clock: the whole epoch, and starting the workers where they are not
        persistent; those that are start before the rounds.

        Args:
            step: by default one that does nothing.
            given: batch and knobs as in `Loader`.
        """
        loader = self.loader(dataset, **given)
        s, kind = loader.setting, getattr(dataset, "kind", type(dataset).__name__)
        name, reason = f"{s.workers}_workers_{s.prefetch}_ahead", ""
        if s.pin and not device.is_gpu:
            reason = ONLY_PIN
        if s.start not in ("", *multiprocessing.get_all_start_methods()):
            reason = f"no {s.start} on {sys.platform}"
        return Arm(
            name=name,
            calls=() if reason else (functools.partial(_epoch, loader, step),),
            queued=False,
            helpers=s.workers > 0,
            work=float(len(dataset)),
            work_unit="sample",
            settings={"kind": kind, "batch": loader.batch, **asdict(s)},
            reason=reason,
        )


def _epoch(loader: Loader, step: Step) -> None:
    for batch in loader:
        step(batch)
