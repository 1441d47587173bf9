"""Two nodes on one machine: two network namespaces, a shaped link, a killed worker.

The model of a step gets its constants at 0.2 and 0.7 Gb/s and must then be right at
four other rates. Faster links are only modelled.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from scipy.optimize import least_squares

from gpu_lab import fit
from gpu_lab.bench import LinkFit, ddp, fit_link

ROOT = Path(__file__).parent.parent
FITTED, JUDGED = (200, 700), (100, 250, 500, 1000)  # Mb/s
WITHIN, LIMIT_S = 0.15, 100
STEPS = {"run": "planted_ranks:steps"}
ARMS = {"one bucket": 1, "small buckets": 8}  # messages of a step
SIZES = [65536, 1048576, 4194304]


def why_not() -> str:
    """Why this machine cannot have two nodes; "" when it can."""
    if sys.platform != "linux":
        return "needs Linux: network namespaces"
    if os.geteuid() != 0:
        return "needs root: it makes network namespaces"
    missing = [name for name in ("ip", "tc") if not shutil.which(name)]
    if missing:
        return f"needs {', '.join(missing)}: apt-get install iproute2"
    name = f"gl-try-{os.getpid()}"
    tried = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, check=False
    )
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


REASON = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]


@dataclass(frozen=True)
class Node:
    """One network namespace with its end of the cable."""

    space: str
    link: str
    address: str


def sh(text: str) -> None:
    subprocess.run(text.split(), check=True, capture_output=True, timeout=20)


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Node, Node]]:
    """Two namespaces joined by a veth pair; gone afterwards."""
    pid = os.getpid()
    a, b = (
        Node(f"gl-{pid}-{x}", f"gl{x}{pid % 100000}", f"10.77.0.{number}")
        for number, x in enumerate("ab", 1)
    )
    try:
        for node in (a, b):
            sh(f"ip netns add {node.space}")
        ends = [f"name {node.link} netns {node.space}" for node in (a, b)]
        sh(f"ip link add {ends[0]} type veth peer {ends[1]}")
        for node in (a, b):
            inside = f"ip -n {node.space}"
            sh(f"{inside} addr add {node.address}/24 dev {node.link}")
            sh(f"{inside} link set {node.link} up")
            sh(f"{inside} link set lo up")
        yield a, b
    finally:
        for node in (a, b):
            subprocess.run(
                ["ip", "netns", "del", node.space], capture_output=True, check=False
            )


def run(
    nodes: tuple[Node, Node], plan: dict[str, dict[str, Any]], *, restarts: int = 0
) -> dict[str, dict[str, Any]]:
    """What a launch on both nodes found: one torchrun on each, one rank on each."""
    meet = f"{nodes[0].address}:29411"
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2"]
    words += ["--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={meet}"]
    words += ["--rdzv-id=two-nodes", f"--max-restarts={restarts}"]
    words += ["--monitor-interval=0.1"]
    module = ["-m", "gpu_lab.bench.ddp", "--device=cpu", f"--limit={LIMIT_S}"]
    module += [f"{name}={json.dumps(given)}" for name, given in plan.items()]
    started = []
    for node in nodes:
        env = os.environ | {
            "GLOO_SOCKET_IFNAME": node.link,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        }
        inside = ["ip", "netns", "exec", node.space]
        # Names do not resolve in a namespace: torchrun cannot see whose address it is.
        host = f"--rdzv-conf=is_host={int(node is nodes[0])}"
        here = [*inside, *words, host, f"--local-addr={node.address}", *module]
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(here, env=env, stdout=pipe, stderr=pipe, text=True)
        )
    timer = threading.Timer(LIMIT_S, lambda: [end(process) for process in started])
    timer.start()
    try:
        said: list[tuple[str, str]] = [("", "")] * 2

        def read(number: int) -> None:
            said[number] = started[number].communicate()

        readers = [threading.Thread(target=read, args=(i,)) for i in (0, 1)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    finally:
        timer.cancel()
        for process in started:
            end(process)
    lines = [line for out, _ in said for line in out.splitlines()]
    parsed = [json.loads(line) for line in lines if line.startswith("{")]
    failed = [line for line in parsed if "failed" in line]
    words = "".join(text for _, text in said)
    if any(process.returncode for process in started):
        pytest.fail(f"{ddp.first_cause(failed, words, ranks=2)}\n{failed}\n{words}")
    return {line["experiment"]: line for line in parsed if "experiment" in line}


def end(process: subprocess.Popen[str]) -> None:
    try:
        tree = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for one in tree:
        one.kill()
    process.kill()


def best_s(line: dict[str, Any], arm: str) -> float:
    """What the link allows: other work on this machine only adds to it."""
    return float(min(line["rows"][arm]["times_s"]))


@pytest.fixture(scope="module")
def found(nodes: tuple[Node, Node], tmp_path_factory: Any) -> dict[str, dict[str, Any]]:
    """One launch: the pair of processes unshaped, then a step at each rate."""
    links = [node.link for node in nodes]
    plan: dict[str, dict[str, Any]] = {
        "all_reduce": {"sizes": SIZES, "rounds": 12},
        "unshaped": STEPS,
    }
    for mbit in (*FITTED, *JUDGED):
        given = {"run": "planted_ranks:shape", "mbit": mbit, "links": links}
        plan |= {f"shape {mbit}": given, str(mbit): STEPS}
    folder = str(tmp_path_factory.mktemp("undisturbed"))
    train = {"run": "planted_ranks:train", "steps": 12, "every": 3, "folder": folder}
    return run(nodes, plan | {"train": train})


@pytest.fixture(scope="module")
def model(found: dict[str, dict[str, Any]]) -> Callable[[int], LinkFit]:
    """Mb/s -> link: the unshaped rate, and two constants fitted at two other rates.

    They are the share of a link's rate that payload gets, and the start of a message.
    """
    unshaped = moved_per_s(found)

    def link(mbit: int, share: float, start_s: float) -> LinkFit:
        most = min(share * mbit * 1e6 / 8, unshaped)
        return LinkFit(start_s, most)

    def off(constants: Any) -> list[float]:
        share, start_ms = constants
        return [
            math.log(
                best_s(found[str(mbit)], arm) / law_s(found, str(mbit), arm, given)
            )
            for mbit in FITTED
            for arm in ARMS
            for given in [link(mbit, share, 1e-3 * start_ms)]
        ]

    share, start_ms = least_squares(off, [0.9, 1.0], bounds=([0.5, 0], [1, 20])).x
    print(f"unshaped {unshaped * 8e-9:.2f} Gb/s")
    print(f"share of the rate {share:.3f}, start {start_ms:.2f} ms")
    return lambda mbit: link(mbit, share, 1e-3 * start_ms)


def law_s(
    found: dict[str, dict[str, Any]], rate: str, arm: str, link: LinkFit
) -> float:
    """Seconds of a step by the law, from what one rank alone takes.

    What a step costs the two processes without any limit on the link (copies into the
    bucket and back) stays with a link: it was measured before one was shaped.
    """
    without = LinkFit(0.0, moved_per_s(found))
    own_s = best_s(found["unshaped"], arm) - step_s(found, "unshaped", arm, without)
    return step_s(found, rate, arm, link) + max(0.0, own_s)


def step_s(
    found: dict[str, dict[str, Any]], rate: str, arm: str, link: LinkFit
) -> float:
    size = found[rate]["bytes"]
    step = fit.Step(best_s(found[rate], "alone"), size, size / ARMS[arm])
    return step.time_s(link, 2)


def moved_per_s(found: dict[str, dict[str, Any]]) -> float:
    """Bytes a second that this pair of processes moves without a limit."""
    rows = found["all_reduce"]["rows"].values()
    pairs = [(row["work"], t) for row in rows for t in row["times_s"]]
    return fit_link(*zip(*pairs, strict=True)).bytes_per_s


def test_the_pair_of_processes_is_no_narrower_than_the_links(
    model: Callable[[int], LinkFit],
) -> None:
    assert model(10**6).bytes_per_s * 8 > 1e9


@pytest.mark.parametrize("arm", ["one bucket", "small buckets"])
@pytest.mark.parametrize("mbit", JUDGED)
def test_a_step_takes_what_the_model_says(
    found: dict[str, dict[str, Any]],
    model: Callable[[int], LinkFit],
    mbit: int,
    arm: str,
) -> None:
    took_s = best_s(found[str(mbit)], arm)
    off = took_s / law_s(found, str(mbit), arm, model(mbit)) - 1
    print(f"{mbit} Mb/s, {arm}: {1e3 * took_s:.1f} ms, {100 * off:+.1f} %")
    assert abs(off) <= WITHIN


def test_fewer_bytes_help_on_a_narrow_link(found: dict[str, dict[str, Any]]) -> None:
    whole, half = (best_s(found["100"], arm) for arm in ("small buckets", "float16"))
    assert half < 0.8 * whole


def test_a_killed_worker_costs_at_most_one_interval(
    nodes: tuple[Node, Node], found: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    train = {"run": "planted_ranks:train", "steps": 12, "every": 3, "kill_at": 8}
    again = run(nodes, {"train": {**train, "folder": str(tmp_path)}}, restarts=3)
    disturbed, undisturbed = again["train"], found["train"]
    assert (tmp_path / "killed").exists()
    assert 8 - 3 <= disturbed["first"] < 8
    assert abs(disturbed["loss"] - undisturbed["loss"]) <= 1e-5
