"""The nouns: what a machine is and what was measured on it (frozen, no torch).

Fields end in their unit. Raw seconds and the amount of work are stored; rates and
statistics are properties, so that a reader can always recompute them.
"""

from gpu_lab.records.base import (
    FORMAT,
    NOISY,
    SCHEMA,
    DeviceLost,
    GpuLabError,
    Settings,
    Source,
    first_line,
    plain,
)
from gpu_lab.records.machine import Device, DeviceState, Link, Machine
from gpu_lab.records.measurement import (
    Ceiling,
    CeilingKind,
    Comparison,
    Measurement,
    Verdict,
)
from gpu_lab.records.run import CORE_SUITE, Run
from gpu_lab.records.session import Answer, Ladder, Rung, Session
