"""L1: what each way of loading is worth, the knee, the tuner, the negative control."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_lab import bench, compare, facts, timing
from gpu_lab.bench.dataloader import images, loading, tune, tuning
from gpu_lab.records import Verdict
from peers import work
from peers.report import Progress, Result

EPOCHS = timing.Plan(rounds=7)
DRAWN = ((0.040, 0.015), (0.024, 0.020), (0.060, 0.013), (0.010, 0.018), (0.033, 0.010))
GOALS = {"uint8_workers": 2.5, "small": 6.0, "memmap": 20.0}  # times naive
MOST_S, NEAR, BATCHES = 60.0, 0.10, 24
GRID = [(0, 2), *((w, p) for w in range(1, 8) for p in (1, 2, 4))]


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Interleaved epochs of the variants and of data in memory; knees; tuned seeds."""
    with tempfile.TemporaryDirectory() as folder:
        count = 2048 if full else 512
        pictures = images.write(Path(folder), count=count)
        found = {"variants": variants(pictures), "control": control(pictures)}
    found["seeds"] = [seed(*drawn) for drawn in progress.of(DRAWN, "L1 tuner")]
    return found


def variants(pictures: images.ImageSet) -> dict[str, list[float]]:
    """Seconds of the epochs of each variant that runs here."""
    ways = facts.settings("dataloader")["variants"]
    with loading.Pool() as pool:
        arms = []
        for name, way in ways.items():
            kind = images.BatchedPictures if "batched" in name else images.Pictures
            if "needs" not in way:
                data, workers = kind(pictures, way["kind"], 512), way["workers"]
                arm = pool.arm(data, step=images.ready, workers=workers)
                arms.append(replace(arm, name=name))
        rows = bench.together(arms, device=work.CPU, plan=EPOCHS)
    return {row.name: list(row.times_s) for row in rows}


def control(pictures: images.ImageSet) -> str:
    """Verdict on two workers for data in memory."""
    with loading.Pool() as pool:
        data = images.Pictures(pictures, "memory")
        arms = [pool.arm(data, workers=workers) for workers in (0, 2)]
        rows = bench.together(arms, device=work.CPU, plan=timing.Plan(rounds=24))
    return str(compare.paired(*rows).verdict)


def seed(load_s: float, step_s: float) -> dict[str, Any]:
    """Knee of model and grid, and the tuner's choice against the grid's best."""
    data = timing.Sleeper(8 * BATCHES, load_s / 8)
    given: dict[str, Any] = {"batch": 8}

    def step(_: Any) -> None:
        time.sleep(step_s)

    start = time.perf_counter()
    tuned = tune(data, step, budget_s=20.0, **given)
    seconds = time.perf_counter() - start
    model = tuning.fit_model(data, step, **given)
    with loading.Pool() as pool:
        arms = [
            pool.arm(data, step=step, workers=w, prefetch=p, **given) for w, p in GRID
        ]
        rows = bench.together(arms, device=work.CPU, plan=timing.Plan(rounds=3))
    pairs = zip(GRID, rows, strict=True)
    times = {place: statistics.median(row.times_s) for place, row in pairs}
    chosen = times[tuned.setting.workers, tuned.setting.prefetch]
    by_workers = [times[w, 2] for w in range(8)]
    knee = next(w for w, t in enumerate(by_workers) if t <= 1.05 * min(by_workers))
    return {
        "knee": knee,
        "model": model.knee,
        "off": chosen / min(times.values()) - 1,
        "seconds": seconds,
    }


def results(raw: dict[str, Any]) -> list[Result]:
    """L1 from the epochs."""
    medians = {name: statistics.median(t) for name, t in raw["variants"].items()}
    gains = {name: medians["naive"] / time_s for name, time_s in medians.items()}
    ways, seeds = facts.settings("dataloader")["variants"], raw["seeds"]
    texts = [f"{k} {v:.1f}x ({ways[k]['changes']})" for k, v in gains.items()]
    near = sum(s["off"] <= NEAR and s["seconds"] < MOST_S for s in seeds)
    knees = ", ".join(f"{s['knee']}/{s['model']}" for s in seeds)
    worst, longest = (max(s[key] for s in seeds) for key in ("off", "seconds"))
    return [
        Result(
            "L1",
            "ways of loading, medians of 7 interleaved epochs",
            "same pixels 2.5x, resized files 6x, mapped array 20x",
            "; ".join(texts),
            "naive: decode, float32, normalise each sample, no workers = 1x",
            met=all(gains[name] >= goal for name, goal in GOALS.items()),
        ),
        Result(
            "L1b",
            "data in memory: two workers against none",
            "never faster",
            raw["control"],
            "the usual advice: more workers",
            met=raw["control"] != Verdict.FASTER,
        ),
        Result(
            "L1c",
            "knee, measured/model of two measurements",
            "within one worker",
            knees,
            "workers = 4 x GPUs",
            met=all(abs(s["knee"] - s["model"]) <= 1 for s in seeds),
        ),
        Result(
            "L1d",
            "tuner against the best of the exhaustive grid",
            "within 10 %, under 60 s, 4 of 5 seeds",
            f"{near} of {len(seeds)}; worst {100 * worst:.0f} % off, {longest:.0f} s",
            f"the grid: {len(GRID)} settings",
            met=near >= 4,
        ),
    ]
