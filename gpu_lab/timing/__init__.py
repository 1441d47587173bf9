"""The only clock and the only synchronize of the project.

    call -> sample (a block of calls, one reading) -> measurement (all samples)

This first version reports wall time and CPU time per sample; on a GPU a sample ends
with a synchronize, so it includes the launch of its kernels.
"""

from gpu_lab.timing.clocks import Clock, StandInClock, WallClock, clock_for
from gpu_lab.timing.core import CLASS, FULL, PLANS, QUICK, Plan, Timing, measure

__all__ = [
    "CLASS",
    "FULL",
    "PLANS",
    "QUICK",
    "Clock",
    "Plan",
    "StandInClock",
    "Timing",
    "WallClock",
    "clock_for",
    "measure",
]
