"""Wrong answers that learners really give: each must be NOT YET with its own hint.

exercise -> {name of the mistake: (answer, words of its hint)}
"""

import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

from gpu_lab.bench.dataloader import images
from gpu_lab.exercises import (
    dataloader_tuning,
    ddp,
    device_detection,
    hardware_basics,
    measuring,
    mixed_precision,
    profiling,
    start_here,
    troubleshooting,
)
from gpu_lab.timing import Sleeper


def _shifted(by: int) -> dict[str, int]:
    return {name: rung + by for name, rung in start_here.right_rungs().items()}


def _from_the_top() -> dict[str, int]:
    return {name: 7 - rung for name, rung in start_here.right_rungs().items()}


def _timer(
    *,
    wait: bool = True,
    warm: bool = True,
    calls: int = 21,
    shapes: tuple[int, int] = (1024, 1024),
    of: Callable[[list[float]], float] = statistics.median,
) -> Callable[[measuring.WatchedGpu], dict[str, float]]:
    """A timer that is right but for what is given."""

    def timer(gpu: measuring.WatchedGpu) -> dict[str, float]:
        found = {}
        for dtype, n in zip(measuring.DTYPES, shapes, strict=True):
            times = []
            if warm:
                gpu.matmul(n, dtype)
            if wait:
                gpu.wait()
            for _ in range(calls):
                start = gpu.now()
                gpu.matmul(n, dtype)
                if wait:
                    gpu.wait()
                times.append(gpu.now() - start)
            found[dtype] = of(times)
        return found

    return timer


def _verdicts(**changed: str) -> dict[str, str]:
    return {**measuring.right_verdicts(), **changed}


def _costs(gflop: float = 1.0, gb: float = 1.0) -> dict[str, tuple[float, float]]:
    """The right costs, all off by the same factors."""
    right = hardware_basics.right_costs()
    return {name: (a * gflop, b * gb) for name, (a, b) in right.items()}


def _one_way() -> dict[str, tuple[float, float]]:
    layers = hardware_basics._stored()["layers"]
    right = hardware_basics.right_costs()
    return {
        name: (right[name][0], x["there"] * x["item_bytes"] / 1e9)
        for name, x in layers.items()
    }


def _limits(**changed: str) -> dict[str, str]:
    return {**hardware_basics.right_limits(), **changed}


def _bytes(factor: float = 1.0, **changed: float) -> dict[str, float]:
    """The right bytes, all off by one factor, or one of them otherwise."""
    right = {name: factor * value for name, value in ddp.right_bytes().items()}
    return {**right, **{name.replace("_", "-"): v for name, v in changed.items()}}


def _logs(**changed: str) -> dict[str, str]:
    right: dict[str, str] = dict(ddp._stored()["logs"])
    return {**right, **changed}


def _unguarded(torch: Any) -> str:
    return str(getattr(torch.accelerator.current_accelerator(), "type", "cpu"))


def _as_everybody(torch: Any) -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _first_that_works(torch: Any) -> str:
    """All kinds, a kernel before trust, and still device 0."""
    for kind in ("cuda", "xpu", "mps"):
        backend = torch.backends.mps if kind == "mps" else getattr(torch, kind)
        if backend.is_available():
            try:
                torch.ones(1, device=kind).sum().item()
                return kind
            except RuntimeError:
                pass
    return "cpu"


def _hops(**changed: int) -> dict[str, int]:
    return {**device_detection.right_hops(), **changed}


def _step(mistake: str = "") -> Callable[[mixed_precision.Kit], None]:
    """A training step that is right but for one mistake."""

    def my_step(kit: mixed_precision.Kit) -> None:
        scaled = kit.dtype == torch.float16 or mistake == "scaler around bf16"
        off = torch.amp.GradScaler("cpu", enabled=False)
        scaler = kit.scaler if scaled and mistake != "no scaler" else off
        if mistake != "no zero_grad":
            kit.optimizer.zero_grad()
        _passes(kit, scaler, mistake)
        if mistake == "unscale after clipping":
            kit.clip(kit.model.parameters(), 1.0)
        scaler.unscale_(kit.optimizer)
        if mistake not in ("unscale after clipping", "no clipping"):
            kit.clip(kit.model.parameters(), 1.0)
        if mistake != "no step":
            scaler.step(kit.optimizer)
        if mistake != "no update":
            scaler.update()

    return my_step


