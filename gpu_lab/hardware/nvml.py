"""The one door to NVML: query() gives a value, or None where there is none.

With the environment variable GPU_LAB_REPLAY naming a JSON file, the answers come
from that file instead of a driver. Everything built on such answers is marked
`simulated` by the callers, so it can never be saved as MEASURED.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gpu_lab.records import DeviceLost, GpuLabError

REPLAY_VARIABLE = "GPU_LAB_REPLAY"
HANG_S = 5.0  # of a replayed call that hangs
LIMIT_S = 3.0  # a laptop's card needs up to two seconds to wake


def replayed() -> bool:
    """True when the answers come from a replay file, not from a driver."""
    return bool(os.environ.get(REPLAY_VARIABLE))


def query(function: str, *args: Any) -> Any:
    """Answer of one NVML function, or None when there is none to have.

    Args:
        function: full name, such as "nvmlDeviceGetName".
        args: its arguments; a handle comes from `handle(index)`.

    Raises:
        DeviceLost: NVML says that the GPU is lost, or gives no answer in time; other
            errors are None.
    """
    if replayed():
        return _in_time(function, _from_replay, function, *args)
    library = _library()
    if library is None:
        return None
    try:
        value = _in_time(function, getattr(library, function), *args)
    except AttributeError:  # older or newer bindings without this function
        return None
    except library.NVMLError as error:
        if getattr(error, "value", None) == library.NVML_ERROR_GPU_IS_LOST:
            raise DeviceLost(f"{function}: {error}") from error
        return None
    return value.decode() if isinstance(value, bytes) else value


def _in_time(function: str, call: Callable[..., Any], *args: Any) -> Any:
    """The answer of a call; one that hangs is left behind in its own thread.

    A driver that waits for a card which is gone can hold its caller for ever.
    """
    answer: Future[Any] = Future()

    def work() -> None:
        try:
            answer.set_result(call(*args))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result(timeout=LIMIT_S)
    except TimeoutError:
        raise DeviceLost(f"{function}: no answer within {LIMIT_S:g} s") from None


def handle(index: int) -> Any:
    """Handle of the GPU with that NVML index, or None."""
    return index if replayed() else query("nvmlDeviceGetHandleByIndex", index)


def replay(field: str, default: Any = None) -> Any:
    """A field of the replay file beside the NVML answers, such as "arch_list"."""
    return _replay().get(field, default)


def problem() -> str:
    """Why NVML gives nothing here, in its own words; empty when it works."""
    if replayed():
        return str(replay("problem", ""))
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return "nvidia-ml-py is not installed"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return str(error)
    library.nvmlShutdown()
    return ""


@functools.cache
def _library() -> Any:
    """The initialised module, once a process; None without driver or bindings."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    return library


@functools.cache
def _replay() -> dict[str, Any]:
    path = Path(os.environ[REPLAY_VARIABLE])
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise GpuLabError(
            f"{REPLAY_VARIABLE}={path}: wanted a JSON file of NVML answers, "
            f"found {error}; unset the variable to use this machine"
        ) from error


def _from_replay(function: str, *args: Any) -> Any:
    answers = _replay().get("nvml", {})
    value = answers.get(f"{function}({', '.join(map(str, args))})")
    if value == "lost":
        raise DeviceLost(f"{function}: GPU is lost (replayed)")
    if value == "not supported":
        return None
    if value == "hangs":
        time.sleep(HANG_S)
    if isinstance(value, list):
        return [SimpleNamespace(**v) if isinstance(v, dict) else v for v in value]
    return SimpleNamespace(**value) if isinstance(value, dict) else value
