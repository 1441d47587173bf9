"""Timers of other people, to compare ours with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from gpu_lab.records import Device


def torch_timer(call: Callable[[], Any], *, device: Device, threads: int) -> Any:
    """`torch.utils.benchmark.Timer` of a call, with that many CPU threads.

    It waits for torch's current accelerator, which we make ours while it looks at its
    clock. Its module searches for a CUDA compiler when imported, and warns where there
    is one without a GPU: nothing here compiles, so that warning is held back.
    """
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    import torch
    from torch.utils.benchmark import Timer, timer

    def wait_and_look() -> float:
        with torch.accelerator.device_index(device.index):
            return timer()

    on_gpu = device.is_real_gpu
    look = wait_and_look if on_gpu else timer
    return Timer("call()", globals={"call": call}, num_threads=threads, timer=look)
