"""C15: quantities that must be exact, beside formulas and scipy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats as scipy_stats

from gpu_lab import bench, timing
from gpu_lab.timing import stats
from peers import work
from peers.report import Progress, Result

TINY = timing.Plan(rounds=1)
START_S, RATE, REPEATS = 12e-6, 2.8e9, 2000


def run(full: bool, progress: Progress) -> dict[str, Any]:
    """Largest errors by quantity."""
    return {
        "FLOP and bytes": max(counted()),
        "tails against scipy": max(tails()),
        "interval against scipy's test": max(ends(100 if full else 20)),
        "link fit": max(fits(50 if full else 10)),
    }


def counted() -> list[float]:
    """Work of rows against the formula."""
    found = [
        abs(bench.matmul(n, device=work.CPU, plan=TINY).work - 2 * n**3)
        for n in (8, 33)
    ]
    factors = {"copy": 2, "triad": 3, "read": 1, "write": 1}
    for kind, factor in factors.items():
        arm = bench.memory_arm(kind, 4096, device=work.CPU, on_host=True)
        found.append(abs((arm.work or 0) - factor * 4096))
    return found


def tails() -> list[float]:
    """Tail of the sign test against scipy's binomial."""
    found = []
    for n in range(6, 40):
        k = stats.sign_tail(n, 0.025)
        below = scipy_stats.binom.cdf(k - 1, n, 0.5)
        above = scipy_stats.binom.cdf(k, n, 0.5)
        found.append(0.0 if below <= 0.025 + 1e-9 and above > 0.025 - 1e-9 else 1.0)
    return found


def ends(trials: int) -> list[float]:
    """At the ends of our interval scipy's exact signed-rank test changes its mind."""
    found = []
    random = np.random.default_rng(0)
    for _ in range(trials):
        values = random.normal(size=20)
        got = stats.interval(list(values))
        if stats.lag_one(values) > stats.LAG:
            continue
        for end, inward in ((got.low, 1), (got.high, -1)):
            inside = scipy_stats.wilcoxon(values - (end + inward * 1e-9), mode="exact")
            outside = scipy_stats.wilcoxon(values - (end - inward * 1e-9), mode="exact")
            right = inside.pvalue > 0.05 - 1e-9 and outside.pvalue <= 0.05 + 1e-9
            found.append(0.0 if right else 1.0)
    return found


def fits(trials: int) -> list[float]:
    """Relative error of the fit of a link from data with 20 % noise."""
    found = []
    sizes = np.repeat(np.array(bench.transfer.SIZES, dtype=float), REPEATS)
    for seed in range(trials):
        noise = np.random.default_rng(seed).normal(0, 0.2, len(sizes))
        times = (START_S + sizes / RATE) * np.exp(noise)
        fit = bench.fit_link(list(sizes), list(times))
        found.append(abs(math.log(fit.start_s / START_S)))
        found.append(abs(math.log(fit.bytes_per_s / RATE)))
    return found


def results(raw: dict[str, Any]) -> list[Result]:
    """C15."""
    text = ", ".join(f"{name} {value:.1e}" for name, value in raw.items())
    exact = [value for name, value in raw.items() if name != "link fit"]
    return [
        Result(
            "C15",
            "exact quantities, largest error",
            "exact or 1e-9; link fit within 2 % from data with 20 % noise",
            text,
            "scipy",
            met=max(exact) <= 1e-9 and raw["link fit"] <= 0.02,
        )
    ]
