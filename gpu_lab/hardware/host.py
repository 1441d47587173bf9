"""The computer itself: processor, memory, system, container; and what its OS lists."""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

SYSFS = Path("/sys/bus/pci/devices")
# PCI vendor ids of those who make GPUs (pci.ids).
VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
USUAL_CACHE_BYTES = 32 * 2**20
DISPLAY_CLASS = "0x03"  # PCI base class 03h, display controller


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


def _output(*command: str) -> str:
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",  # PowerShell answers in the code page of the console
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip()
