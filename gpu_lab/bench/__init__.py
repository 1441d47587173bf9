"""One file per quantity; the device is an argument; each returns a Measurement.

A benchmark prepares its data as an Arm, lets `timing` take rounds, and returns rows.
It does not print. Arms that are to be compared are timed `together`.
"""

from gpu_lab.bench import (
    amp,
    amp_numerics,
    ceiling,
    ddp,
    memory_clinic,
    profiling,
    shapes,
)
from gpu_lab.bench.kernels import simulated_kernels
from gpu_lab.bench.launch import launch, launches
from gpu_lab.bench.matmul import matmul, matmul_arm
from gpu_lab.bench.memory import device_copy, host_copy, memory, memory_arm
from gpu_lab.bench.offload import offload_arm, simulated_curve
from gpu_lab.bench.peers import torch_timer
from gpu_lab.bench.rows import cache_bytes, measured, together
from gpu_lab.bench.suite import CORE, core_suite
from gpu_lab.bench.transfer import (
    LinkFit,
    device_to_host,
    fit_link,
    host_to_device,
    link_curve,
    link_under_load,
    overlap_arms,
    overlap_share,
    transfer_arm,
)
