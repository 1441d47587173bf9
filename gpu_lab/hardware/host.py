"""The computer itself: processor, memory, system, container; and what its OS lists."""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from gpu_lab import facts

SYSFS = Path("/sys/bus/pci/devices")
ROOT = Path("/")
# PCI vendor ids of those who make GPUs (pci.ids).
VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
KILL_LIMIT_S = 5  # a process that hangs inside the driver does not even die
USUAL_CACHE_BYTES = 32 * 2**20
DISPLAY_CLASS = "0x03"  # PCI base class 03h, display controller
SNAPSHOT_CLASSES = (DISPLAY_CLASS, "0x12", "0x0604")


def cpu_name() -> str:
    """Marketing name of the processor."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.lower().startswith("model name"):
            return line.split(":", 1)[1].strip()
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or "Apple CPU"
    return platform.processor() or platform.machine()


def cores() -> int | None:
    """Physical cores, or None where the system does not tell."""
    return psutil.cpu_count(logical=False)


def threads() -> int:
    """Logical processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Main memory in bytes."""
    return int(psutil.virtual_memory().total)


def shared_memory_bytes() -> int | None:
    """Size of the shared memory for DataLoader workers, in bytes; None: no limit."""
    try:
        return shutil.disk_usage("/dev/shm").total
    except OSError:
        return None


def open_files() -> str:
    """How many files this process may hold open, as a number or as "unlimited"."""
    if sys.platform == "win32":
        return "unlimited"
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return "unlimited" if most == resource.RLIM_INFINITY else str(most)


def cache_bytes() -> int:
    """Size of the processor's last cache in bytes; a common one where not told."""
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    texts = [_read(path) for path in folder.glob("index*/size")]
    if sys.platform == "darwin":
        names = ("hw.perflevel0.l2cachesize", "hw.l3cachesize", "hw.l2cachesize")
        texts = [_output("sysctl", "-n", name) for name in names]
    sizes = [_cache_size(text.strip()) for text in texts]
    return max(sizes, default=0) or USUAL_CACHE_BYTES


def _cache_size(text: str) -> int:
    """Bytes of a text such as 32768K; 0 when it is none."""
    digits = text.rstrip("KM")
    factor = {"K": 2**10, "M": 2**20}.get(text[-1:], 1)
    return int(digits) * factor if digits.isdigit() else 0


def power_source() -> str | None:
    """What feeds it: "mains" or "battery"; None without a battery."""
    battery = getattr(psutil, "sensors_battery", lambda: None)()
    if battery is None or battery.power_plugged is None:
        return None
    return "mains" if battery.power_plugged else "battery"


def system() -> str:
    """Operating system, its release and the instruction set."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def environment() -> str:
    """Where it lives: "container", "wsl" or "colab"; empty otherwise."""
    if "microsoft" in _read(Path("/proc/version")).lower():
        return "wsl"
    if "COLAB_RELEASE_TAG" in os.environ:
        return "colab"
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return "container" if any(m.exists() for m in marks) else ""


@functools.cache
def gpus_listed() -> tuple[str, ...] | None:
    """GPUs that the operating system lists, one text each; None: cannot tell."""
    if sys.platform == "darwin":
        return _from_system_profiler(_output("system_profiler", "-json", _MAC_TYPE))
    if sys.platform == "win32":
        return _from_lines(_output("powershell", "-NoProfile", "-Command", _WINDOWS))
    if Path("/dev/dxg").exists():
        return ("/dev/dxg: the GPU of the Windows host, lent to WSL",)
    return from_sysfs(SYSFS)


def from_sysfs(folder: Path) -> tuple[str, ...] | None:
    """Display controllers of GPU makers below a sysfs PCI folder; None: no folder."""
    if not folder.is_dir():
        return None
    found = []
    for device in sorted(folder.iterdir()):
        vendor = VENDORS.get(_read(device / "vendor").strip())
        if vendor and _read(device / "class").startswith(DISPLAY_CLASS):
            driver = device / "driver"
            user = driver.resolve().name if driver.exists() else "no driver"
            found.append(f"{device.name} {vendor} ({user})")
    return tuple(found)


def texts() -> dict[str, str]:
    """This machine as a snapshot: path or command -> what it holds or prints."""
    rules = facts.settings("detect")["snapshot"]
    paths = [p for form in rules["files"] for p in sorted(ROOT.glob(form)) if _kept(p)]
    found = {f"/{path.relative_to(ROOT).as_posix()}": _read(path) for path in paths}
    # The resolved paths name all bridges above.
    places = {
        path.parent.resolve().as_posix() for path in paths if path.name == "class"
    }
    found["readlink -f /sys/bus/pci/devices/*"] = "\n".join(sorted(places))
    silent: set[str] = set()
    for line in (*rules["everywhere"], *rules.get(sys.platform, ())):
        program, *given = line.split()
        if program not in silent:  # absent, or it hangs: the next call would too
            found[line] = _output(program, *given, limit_s=rules["limit_s"]) + "\n"
            silent |= {program} if found[line] == "\n" else set()
    return {key: text for key, text in found.items() if text.strip()}


def _kept(path: Path) -> bool:
    """Of PCI only displays, accelerators and bridges between buses; else everything."""
    other = "pci" not in path.parts
    return other or _read(path.parent / "class").startswith(SNAPSHOT_CLASSES)


_MAC_TYPE = "SPDisplaysDataType"
_WINDOWS = "(Get-CimInstance Win32_VideoController).Name"


def _from_system_profiler(answer: str) -> tuple[str, ...] | None:
    try:
        cards = json.loads(answer)[_MAC_TYPE]
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(str(c.get("sppci_model", "GPU")) for c in cards)


def _from_lines(answer: str) -> tuple[str, ...] | None:
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    return tuple(lines) or None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _output(*command: str, limit_s: float = 20) -> str:
    """What a program prints; empty when it is absent or hangs."""
    try:
        output, end = run_apart(list(command), limit_s=limit_s)
    except OSError:
        return ""
    return "" if end.startswith("no answer") else output.strip()


def run_apart(command: list[str], *, limit_s: float) -> tuple[str, str]:
    """What a child printed, and how it ended if not well; it is never waited for long.

    subprocess.run() would wait for ever for a child that not even a kill ends.
    """
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, errors="replace", **pipes)
    try:
        output, errors = process.communicate(timeout=limit_s)
        return output, _how_it_ended(process.returncode, errors)
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        output, _ = process.communicate(timeout=KILL_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        output = _as_text(error.stdout)
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
        process.poll()  # reaps it if only its pipes were held by another
    return output, f"no answer within {limit_s:g} s"


def _how_it_ended(returncode: int, stderr: str) -> str:
    if returncode == 0:
        return ""
    last = (stderr.strip().splitlines() or ["no message"])[-1]
    how = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
    return f"the probe ended with {how}: {last}"


def _as_text(output: bytes | str | None) -> str:
    return (
        output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    )
