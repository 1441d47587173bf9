"""What else the machine did meanwhile, by counters of the operating system."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

SCHEDSTAT = Path("/proc/thread-self/schedstat")
PRESSURE = Path("/proc/pressure/cpu")
STAT = Path("/proc/stat")
CPU_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")

SHARES = ("delay_share", "pressure_share", "steal_share", "others_share")
TICK_S = 0.01  # steal is counted in ticks of 10 ms: one more or less says nothing
BUSY_DELAY, BUSY_PRESSURE, BUSY_STEAL = 0.05, 0.10, 0.05


@dataclass(frozen=True)
class Evidence:
    """Counters of the operating system, all growing; None where it has none.

    `others_s` is the CPU time of this process's other threads.
    """

    wall_s: float
    delay_s: float | None
    pressure_s: float | None
    steal_s: float | None
    switches: int | None
    others_s: float

    @classmethod
    def now(cls) -> Evidence:
        """Read the counters: run-queue delay of this thread, pressure, steal."""
        words = _words(SCHEDSTAT)
        pressure = [w[6:] for w in _words(PRESSURE)[:5] if w.startswith("total=")]
        cpu = _words(STAT)[:10]
        return cls(
            wall_s=time.perf_counter(),
            delay_s=int(words[1]) / 1e9 if len(words) > 1 else None,
            pressure_s=int(pressure[0]) / 1e6 if pressure else None,
            steal_s=int(cpu[8]) / os.sysconf("SC_CLK_TCK") if len(cpu) > 8 else None,
            switches=_involuntary_switches(),
            others_s=time.process_time() - time.thread_time(),
        )

    def since(self, before: Evidence) -> dict[str, float]:
        """Shares of the wall time between two readings, and the switches."""
        wall = max(self.wall_s - before.wall_s, 1e-9)
        found: dict[str, float] = {}
        for name in ("delay_s", "pressure_s", "steal_s", "others_s"):
            start, stop = getattr(before, name), getattr(self, name)
            if start is not None and stop is not None:
                moved_s = stop - start - (TICK_S if name == "steal_s" else 0.0)
                found[f"{name[:-2]}_share"] = round(max(moved_s, 0.0) / wall, 6)
        if self.switches is not None and before.switches is not None:
            found["involuntary_switches"] = self.switches - before.switches
        clock = _words(CPU_CLOCK)
        if clock:
            found["cpu_clock_mhz"] = int(clock[0]) / 1000
        return found


def busy(shares: dict[str, float]) -> bool:
    """Whether something else wanted the processor while we measured."""
    return (
        shares.get("delay_share", 0.0) > BUSY_DELAY
        or shares.get("pressure_share", 0.0) > BUSY_PRESSURE
        or shares.get("steal_share", 0.0) > BUSY_STEAL
    )


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []


def _involuntary_switches() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return int(resource.getrusage(who).ru_nivcsw)
