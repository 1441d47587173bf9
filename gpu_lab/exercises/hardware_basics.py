"""Exercises of notebook 01: count bytes and FLOP, break even, find the limit."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from gpu_lab import facts, units
from gpu_lab.bench import simulated_curve, together
from gpu_lab.exercises.frame import Exercise, Kind, NotMeasurable, NotYet, require_keys
from gpu_lab.records import Measurement
from gpu_lab.show import Table
from gpu_lab.timing import SIMULATED, Arm, Model, Plan, SimulatedGpu

MIB = 2**20
TOLERANCE = 0.005  # GB and GiB differ by 7 %
SIZES = (32, 64, 128, 256, 512, 1024)
PROCESSOR = Model(flop_per_s=100e9, launch_s=1e-6, gap_s=0.0)  # a simulated CPU
LIMITS = ("link", "memory", "compute", "launch")
PIECE_MIB = 256  # memory is read in buffers of that size
Rows = Sequence[Measurement]
_stored = functools.partial(facts.settings, "hardware_basics")


def layers() -> Table:
    """The three layers of the exercise."""
    rows = [(k, v["shapes"], v["dtype"]) for k, v in _stored()["layers"].items()]
    return Table(rows, ("layer", "shapes", "dtype"))


def right_costs() -> dict[str, tuple[float, float]]:
    """Layer -> GFLOP, and GB over the link: input and weights there, output back."""
    return {
        name: (x["flop"] / 1e9, (x["there"] + x["back"]) * x["item_bytes"] / 1e9)
        for name, x in _stored()["layers"].items()
    }


def check_layers(answer: Any) -> str:
    """Compare {"linear": (GFLOP, GB), …}; hints for the usual slips."""
    require_keys(answer, right_costs())
    for name, right in right_costs().items():
        if len(answer[name]) != 2:
            raise NotYet(f"{name}: wanted the pair (GFLOP, GB)")
        factors = [float(a) / b for a, b in zip(answer[name], right, strict=True)]
        if not _near(factors, (1, 1)):
            raise NotYet(f"{name}: {_slip(name, factors)}")
    return "FLOP and bytes of three layers are right"


def _slip(name: str, factors: list[float]) -> str:
    x = _stored()["layers"][name]
    if _near(factors, (1, x["there"] / (x["there"] + x["back"]))):
        return "the way back is missing: the output crosses the link too"
    for slip in _stored()["slips"]:
        if _near(factors, (slip["gflop"], slip["gb"])):
            return str(slip["hint"])
    what = "GFLOP" if not _near(factors[:1], (1,)) else "GB"
    return f"count the {what} again: each input, weight and output once"


def _near(found: Sequence[float], right: Sequence[float]) -> bool:
    pairs = zip(found, right, strict=True)
    return all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in pairs)


def simulated_pair(seed: int = 0) -> tuple[Rows, Rows]:
    """Rows over SIZES of a simulated CPU, and of a simulated GPU behind its link."""
    cpu = simulated_curve("matmul", SIZES, model=PROCESSOR, seed=seed)
    return cpu, simulated_curve("offload", SIZES, seed=seed)


def winners(cpu: Rows, offload: Rows) -> list[int]:
    """Sizes from which on the offload is faster at all sizes."""
    found: list[int] = []
    for one, other in zip(cpu, offload, strict=True):
        faster = (one.time_ratio(other) or 0.0) > 1.0
        found = [*found, int(one.settings["n"])] if faster else []
    return found


def check_smallest(answer: Any, *, cpu: Rows = (), offload: Rows = ()) -> str:
    """The smallest n of the table from which the offload wins; SIMULATED by default."""
    if not (cpu and offload):
        cpu, offload = simulated_pair()
    won, sizes = winners(cpu, offload), [row.settings["n"] for row in cpu]
    if not won:
        raise NotMeasurable("the offload wins at none of these sizes")
    if type(answer) is not int:
        raise NotYet("wanted a number of rows, which is whole; not a time")
    if answer not in sizes:
        raise NotYet(f"wanted a size of the table: {', '.join(map(str, sizes))}")
    if answer in won[1:]:
        raise NotYet(f"the offload wins at n = {answer}, but at a smaller n as well")
    if answer not in won:
        raise NotYet(f"at n = {answer} the CPU is still faster")
    return f"from n = {answer} on the detour over the link pays ({offload[0].source})"


def runs(seed: int = 0) -> Table:
    """Four runs of the simulated device: what they did and how long that took."""
    gpu, stored = SimulatedGpu(seed=seed), _stored()["runs"]
    arms = [
        Arm(name=name, calls=(functools.partial(_do, gpu, run),), queued=False)
        for name, run in stored.items()
    ]
    rows = together(arms, device=SIMULATED, clock=gpu, plan=Plan(rounds=3))
    texts = []
    for row, run in zip(rows, stored.values(), strict=True):
        link, memory, flop, launches = _work(run)
        sizes = (units.size(link), units.size(memory))
        time = units.milliseconds(row.median_s)
        texts.append((row.name, time, *sizes, f"{flop / 1e9:.1f}", str(launches)))
    columns = ("run", "time (ms)", "over the link", "in memory", "GFLOP", "launches")
    return Table(texts, columns, "SIMULATED")


def _do(gpu: SimulatedGpu, run: dict[str, int]) -> None:
    gpu.copy(run["link_mib"] * MIB)
    for piece in range(run["memory_mib"] // PIECE_MIB):
        gpu.touch(piece, PIECE_MIB * MIB)
    for _ in range(run["products"]):
        gpu.matmul(run["rows"])
    for _ in range(run["tiny"]):
        gpu.kernel(1e-7)


def _work(run: dict[str, int]) -> tuple[int, int, int, int]:
    """Bytes over the link, bytes in memory, FLOP, launches."""
    launches = 1 + run["memory_mib"] // PIECE_MIB + run["products"] + run["tiny"]
    flop = 2 * run["rows"] ** 3 * run["products"]
    return run["link_mib"] * MIB, run["memory_mib"] * MIB, flop, launches


def right_limits() -> dict[str, str]:
    """The limit of each run: the one that alone takes longest."""
    m = Model()
    rates = (m.link_bytes_per_s, m.memory_bytes_per_s, m.flop_per_s, 1 / m.launch_s)
    found = {}
    for name, run in _stored()["runs"].items():
        seconds = [
            amount / rate for amount, rate in zip(_work(run), rates, strict=True)
        ]
        found[name] = LIMITS[seconds.index(max(seconds))]
    return found


def check_limits(answer: Any) -> str:
    """Compare {"a": "memory", …}; hints for the usual mix-ups."""
    right, hints = right_limits(), _stored()["mixed_up"]
    require_keys(answer, right)
    if not set(answer.values()) <= set(LIMITS):
        raise NotYet(f"wanted one of {', '.join(LIMITS)} for each run")
    wrong = [name for name in right if right[name] != answer[name]]
    mixed = "_".join(sorted({right[name] for name in wrong}))
    if len(set(answer.values())) == 1:
        raise NotYet(hints["one"])
    if wrong:
        again = f"divide each amount by its rate again for {', '.join(wrong)}"
        raise NotYet(hints.get(mixed, again))
    return "each run's limit is named"


def _note(answer: Any) -> str:
    raise NotYet("a prediction is made with .predict(guess)")


EXERCISES = (
    layer_costs := Exercise("layer_costs", Kind.VALUE, check_layers, right_costs),
    break_even_rows := Exercise("break_even_rows", Kind.PREDICTION, _note, unit="rows"),
    smallest_product := Exercise(
        "smallest_product",
        Kind.RATIO,
        check_smallest,
        lambda: winners(*simulated_pair())[0],
    ),
    four_limits := Exercise("four_limits", Kind.VALUE, check_limits, right_limits),
)
