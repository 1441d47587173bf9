"""Launch: what one tiny kernel costs from call to completion."""

from __future__ import annotations

from gpu_lab.bench import rows
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import QUICK, Plan, measure

METHOD_VERSION = 1


def launch(*, device: Device, plan: Plan = QUICK) -> Measurement:
    """Time of one kernel on one number, from the call to its completion, in seconds.

    On a CPU nothing is launched: nothing is timed and `reason` says why.

    Raises:
        DeviceLost: the device vanished during the run.
    """
    if not device.is_gpu:
        reason = "needs a GPU: a CPU computes in the call and launches nothing"
        return Measurement.not_measurable("launch", device=device, reason=reason)
    import torch

    number = torch.ones(1, device=device.torch_name)
    timing = measure(lambda: number.add_(1), device=device, plan=plan)
    return rows.row(
        "launch",
        timing,
        device=device,
        work=1.0,
        unit="launch",
        version=METHOD_VERSION,
        settings={},
    )
