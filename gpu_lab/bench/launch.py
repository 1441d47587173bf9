"""Launch: three numbers that are all called launch latency."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from gpu_lab.bench import rows
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Arm, Clock, Plan, Queue, clock_for, completed

METHOD_VERSION = 2
NOTHING_LAUNCHED = "needs a GPU: a CPU computes in the call and launches nothing"
NO_QUEUE = "needs a device whose queue can be held: CUDA or ROCm"


def launch(
    *, device: Device, plan: Plan = QUICK, clock: Clock | None = None
) -> Measurement:
    """Time of one kernel on one number, from the call to its completion, in seconds.

    On a CPU nothing is launched: nothing is timed and `reason` says why.

    Raises:
        DeviceLost: the device vanished during the run.
    """
    if not device.is_gpu:
        return rows.measured(_arm("launch", reason=NOTHING_LAUNCHED), device=device)
    clock = clock or clock_for(device)
    call = completed([_kernel(device, clock)], clock)
    arm = _arm("launch", call, queued=False)
    return rows.together([arm], device=device, plan=plan, clock=clock)[0]


def launches(
    *, device: Device, plan: Plan = QUICK, clock: Clock | None = None
) -> list[Measurement]:
    """Three times, in seconds: complete, host, gap.

    Returns:
        `launch`: call to completion, waited for. `launch_host`: what the host needs to
        queue one kernel while the device is held. `launch_gap`: what the device needs
        for one tiny kernel after the other. On a device without a queue of its own
        the last two are not measurable.
    """
    complete = launch(device=device, plan=plan, clock=clock)
    names = ("launch_host", "launch_gap")
    if not device.is_gpu:
        arms = [_arm(name, reason=NOTHING_LAUNCHED) for name in names]
        return [complete, *(rows.measured(arm, device=device) for arm in arms)]
    clock = clock or clock_for(device)
    if not isinstance(clock, Queue):
        arms = [_arm(name, reason=NO_QUEUE) for name in names]
        return [complete, *(rows.measured(arm, device=device) for arm in arms)]
    arm = _arm("launch_gap", _kernel(device, clock))
    gap = rows.together([arm], device=device, plan=plan, clock=clock)[0]
    times_s = tuple(max(t, 1e-12) for t in gap.cpu_times_s)
    host = replace(gap, name="launch_host", times_s=times_s, decided_by="cpu")
    return [complete, host, gap]


def _arm(name: str, call: Any = None, *, queued: bool = True, reason: str = "") -> Arm:
    return Arm(
        name=name,
        calls=(call,) if call else (),
        queued=queued,
        work=1.0,
        work_unit="launch",
        version=METHOD_VERSION,
        reason=reason,
    )


def _kernel(device: Device, clock: Clock) -> Any:
    """A call that launches the smallest kernel."""
    simulated = getattr(clock, "kernel", None)
    if simulated:
        return functools.partial(simulated, 1e-6)
    import torch

    number = torch.ones(1, device=device.torch_name)
    return functools.partial(number.add_, 1)
