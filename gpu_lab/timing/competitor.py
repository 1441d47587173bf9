"""A process that competes for the processor: to see what noise does to numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 60  # it ends by itself when the process that started it was killed
BUSY = f"""
import time
stop = time.monotonic() + {LONGEST_S}
print("ready", flush=True)
while time.monotonic() < stop:
    pass
"""


@contextmanager
def competitor() -> Iterator[bool]:
    """Let a busy process share the core of this thread; it is ended on the way out.

    Also after an error and after Ctrl-C; afterwards this thread may use all its cores.

    Yields:
        True when both are bound to one core. False where the system cannot do that
        (macOS, Windows): then the competitor runs wherever the system puts it.
    """
    command = [sys.executable, "-I", "-S", "-c", BUSY]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        try:
            process.stdout.readline()
            with _one_core(process.pid) as bound:
                yield bound
        finally:
            process.kill()


@contextmanager
def _one_core(pid: int) -> Iterator[bool]:
    """Bind this thread and another process to one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield False
        return
    before = os.sched_getaffinity(0)
    core = {min(before)}
    try:
        os.sched_setaffinity(pid, core)
        os.sched_setaffinity(0, core)
        yield True
    finally:
        os.sched_setaffinity(0, before)
