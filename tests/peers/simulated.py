"""C17: the same core driven by the simulated device, whose answers are known."""

from __future__ import annotations

from typing import Any

from gpu_lab import bench, compare, timing
from gpu_lab.records import Measurement
from gpu_lab.timing import SIMULATED, Arm, Model, SimulatedGpu
from peers import rules
from peers.report import Progress, Result

PLAN = timing.Plan(budget_s=1.0)
KERNEL_S, EFFECT = 40e-6, 0.05
MIB = 2**20


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """How often each planted value lies in its interval, and each flag by its cause."""
    trials = 100 if full else 25
    held = {
        name: [check(seed) for seed in progress.of(range(trials), f"C17 {name}")]
        for name, check in VALUES.items()
    }
    fewer = max(5, trials // 5)
    raised = {
        flag: [
            (
                flag in planted(seed),
                flag in row("kernel", SimulatedGpu(seed=seed)).flags,
            )
            for seed in progress.of(range(fewer), f"C17 {flag}")
        ]
        for flag, planted in FLAGS.items()
    }
    return {"held": held, "raised": raised}


def arm(kind: str, gpu: SimulatedGpu, *, sets: int = 1) -> Arm:
    """Work on the simulated device: a kernel, a copy over its link, a cold read."""
    calls = {
        "kernel": (lambda: gpu.kernel(KERNEL_S),),
        "copy": (lambda: gpu.copy(MIB),),
        "read": tuple(lambda i=i: gpu.touch(i, 8 * MIB) for i in range(sets)),
    }
    return Arm(name=kind, calls=calls[kind], hot=kind == "read" and sets == 1)


def row(kind: str, gpu: SimulatedGpu, *, sets: int = 1) -> Measurement:
    """Measure it by the gpu's own clock."""
    given = {"device": SIMULATED, "plan": PLAN, "clock": gpu}
    return bench.together([arm(kind, gpu, sets=sets)], **given)[0]


def within(found: Measurement, truth_s: float) -> bool:
    """Whether the 95 % interval of the median holds the truth."""
    interval = timing.log_interval(found.times_s)
    return interval.low <= truth_s <= interval.high


def kernel(seed: int) -> bool:
    gpu = SimulatedGpu(seed=seed)
    return within(row("kernel", gpu), KERNEL_S + gpu.model.gap_s)


def copy(seed: int) -> bool:
    gpu = SimulatedGpu(seed=seed)
    model = gpu.model
    wanted_s = model.link_start_s + MIB / model.link_bytes_per_s + model.gap_s
    return within(row("copy", gpu), wanted_s)


def cold_read(seed: int) -> bool:
    gpu = SimulatedGpu(seed=seed)
    wanted_s = 8 * MIB / gpu.model.memory_bytes_per_s + gpu.model.gap_s
    return within(row("read", gpu, sets=9), wanted_s)


def paired(seed: int) -> bool:
    """A planted +5 % on a device whose clock drifts."""
    gpu = SimulatedGpu(Model(drift_per_s=0.05), seed=seed)
    gap_s = gpu.model.gap_s
    arms = [
        Arm(name="a", calls=(lambda: gpu.kernel(KERNEL_S),)),
        Arm(name="b", calls=(lambda: gpu.kernel(KERNEL_S * (1 + EFFECT)),)),
    ]
    given = {"device": SIMULATED, "plan": PLAN, "clock": gpu, "seed": seed}
    found = compare.paired(*bench.together(arms, **given))
    truth = (KERNEL_S + gap_s) / (KERNEL_S * (1 + EFFECT) + gap_s)
    return bool(found.low and found.high and found.low <= truth <= found.high)


VALUES = {"kernel": kernel, "copy": copy, "cold read": cold_read, "+5 %": paired}


def throttled(seed: int) -> tuple[str, ...]:
    model = Model(throttle_after_s=0.4)
    return row("kernel", SimulatedGpu(model, seed=seed)).flags


def launch_bound(seed: int) -> tuple[str, ...]:
    return row("kernel", SimulatedGpu(Model(depth=8), seed=seed)).flags


def hot(seed: int) -> tuple[str, ...]:
    return row("read", SimulatedGpu(seed=seed)).flags


def drifting(seed: int) -> tuple[str, ...]:
    return row("kernel", SimulatedGpu(Model(drift_per_s=3.0), seed=seed)).flags


def bimodal(seed: int) -> tuple[str, ...]:
    """A device that changes between two clocks every few milliseconds."""
    gpu = SimulatedGpu(seed=seed)
    period_s, slow = 0.02, 1.5

    def kernel() -> None:
        half = gpu.wall() % period_s > period_s / 2
        gpu.kernel(KERNEL_S * (slow if half else 1))

    arms = [Arm(name="kernel", calls=(kernel,))]
    plan = timing.Plan(rounds=40)
    return bench.together(arms, device=SIMULATED, plan=plan, clock=gpu)[0].flags


FLAGS = {
    "throttled": throttled,
    "launch-bound": launch_bound,
    "hot-cache": hot,
    "drifting": drifting,
    "bimodal": bimodal,
}


def results(raw: dict[str, Any]) -> list[Result]:
    """C17."""
    every = [x for found in raw["held"].values() for x in found]
    by_value = ", ".join(
        f"{k} {100 * sum(v) / len(v):.0f} %" for k, v in raw["held"].items()
    )
    missed = [f for f, v in raw["raised"].items() if not all(on for on, _ in v)]
    wrong = [f for f, v in raw["raised"].items() if any(off for _, off in v)]
    return [
        Result(
            "C17",
            "simulated GPU: planted values in the interval, flags by their cause",
            "at least 93 %; every flag, and not without its cause",
            f"{rules.share(sum(every), len(every))}: {by_value}; flags missed: "
            f"{', '.join(missed) or 'none'}, raised without cause: "
            f"{', '.join(wrong) or 'none'}",
            "no GPU peer read has such a test",
            met=sum(every) >= 0.93 * len(every) and not missed and not wrong,
        )
    ]
