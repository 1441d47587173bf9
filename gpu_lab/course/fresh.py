"""Sessions of the core suite in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT_S = 300
GRACE_S = 3


def session(
    *,
    device: str,
    profile: str,
    seed: int,
    out: Path,
    names: tuple[str, ...] = (),
) -> str:
    """Measure the core suite in a fresh process, into a run folder; why it failed.

    Args:
        names: rows wanted; () = all of them.
    """
    command = [sys.executable, "-m", "gpu_lab.course.session", *names]
    command += ["--device", device, "--profile", profile]
    return _child([*command, "--seed", str(seed), "--out", str(out)], limit_s=LIMIT_S)


def _child(command: list[str], *, limit_s: float) -> str:
    """Run a child to its end; the cause if it failed. It never outlives us."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        _out, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"no end within {limit_s:.0f} s"
    except KeyboardInterrupt:
        _wait(process)
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode == 0:
        return ""
    last = (errors.strip().splitlines() or ["no message"])[-1]
    return f"the process ended with {process.returncode}: {last}"


def _wait(process: subprocess.Popen[str]) -> None:
    """Let the child end its row after Ctrl-C; a kill of ours has not reached it."""
    for end in (process.terminate, process.kill):
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            end()
