"""Who waits for whom: a model from two measurements, and a tuner that checks it."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from gpu_lab.bench import rows
from gpu_lab.bench.dataloader.loading import BATCH, CPU, Pool, Setting, Step
from gpu_lab.fit import PAYS, LoaderModel
from gpu_lab.hardware import host
from gpu_lab.records import Device, Measurement
from gpu_lab.timing import Arm, Plan

ROUNDS, FIRST_BATCHES, FEWEST_BATCHES = 3, 6, 12
MEASURING = 0.7  # of a tuner's budget; the rest starts workers and fits


@dataclass(frozen=True)
class Tuned:
    """What a tuner chose; `gain` is the speedup over loading without workers."""

    setting: Setting
    samples_per_s: float
    gain: float
    limit: str
    model: LoaderModel
    tried: tuple[Measurement, ...]


def fit_model(
    dataset: Any, step: Step, *, device: Device = CPU, batch: int = BATCH
) -> LoaderModel:
    """The model from two measurements: loading alone, and stepping alone."""
    part = _first(dataset, FIRST_BATCHES * batch)
    with Pool() as loaders:
        load = loaders.arm(part, batch=batch, device=device)
        one = next(iter(loaders.loader(part, batch=batch)))
        alone = Arm(name="step", calls=(lambda: step(one),), queued=False)
        both = rows.together([load, alone], device=device, plan=Plan(rounds=ROUNDS))
    batches = math.ceil(len(part) / batch)
    walls = [statistics.median(row.times_s) for row in both]
    busy = [statistics.median(row.cpu_times_s) for row in both]
    busy_s = busy[0] / batches + (0.0 if device.is_gpu else busy[1])
    shares = busy_s, busy[0] / walls[0], host.threads()
    return LoaderModel(walls[0] / batches, walls[1], *shares)


def tune(
    dataset: Any,
    step: Step,
    *,
    device: Device = CPU,
    batch: int = BATCH,
    budget_s: float = 60.0,
    link_s: float = 0.0,
) -> Tuned:
    """A good setting for these batches and this step, within a budget in seconds.

    Measures loading and stepping, asks the model for the knee, times it and its
    neighbours in the same rounds, and takes the fewest workers that pay.

    Args:
        link_s: seconds that a batch takes over the link, where there is one.
    """
    model = fit_model(dataset, step, device=device, batch=batch)
    counts = sorted({0, 1, max(0, model.knee - 1), model.knee, model.knee + 1})
    wanted = [Setting(workers=w, pin=device.is_gpu) for w in counts]
    wanted.append(Setting(workers=counts[-1], prefetch=4, pin=device.is_gpu))
    a_batch_s = sum(model.batch_s(s.workers) for s in wanted)
    batches = MEASURING * budget_s / ((1 + ROUNDS) * a_batch_s)
    part = _first(dataset, max(FEWEST_BATCHES, int(batches)) * batch)
    with Pool() as loaders:
        given: dict[str, Any] = {"step": step, "batch": batch, "device": device}
        arms = [loaders.arm(part, **given, **asdict(s)) for s in wanted]
        tried = rows.together(arms, device=device, plan=Plan(rounds=ROUNDS))
    times_s = [statistics.median(row.times_s) for row in tried]
    best = next(i for i, t in enumerate(times_s) if t <= (1 + PAYS / 2) * min(times_s))
    chosen, rate = wanted[best], len(part) / times_s[best]
    gain, limit = times_s[0] / times_s[best], model.limit(chosen.workers, link_s=link_s)
    return Tuned(chosen, rate, gain, limit, model, tuple(tried))


def _first(dataset: Any, count: int) -> Any:
    from torch.utils.data import Subset

    return Subset(dataset, range(min(count, len(dataset))))
