"""The only clock and the only synchronize of the project.

    call -> sample (a block of calls, one reading) -> round (one sample of every arm,
    and of the anchor) -> measurement (all rounds) -> session (one process)

On a CUDA or ROCm device samples are timed by the device itself, behind a backlog; on
the other back ends they end with a synchronize and include the launch.
"""

from gpu_lab.timing.clocks import (
    Clock,
    Queue,
    StandInClock,
    WallClock,
    clock_for,
    completed,
)
from gpu_lab.timing.competitor import competitor
from gpu_lab.timing.core import Arm, Timing, interleave, measure
from gpu_lab.timing.lanes import Lanes, lanes
from gpu_lab.timing.plans import CLASS, FULL, PLANS, QUICK, Plan
from gpu_lab.timing.ranks import across_ranks
from gpu_lab.timing.simulated import SIMULATED, Model, SimulatedGpu
from gpu_lab.timing.stages import Sleeper, Stages, loaded, simulated_stages, stages
from gpu_lab.timing.stats import Interval, interval, log_interval, log_ratios