def _passes(
    kit: mixed_precision.Kit, scaler: torch.amp.GradScaler, mistake: str
) -> None:
    """Forward and backward pass."""
    dtype = torch.float16 if mistake == "always float16" else kit.dtype
    with torch.autocast("cpu", dtype, enabled=mistake != "no autocast"):
        scores = kit.model(kit.x)
        if mistake == "loss in half":
            with torch.autocast("cpu", enabled=False):
                loss = kit.loss(scores, kit.y)
        else:
            loss = kit.loss(scores, kit.y)
        if mistake == "backward inside autocast":
            scaler.scale(loss).backward()
    if mistake != "backward inside autocast":
        scaler.scale(loss).backward()


def _scales(**changed: Any) -> dict[str, Any]:
    return {**mixed_precision.right_scales(), **changed}


def _gains(**changed: Any) -> dict[str, Any]:
    return {**mixed_precision.right_gains(), **changed}


def _loop(
    *, pin: bool = True, free: bool = True, side: bool = True, wait: bool = False
) -> Callable[..., None]:
    """A loop that is right but for what is given."""

    def loop(gpu: dataloader_tuning.WatchedGpu, batches: Any) -> None:
        for batch in batches:
            here = batch.pin_memory() if pin else batch
            gpu.step(gpu.copy(here, non_blocking=free, side=side))
            if wait:
                gpu.wait()

    return loop


def _first_only(gpu: dataloader_tuning.WatchedGpu, batches: Any) -> None:
    _loop()(gpu, batches[:1])


