"""Self-checks: a small function says PASS, NOT YET and why, TODO, or not here.

One file per notebook. ALL is what the tests walk over.
"""

from gpu_lab.exercises import (
    dataloader_tuning,
    ddp,
    device_detection,
    hardware_basics,
    measuring,
    mixed_precision,
    profiling,
    start_here,
    troubleshooting,
)
from gpu_lab.exercises.frame import Exercise, Kind, Verdict

ALL: tuple[Exercise, ...] = (
    *start_here.EXERCISES,
    *hardware_basics.EXERCISES,
    *device_detection.EXERCISES,
    *measuring.EXERCISES,
    *mixed_precision.EXERCISES,
    *dataloader_tuning.EXERCISES,
    *ddp.EXERCISES,
    *profiling.EXERCISES,
    *troubleshooting.EXERCISES,
)
