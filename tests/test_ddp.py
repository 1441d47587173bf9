"""Several ranks on the processor: exact checks of one launch, and ends of bad ones."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpu_lab import bench, exercises, facts, fit
from gpu_lab.bench import ddp
from gpu_lab.bench.ddp import __main__ as program
from gpu_lab.records import Device, Source

CPU = Device(backend="cpu", name="Test CPU")
TESTS = Path(__file__).parent
PLAN: dict[str, dict[str, Any]] = {
    **facts.settings("ddp")["plan"],
    "all_reduce": {"sizes": [512, 65536], "rounds": 3},
    "scaling": {"rounds": 3},
    "unequal": {"run": "scaling", "slow": 3.0, "rounds": 3},
    "noisy": {"run": "planted_ranks:noisy"},
}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planted can be imported by the ranks; another job has the usual port."""
    paths = (str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(told: list[str]) -> dict[str, Any]:
    """One launch of two ranks with every experiment, while port 29500 is taken."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join((str(TESTS.parent), str(TESTS))))
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 29500))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        result = ddp.launch(PLAN, device=CPU, ranks=2, limit_s=150, tell=told.append)
    patch.undo()
    return result


def left_over(token: str) -> list[int]:
    """Processes that carry this word in their command line."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = " ".join(process.info["cmdline"] or [])
        if token in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found


def test_each_experiment_is_told_once_in_order(found, told) -> None:
    assert told == list(PLAN) == list(found)
    assert not left_over("gpu_lab.bench.ddp")


def test_all_reduce_counts_bytes_and_ranks(found) -> None:
    rows = found["all_reduce"]["rows"]
    assert [row.work for row in rows.values()] == [512, 65536]
    for row in rows.values():
        assert row.source is Source.MEASURED
        assert len(row.times_s) == 3
        assert row.settings == {"ranks": 2}
        assert row.number_per_run == 20
    assert rows["512 B"].name == "all_reduce 512 B"


def test_the_ring_equals_all_reduce_and_sends_what_it_must(found) -> None:
    ring = found["ring"]
    assert ring["error"] <= 1e-6
    assert ring["sent"] == [ring["size"]] * 2 == [ddp.bus_factor(2) * ring["size"]] * 2


def test_gradients_equal_one_process(found) -> None:
    same = found["gradients"]
    assert same["error"] <= 1e-6
    assert same["sum"] == pytest.approx(2, rel=1e-5)
    assert same["uneven"] > 0.1


def test_bytes_counted_by_the_hook_are_those_predicted(found) -> None:
    sent = found["messages"]
    assert exercises.ddp.counted(sent) == exercises.ddp.right_bytes()
    assert sum(sent["float16"][1]) * 2 == sum(sent["small buckets"][1])
    assert len(sent["one bucket"][1]) == 1
    assert len(sent["small buckets"][1]) == len(sent["no_sync"][1]) == 2
    assert (
        exercises.ddp.step_bytes(exercises.ddp.right_bytes(), messages=sent).verdict
        == "PASS"
    )


def test_an_unused_layer_is_an_error_with_two_cures(found) -> None:
    unused = found["messages"]["unused"]
    assert "finished reduction" in unused.pop("none")
    assert set(unused.values()) == {"works"}


def test_messages_start_while_layers_still_compute(found) -> None:
    spans = found["overlap"]
    assert len(spans["backward"]) == len(spans["all_reduce"]) == 8
    first_message, last_layer = spans["all_reduce"][0][0], spans["backward"][-1][1]
    assert first_message < last_layer


def test_the_slow_rank_sets_the_pace(found) -> None:
    rows = found["unequal"]["rows"]
    assert rows["last alone"].median_s > 2 * rows["first alone"].median_s
    assert rows["small buckets"].median_s > 2 * rows["first alone"].median_s
    assert {row.group for row in rows.values()} == {rows["float16"].group}


def test_bytes_of_each_stage_follow_the_formula(found) -> None:
    numbers = 4 * (256 * 256 + 256)
    for stage, name in enumerate(ddp.STAGES):
        wanted = fit.zero_bytes(stage, parameters=numbers, ranks=2)
        for held in found["sharding"][name]:
            assert held == pytest.approx(wanted, rel=0.01), name


def test_split_layers_and_stages_equal_the_whole(found) -> None:
    split = found["tensor_parallel"]
    assert split["error"] <= 1e-5
    assert max(split["split"]) < 0.6 * split["dense"]
    assert found["pipeline"]["error"] <= 1e-5
    assert found["pipeline"]["idle share"] == pytest.approx(1 / 5)


def test_what_needs_two_gpus_says_so(found) -> None:
    rows = found["data_parallel"]["rows"].values()
    assert {row.source for row in rows} == {Source.NOT_MEASURABLE}
    assert all("two GPUs" in row.reason for row in rows)


def test_the_late_rank_and_other_shapes_are_named(found) -> None:
    assert "1" in found["faults_named"]["late"]
    assert "mismatch" in found["faults_named"]["mismatch"].lower()


def test_one_process_under_ddp_equals_plain_training(found) -> None:
    assert found["control"]["plain"] == found["control"]["ddp"]


def test_talk_of_ranks_does_no_harm(found) -> None:
    assert len(found["noisy"]["large"]) == 20_000


def test_four_ranks_make_a_ring_too() -> None:
    plan = {"ring": {"size": 4096}, "gradients": {}}
    found = ddp.launch(plan, device=CPU, ranks=4, limit_s=120)
    assert found["ring"]["sent"] == [6144] * 4
    assert found["ring"]["error"] <= 1e-6
    assert found["gradients"]["error"] <= 1e-6
    assert found["gradients"]["sum"] == pytest.approx(4, rel=1e-5)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("kind", "limit_s", "words"),
    [
        ("raise", 90, "rank 1 failed first, in {}: ValueError: planted"),
        ("memory", 90, "rank 1 failed first, in {}: MemoryError"),
        ("kill", 90, "rank 1 was killed by signal 9, as the system does when memory"),
        ("hang", 24, "rank 1 did not come; rank 0 waited in {}"),
    ],
)
def test_the_first_cause_is_shown_and_all_ranks_end(
    kind: str, limit_s: float, words: str
) -> None:
    name = f"planted-{uuid.uuid4().hex[:8]}"
    plan = {name: {"run": "planted_ranks:fault", "kind": kind}}
    start = time.monotonic()
    with pytest.raises(ddp.LaunchFailed) as failed:
        ddp.launch(plan, device=CPU, ranks=2, limit_s=limit_s)
    assert time.monotonic() - start < limit_s + 10
    assert words.format(name) in str(failed.value)
    assert not left_over(name)