class _InACell:
    """As if its class were defined in a notebook."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> int:
        return index


class _Holder(_InACell):
    """A dataset that carries something along."""

    def __init__(self, held: Any) -> None:
        self.held = held


_InACell.__module__ = "__main__"


def _in_half(pictures: Any, link: dataloader_tuning.CountedLink) -> Any:
    return link.copy(images.ready(pictures).half()).float()


def _scaled(pictures: Any, link: dataloader_tuning.CountedLink) -> Any:
    return link.copy(pictures).permute(0, 3, 1, 2).float() / 255


def _shapes(**changed: str) -> dict[str, str]:
    return {**profiling.right_shapes(), **changed}


def _faulty(*faults: str) -> Callable[[profiling.Kit], torch.Tensor]:
    """The step to be mended, with some of its faults left."""

    def my_step(kit: profiling.Kit) -> torch.Tensor:
        batch = kit.batch.clone() if "copy" in faults else kit.batch
        if "loop" in faults:
            columns = [torch.tanh(batch[:, i] * kit.scale[i]) for i in range(32)]
            hidden = torch.stack(columns, dim=1)
        else:
            hidden = torch.tanh(batch * kit.scale)
        losses = (hidden @ kit.weight).square().mean(1)
        if "log" not in faults:
            item = "item" in faults
            kit.log.append(sum(map(float, losses)) if item else losses.sum())
        return losses.sum() if "sum" in faults else losses.mean()

    return my_step


def _exam(exam: str, **changed: Any) -> dict[str, Any]:
    return {**troubleshooting.right(exam), **changed}


def wrong_answers() -> dict[str, dict[str, tuple[Any, str]]]:
    """All wrong answers, made when asked: some read data files."""
    return {
        "first_rungs": {
            "named the last rung that holds": (_shifted(-1), "last rungs that hold"),
            "counted from the top": (_from_the_top(), "count from the bottom"),
            "always blamed the driver": (
                dict.fromkeys("abc", 2),
                "not every trouble is the driver",
            ),
            "always reinstalled torch": (
                dict.fromkeys("abc", 3),
                "often a consequence",
            ),
            "one machine left open": ({**_shifted(0), "c": ...}, "still open: c"),
            "wrote names, not numbers": (
                dict.fromkeys("abc", "driver"),
                "whole number from 1 to 6",
            ),
        },
        "layer_costs": {
            "bits for bytes": (_costs(gb=8), "those are bits"),
            "GiB for GB": (_costs(gb=1e9 / 2**30), "that is GiB"),
            "forgot the way back": (_one_way(), "the way back is missing"),
            "forgot the factor 2": (_costs(gflop=0.5), "are two FLOP"),
            "4 bytes everywhere": (
                {**_costs(gb=2), "linear": _costs()["linear"]},
                "the 16-bit types have 2 bytes",
            ),
            "2 bytes everywhere": (_costs(gb=0.5), "float32 has 4 bytes"),
            "something else": (_costs(gflop=3), "count the GFLOP again"),
            "one number each": (
                dict.fromkeys(("linear", "relu", "conv"), (1.0,)),
                "wanted the pair (GFLOP, GB)",
            ),
        },
        "smallest_product": {
            "the largest": (1024, "but at a smaller n as well"),
            "the CPU still wins": (128, "the CPU is still faster"),
            "between two sizes": (200, "wanted a size of the table"),
            "a time": (0.314, "wanted a number of rows"),
        },
        "four_limits": {
            "always the link": (dict.fromkeys("abcd", "link"), "not every run has"),
            "link and memory mixed up": (
                _limits(a="link", c="memory"),
                "link and memory are two paths",
            ),
            "launches taken for work": (
                _limits(b="compute", d="launch"),
                "many launches are not much arithmetic",
            ),
            "one wrong": (_limits(a="launch"), "again for a"),
            "other words": (_limits(a="bus"), "wanted one of link, memory"),
        },
        "step_bytes": {
            "bits for bytes": (_bytes(8), "those are bits"),
            "numbers for bytes": (_bytes(0.25), "those are numbers, not bytes"),
            "MB for bytes": (_bytes(1e-6), "that is MB"),
            "counted the frozen layer": (
                _bytes(float32=4 * ddp._numbers(first=0)),
                "layer 0 is frozen",
            ),
            "forgot the biases": (
                _bytes(float32=4 * ddp._numbers(bias=0)),
                "each layer has a bias too",
            ),
            "something else": (_bytes(3), "count again"),
            "float16 like float32": (
                _bytes(float16=ddp.right_bytes()["float32"]),
                "2 bytes each",
            ),
            "each micro-batch sends": (
                _bytes(micro_batch=ddp.right_bytes()["float32"]),
                "three of four micro-batches send nothing",
            ),
            "one left open": ({**_bytes(), "float16": ...}, "still open: float16"),
            "a list": ([1, 2, 3], "wanted a dict"),
        },
        "three_logs": {
            "a and c mixed up": (
                _logs(a="no sampler epoch", c="same data on all ranks"),
                "a: compare the two ranks",
            ),
            "the metrics missed": (
                _logs(b="no sampler epoch"),
                "b: on how many samples",
            ),
            "the epochs missed": (
                _logs(c="metrics of rank 0 only"),
                "c: compare the two epochs",
            ),
            "one called healthy": (_logs(b="no fault"), "each of the three has a"),
            "other words": (_logs(a="slow"), "a: wanted one of"),
            "one left open": ({**_logs(), "c": ...}, "still open: c"),
        },
        "pick_device": {
            "unguarded current_accelerator()": (
                _unguarded,
                "what the build was made for",
            ),
            "cuda if is_available()": (_as_everybody, "run one tiny kernel"),
            "device 0 for the biggest": (_first_that_works, "the first one, not the"),
            "always the CPU": (lambda torch: "cpu", "cuda is not the only kind"),
            "does not catch": (lambda torch: torch.ones(1, device="cuda"), "it raised"),
            "called, not given": ("cuda", "wanted a function"),
        },
        "narrowest_hop": {
            "trusts the idle card": (_hops(b=2), "path b, hop 2: an idle card"),
            "lanes without generation": (_hops(a=2), "path a, hop 2: it can move"),
            "forgets the tunnel": (_hops(c=3), "of a tunnel is a placeholder"),
            "only the card": (_hops(d=3), "path d, hop 3: an idle card"),
            "counts from 0": (_hops(a=0), "wanted a hop from 1 to 3"),
            "one left open": ({**_hops(), "d": ...}, "still open: d"),
        },
        "repair_timer": {
            "all four errors": (
                _timer(wait=False, warm=False, calls=3, shapes=(1024, 512), of=min),
                "4 left, the first: the clock starts or stops",
            ),
            "no wait": (_timer(wait=False), "1 left, the first: the clock starts or"),
            "no wait and no warm-up": (_timer(wait=False, warm=False), "2 left"),
            "no warm-up": (_timer(warm=False), "1 left, the first: the first call"),
            "mean of three": (
                _timer(calls=3, of=statistics.fmean),
                "1 left, the first: 3 samples",
            ),
            "two shapes": (
                _timer(shapes=(1024, 512)),
                "1 left, the first: n is {1024}",
            ),
            "mean of many": (_timer(of=statistics.fmean), "the mean of your samples"),
            "minimum": (_timer(of=min), "the minimum of your samples"),
            "total, not one call": (_timer(of=sum), "it gives something else"),
            "no clock": (lambda gpu: dict.fromkeys(measuring.DTYPES, 1.0), "look at"),
            "other keys": (lambda gpu: {"fp32": 1.0}, "wanted a dict"),
            "called, not given": ({"float32": 1.0}, "without brackets"),
        },
        "six_pairs": {
            "looked at the minimum": (measuring.naive_verdicts(min), "minimum alone"),
            "looked at the mean": (
                measuring.naive_verdicts(statistics.fmean),
                "mean alone",
            ),
            "ignored the flag": (_verdicts(c="slower"), "Look at the flags"),
            "ignored the rounds": (_verdicts(d="slower"), "Look at the rounds"),
            "ignored the margin": (_verdicts(e="faster"), "look at the margin"),
            "called noise equal": (_verdicts(b="equivalent"), "wider than the margin"),
            "took the wrong way round": (_verdicts(a="slower"), "a: the range leaves"),
            "trusted the mean of f": (_verdicts(f="faster"), "f: the range leaves"),
            "used other words": (_verdicts(a="yes", b="no"), "a, b: wanted one of"),
            "left one open": ({**_verdicts(), "c": ...}, "still open: c"),
        },
        "wrap_step": {
            **{
                mistake: (_step(mistake), words)
                for mistake, words in {
                    "no autocast": "belongs into torch.autocast",
                    "always float16": "bfloat16: the layers ran in another dtype",
                    "loss in half": "came out in half precision",
                    "no zero_grad": "of the step before",
                    "backward inside autocast": "leave the with block before it",
                    "no scaler": "float16 without a scaler",
                    "scaler around bf16": "a scaler has nothing to do there",
                    "unscale after clipping": "still scaled: unscale_ comes first",
                    "no clipping": "not clipped before the step",
                    "no step": "the optimizer made no step",
                    "no update": "neither back off nor grow",
                }.items()
            },
            "called, not given": (1.0, "without brackets"),
        },
        "safe_scale": {
            "the default everywhere": (
                dict.fromkeys("abc", 65536),
                "a: safe, but not the smallest",
            ),
            "too small": (_scales(a=4096), "a: more than 1 in 1000"),
            "forgot the large ones": (_scales(c=4096), "c: the largest gradients"),
            "scaled what needs none": (_scales(b=2**14), "b: the largest gradients"),
            "bf16 everywhere": (dict.fromkeys("abc", "bf16"), "a: a scale does it"),
            "a text": (_scales(a="2**13"), "a: wanted a scale of at least 1"),
            "made smaller": (_scales(b=0.5), "b: wanted a scale of at least 1"),
            "one left open": (_scales(c=...), "still open: c"),
        },
        "who_gains": {
            "all of them": (_gains(small="yes"), "again of small"),
            "none": (_gains(middle="no", large="no"), "again of middle, large"),
            "the wrong way round": (
                {"small": "yes", "middle": "no", "large": "no"},
                "again of small, middle, large",
            ),
            "other words": (_gains(large="3x"), "again of large"),
            "one left open": (_gains(large=...), "still open: large"),
        },
        "workers": {
            "more than pay": (5, "5 are more than pay: 3 do the same"),
            "none": (0, "without workers the device waits"),
            "too few": (2, "with 2 the loader still sets the pace"),
            "a time": (0.015, "wanted a number of workers from 0 to 5"),
        },
        "sendable": {
            "a class in the cell": (_InACell(), "lives in this notebook"),
            "a list": ([1, 2, 3], "wanted a dataset of a class in a module"),
            "a lambda inside": (_Holder(lambda x: x), "Can't"),
            "an open file": (_Holder(sys.stderr), "cannot pickle"),
            "all data inside": (_Holder(bytes(2**20)), "bytes of its own"),
            "nothing in it": (Sleeper(0, 0.001), "it has no items"),
        },
        "overlap": {
            "pinned, but blocking": (_loop(free=False), "non_blocking is missing"),
            "not pinned": (_loop(pin=False), "from pageable memory waits all the same"),
            "neither": (_loop(pin=False, free=False), "two things to change"),
            "one queue": (_loop(side=False), "side=True"),
            "waits in the loop": (_loop(wait=True), "wait() stops the host before"),
            "only the first batch": (_first_only, "once and stepped once"),
            "called, not given": (3, "without brackets"),
        },
        "fewer_bytes": {
            "float32": (
                lambda p, link: link.copy(images.ready(p)),
                "4 times the bytes",
            ),
            "float16": (_in_half, "16 bits round the numbers"),
            "not normalised": (_scaled, "must be those of images.ready"),
            "around the link": (lambda p, link: images.ready(p), "nothing crossed"),
            "called, not given": (torch.zeros(1), "without brackets"),
        },
        "eight_traces": {
            "trusted the utilisation": (
                profiling.by_utilisation(),
                "any kernel ran, however small",
            ),
            "blamed the copy that is hidden": (_shapes(e="copy-bound"), "e: nearly"),
            "counted kernels": (_shapes(c="launch-bound"), "c: nearly all"),
            "the cable for everything": (
                dict.fromkeys("abcdefgh", "copy-bound"),
                "a: the device has nothing to do",
            ),
            "the first copy seen": (_shapes(g="copy-bound"), "g: the device has"),
            "few kernels are no work": (_shapes(d="starved"), "d: kernels wait"),
            ".item() taken for work": (_shapes(f="compute-bound"), "f: divide the"),
            "other words": (_shapes(a="slow", b="fast"), "a, b: wanted one of"),
            "left one open": ({**_shapes(), "c": ...}, "still open: c"),
        },
        "mend_step": {
            "all three faults": (
                _faulty("copy", "loop", "item"),
                "3 left, the first: a number goes to the host",
            ),
            "only .item() left": (_faulty("item"), "1 left, the first: a number"),
            "only the copy left": (_faulty("copy"), "1 left, the first: the batch"),
            "only the loop left": (_faulty("loop"), "1 left, the first: a Python"),
            "copy and loop left": (_faulty("copy", "loop"), "2 left, the first: the"),
            "another result": (_faulty("sum"), "wanted the mean loss"),
            "the log left out": (_faulty("log"), "nothing was logged"),
            "called, not given": (1.0, "without brackets"),
        },
        "six_cases": {
            **{
                f"always {advice}": (dict.fromkeys("abcdef", advice), words)
                for advice, words in {
                    "reinstall torch": "a: the usual advice, and an hour",
                    "num_workers=0": "a: that hides the workers",
                    "the cable": "a: a cable is a suspect when",
                }.items()
            },
            "a new wheel for an old driver": (
                _exam("cases", a="wheel"),
                "a: the text compares two versions",
            ),
            "a new driver for an old card": (
                _exam("cases", b="driver"),
                "b: the driver knows the card",
            ),
            "the driver in the container": (
                _exam("cases", c="driver"),
                "c: it works outside",
            ),
            "the workers": (_exam("cases", d="num_workers=0"), "d: that hides the"),
            "a limit taken for a program": (
                _exam("cases", d="another program"),
                "d: the message names a number",
            ),
            "an idle link": (_exam("cases", e="the cable"), "e: a cable is a suspect"),
            "an idle link is the driver": (
                _exam("cases", e="driver"),
                "e: read the last column",
            ),
            "our own memory": (_exam("cases", f="system limit"), "f: add up what"),
            "other words": (_exam("cases", f="virus"), "f: wanted one of another"),
            "one left open": (_exam("cases", b=...), "still open: b"),
        },
        "four_messages": {
            "always fragments": (
                dict.fromkeys("abcd", "fragments"),
                "b: compare what was wanted",
            ),
            "always too big": (dict.fromkeys("abcd", "too big"), "a: reserved minus"),
            "empty the cache": (
                dict.fromkeys("abcd", "empty_cache"),
                "a: PyTorch does that itself",
            ),
            "a smaller batch": (
                _exam("messages", c="smaller batch"),
                "c: that is a cure, and it helps one",
            ),
            "more memory": (_exam("messages", d="more memory"), "d: first say who"),
            "others": (_exam("messages", c="another program"), "c: nearly all of the"),
            "a full card": (_exam("messages", d="too big"), "d: capacity minus free"),
            "other words": (_exam("messages", b="bug"), "b: wanted one of another"),
            "one left open": (_exam("messages", a=...), "still open: a"),
        },
    }


MALFORMED_GUESSES = {
    "no unit": ("40", "no unit"),
    "a bare number": (40, "no unit"),
    "wrong unit": ("40 parsecs", "the unit is"),
    "wrong sign": ("-40{unit}", "wrong sign"),
    "zero": ("0{unit}", "cannot be"),
    "a decimal comma": ("60,5{unit}", "decimal point"),
    "no number": ("many", "not a number"),
    "infinite": ("1e999{unit}", "too large"),
    "two dots": ("1.2.3{unit}", "not a number"),
}
