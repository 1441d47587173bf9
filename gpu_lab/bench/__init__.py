"""One file per quantity; the device is an argument; each returns a Measurement.

A benchmark prepares its data, calls `timing.measure` and returns. It does not print.
"""

from gpu_lab.bench.launch import launch
from gpu_lab.bench.matmul import matmul
from gpu_lab.bench.memory import device_copy, host_copy
from gpu_lab.bench.suite import CORE, core_suite
from gpu_lab.bench.transfer import device_to_host, host_to_device

__all__ = [
    "CORE",
    "core_suite",
    "device_copy",
    "device_to_host",
    "host_copy",
    "host_to_device",
    "launch",
    "matmul",
]