def test_at_the_limit_everything_ends() -> None:
    name = f"planted-{uuid.uuid4().hex[:8]}"
    start = time.monotonic()
    with pytest.raises(ddp.LaunchFailed, match="the limit of 2 s passed"):
        ddp.launch({name: {"run": "ring", "size": 64}}, device=CPU, limit_s=2)
    assert time.monotonic() - start < 12
    assert not left_over(name)


@pytest.mark.skipif(
    sys.platform != "linux"
    or not hasattr(os, "geteuid")
    or os.geteuid() != 0
    or not shutil.which("unshare")
    or not shutil.which("ip"),
    reason="needs Linux, root, unshare and ip: namespaces of its own",
)
def test_no_host_name_and_no_ipv6_are_needed(tmp_path: Path) -> None:
    code = (
        "from gpu_lab.bench import ddp; from gpu_lab.records import Device;"
        "cpu = Device(backend='cpu', name='x');"
        "print(ddp.launch({'ring': {'size': 64}}, device=cpu, limit_s=80)['ring'])"
    )
    script = (
        "ip link set lo up; hostname no-such-host-anywhere;"
        "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 || true;"
        'exec "$0" -c "$1"'
    )
    words = ["unshare", "--net", "--uts", "sh", "-c", script, sys.executable, code]
    run = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False
    )
    assert "'sent': [64, 64]" in run.stdout, run.stderr
    assert "hostname" not in run.stderr


@pytest.mark.parametrize(
    ("reports", "noise", "words"),
    [
        (
            [(0, "closed", True), (1, "boom", False)],
            "",
            "rank 1 failed first, in x: boom",
        ),
        (
            [(0, "closed", True)],
            "  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 7)\n",
            "rank 1 was killed by signal 9",
        ),
        (
            [(0, "timed out", True)],
            "  rank      : 1 (local_rank: 1)\n  exitcode  : -15 (pid: 7)\n",
            "rank 1 did not come; rank 0 waited in x: timed out",
        ),
        ([], "No module named torch", "no rank said why; the last words: No module"),
        ([], "", "the last words: none"),
    ],
)
def test_first_causes(reports: Any, noise: str, words: str) -> None:
    lines = [
        {"failed": "x", "rank": rank, "error": error, "alone": alone}
        for rank, error, alone in reports
    ]
    assert words in ddp.first_cause(lines, noise, ranks=2)


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("[...] Connection closed by peer [127.0.0.1]:4242", True),
        ("Timed out waiting 8000ms for recv operation to complete", True),
        ("shape '[2]' is invalid for input of size 3", False),
    ],
)
def test_consequences_are_told_from_causes(text: str, alone: bool) -> None:
    assert bool(program.LEFT_ALONE.search(text)) is alone


def test_the_command_names_no_port_and_no_host() -> None:
    words = ddp.command({"ring": {"size": 4}}, ranks=3, device="cpu", limit_s=9)
    assert words[0] == sys.executable
    assert "--rdzv-endpoint=127.0.0.1:0" in words
    assert words[-1] == 'ring={"size": 4}'


def test_help_ends_well() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "gpu_lab.bench.ddp", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "all_reduce" in run.stdout


def test_every_experiment_has_a_docstring_and_settings_by_keyword() -> None:
    assert {"all_reduce", "scaling", "sharding", "fault"} <= set(ddp.EXPERIMENTS)
    assert {v.get("run", k) for k, v in PLAN.items()} <= {
        *ddp.EXPERIMENTS,
        "planted_ranks:noisy",
    }
    assert all(call.__doc__ for call in ddp.EXPERIMENTS.values())
    assert bench.ddp is ddp
