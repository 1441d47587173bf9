"""Scenes with loader workers for test_dataloader, each in a process of its own.

`python -m loader_scenes SCENE [FOLDER]`; the classes are here because spawned workers
must be able to import them.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpu_lab.bench.dataloader import images, loading
from gpu_lab.records import GpuLabError
from gpu_lab.timing import Sleeper


class Killed:
    """A dataset inside which the worker is killed, as for want of memory."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if index == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(4)


class Large:
    """A dataset of samples of a mebibyte."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Any:
        return np.full(2**20, index, dtype=np.uint8)


class Failing(Killed):
    """A dataset with a sample that fails."""

    def __getitem__(self, index: int) -> Any:
        if index == 40:
            raise GpuLabError("sample 40 is broken")
        return np.zeros(4)


def run(scene: str, folder: str = "") -> None:
    """One scene; what goes wrong is the last line on stdout."""
    dataset: Any = {"killed": Killed(), "failure": Failing()}.get(scene, Large())
    if scene == "ctrl_c":
        dataset = Sleeper(10_000, 0.01)
    if scene == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    if scene == "writing":
        images.write(Path(folder), count=100_000, progress=_announced)
    with loading.Pool() as pool:
        loader = pool.loader(dataset, batch=4, workers=2, start=os.environ["START"])
        kept = []
        for batch in loader:
            if not kept:
                print("ready", flush=True)
            kept.append(batch if scene == "files" else batch.shape)
    print(f"{len(kept)} batches")


def _announced(numbers: Any) -> Any:
    for number in numbers:
        if number == 3:
            print("ready", flush=True)
        yield number


if __name__ == "__main__":
    try:
        run(*sys.argv[1:])
    except GpuLabError as error:
        print(error)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
