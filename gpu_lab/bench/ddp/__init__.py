"""Several processes that train together: messages, gradients, sharding, faults.

launch (in the notebook) -> torchrun -> __main__ (on each rank) -> EXPERIMENTS
"""

from typing import Any

from gpu_lab.bench.ddp import collectives, sharding, training
from gpu_lab.bench.ddp.collectives import bus_factor, ring_all_reduce
from gpu_lab.bench.ddp.launch import LaunchFailed, command, first_cause, launch
from gpu_lab.bench.ddp.sharding import STAGES
from gpu_lab.bench.ddp.world import World, join

# Every function that returns Values is an experiment: it gets a World and settings.
EXPERIMENTS: dict[str, Any] = {
    name: call
    for module in (collectives, training, sharding)
    for name, call in vars(module).items()
    if getattr(call, "__annotations__", {}).get("return") == "Values"
}
