"""The doctor: right on the cases however they are printed, silent on healthy text."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import cases
import pytest

from gpu_lab import cli, doctor, facts
from gpu_lab.doctor import rules
from gpu_lab.doctor.flat import Flat

MOST_CPU_S, MOST_MEMORY_BYTES, MOST_START_S = 2.0, 200 * 2**20, 0.3
LOG_BYTES = 10_000_000
CODES = {"24", "1455"}  # error numbers of Linux and Windows that a pattern may name
# Cause and consequence, each by a case.
PAIRS = (
    ("t-042", "t-047"),  # device assert, collective time-out
    ("t-027", "t-047"),  # NVLink, collective time-out
    ("t-006", "t-047"),  # card off the bus, collective time-out
    ("t-072", "t-047"),  # NCCL's shared memory, collective time-out
    ("t-052", "t-047"),  # out of memory on one rank, collective time-out
    ("t-014", "t-066"),  # shared memory, parent's "exited unexpectedly"
    ("t-016", "t-066"),  # class not importable, the same
    ("t-019", "t-066"),  # host memory, the same
    ("t-090", "t-066"),  # no main guard, the same
    ("t-086", "t-006"),  # unplugged, card off the bus
    ("t-011", "t-006"),  # link errors, card off the bus
    ("t-039", "t-017"),  # Secure Boot, no module
    ("t-040", "t-017"),  # nouveau or nova, no module
    ("t-031", "t-015"),  # CPU build, checkpoint from CUDA
    ("t-080", "t-005"),  # mismatch on the host, none in the container
    ("t-038", "t-063"),  # remap failed, remap pending
    ("t-085", "t-045"),  # device assert, Xid 13
)
FIXTURES = Path(__file__).parent / "fixtures"
HEALTHY = {path.stem: path.read_text() for path in (FIXTURES / "healthy").glob("*.txt")}
# What the same libraries and tools print in other versions, typed from their sources.
WORDINGS = json.loads((FIXTURES / "wordings.json").read_text())


def by_id(case_id: str) -> cases.Case:
    return next(case for case in cases.CASES if case["id"] == case_id)


def ids(source: Any) -> list[str]:
    return [found.id for found in doctor.explain(source)]


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case["id"])
def test_each_case_is_right(case: cases.Case) -> None:
    assert cases.complaint(case, doctor.explain(case["input"])) == ""


@pytest.mark.parametrize("change", cases.CHANGES)
def test_texts_are_right_however_they_are_printed(change: str) -> None:
    for case in cases.LOGS:
        source = cases.changed(case["input"], cases.CHANGES[change])
        assert cases.complaint(case, doctor.explain(source)) == "", case["id"]


@pytest.mark.parametrize("change", cases.TABLE_CHANGES)
def test_tables_and_snapshots_are_right_however_they_are_printed(change: str) -> None:
    for case in cases.TABLES:
        source = cases.changed(case["input"], cases.TABLE_CHANGES[change])
        assert cases.complaint(case, doctor.explain(source)) == "", case["id"]


@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case["id"])
def test_other_numbers_and_names_do_not_matter(case: cases.Case) -> None:
    source = case["input"]
    if isinstance(source, str):
        other: Any = cases.with_others(source)
    else:
        other = {cases.with_others(k): cases.with_others(v) for k, v in source.items()}
    assert ids(other)[0] == case["expected"]["diagnosis_id"]


def test_advice_names_the_numbers_of_the_text() -> None:
    text = cases.with_others(by_id("t-080")["input"])
    meaning = doctor.explain(text)[0].meaning
    assert "570.133.07" in meaning
    assert "570.169.01" in meaning
    assert (
        "11.4" in doctor.explain(cases.with_others(by_id("t-055")["input"]))[0].meaning
    )


def test_of_any_two_texts_both_are_found() -> None:
    """Every pair once, the order by turns."""
    for number, (a, b) in enumerate(itertools.combinations(cases.TEXTS, 2)):
        first, second = (a, b) if number % 2 else (b, a)
        found = set(ids(f"{first['input'].rstrip()}\n{second['input']}"))
        wanted = {c["expected"]["diagnosis_id"] for c in (a, b)}
        assert wanted <= found, (first["id"], second["id"])


@pytest.mark.parametrize(("cause", "consequence"), PAIRS)
def test_the_cause_comes_before_its_consequence(cause: str, consequence: str) -> None:
    texts = [by_id(name)["input"] for name in (cause, consequence)]
    wanted = [by_id(name)["expected"]["diagnosis_id"] for name in (cause, consequence)]
    for order in (texts, texts[::-1]):
        found = ids("\n".join(order))
        assert found.index(wanted[0]) < found.index(wanted[1])


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_healthy_text_and_other_software_raise_no_alarm(name: str) -> None:
    for text in (HEALTHY[name], cases.in_log(HEALTHY[name])):
        found = [d.id for d in doctor.explain(text) if d.severity != "info"]
        assert found == []


def test_a_healthy_snapshot_raises_no_alarm() -> None:
    text = (FIXTURES / "healthy" / "snapshot.json").read_text()
    assert doctor.explain(json.loads(text)) == []


@pytest.mark.parametrize("wording", WORDINGS, ids=lambda w: w["text"][:40])
def test_other_wordings_of_the_same_situations(wording: dict[str, str]) -> None:
    assert ids(wording["text"])[0] == wording["id"]


OOM = "CUDA out of memory. Tried to allocate {} (GPU 0; {} total capacity; {} already "
OOM += "allocated; {} free; {} reserved in total by PyTorch)"


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        ("2.0 GiB|23.69 GiB|21.9 GiB|0.4 GiB|22.3 GiB", "model-too-big"),
        ("20 MiB|79.20 GiB|76.90 GiB|15 MiB|77.60 GiB", "model-too-big"),
        ("20 MiB|23.69 GiB|2.00 GiB|10 MiB|2.10 GiB", "other-process"),
        ("900 MiB|10.76 GiB|5.2 GiB|100 MiB|9.6 GiB", "fragmentation"),
        ("48 GiB|79.2 GiB|31 GiB|47 GiB|31.5 GiB", "single-request-too-large"),
        ("14.00 MiB|4.00 GiB|2.80 GiB|0 bytes|2.90 GiB", "context-overhead"),
        ("64 MiB|12 GiB|15.1 GiB|0 bytes|15.6 GiB", "spilled-to-host-memory"),
    ],
)
def test_numbers_tell_the_out_of_memory_situations_apart(numbers, wanted):
    assert ids(OOM.format(*numbers.split("|"))) == [f"oom-{wanted}"]


def test_the_message_of_newer_versions_with_other_processes_in_it():
    text = (
        "CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity "
        "of 23.64 GiB of which 40.88 MiB is free. Process 4242 has 15.30 GiB memory "
        "in use. Including non-PyTorch memory, this process has 8.28 GiB memory in "
        "use. Of the allocated memory 7.60 GiB is allocated by PyTorch, and 240.00 MiB "
        "is reserved by PyTorch but unallocated."
    )
    assert ids(text) == ["oom-other-process"]


CSV = "index, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, "
CSV += "pcie.link.width.max, utilization.gpu [%]\n0, {}, {}, {}, {}, {} %\n"


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        ((4, 4, 16, 16, 99), []),
        ((1, 4, 16, 16, 0), ["link-idle-downshift"]),
        ((4, 4, 4, 16, 99), ["link-x4-by-design-egpu"]),
        ((3, 4, 1, 16, 99), ["link-width-x1"]),
        ((5, 5, 8, 8, 50), []),
    ],
)
def test_numbers_tell_the_states_of_a_link_apart(numbers, wanted):
    assert ids(CSV.format(*numbers)) == wanted


@pytest.mark.parametrize(
    ("supported", "card", "wanted"),
    [
        ("sm_50 sm_80 sm_90", "sm_120", "gpu-newer-than-wheel"),
        ("sm_75 sm_80 sm_90 sm_120", "sm_61", "gpu-older-than-wheel"),
    ],
)
def test_capability_against_wheel(supported, card, wanted):
    text = (
        f"NVIDIA X with CUDA capability {card} is not compatible with the current "
        "PyTorch installation.\n"
        f"The current PyTorch install supports CUDA capabilities {supported}."
    )
    assert ids(text) == [wanted]


def test_driver_against_cuda_version():
    text = "CUDA Version: {} |\n2.9.1+cu130\n>>> torch.cuda.is_available()\nFalse"
    assert ids(text.format("12.4")) == ["driver-too-old"]
    assert ids(text.format("13.0")) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("AssertionError: Torch not compiled with XPU enabled", "xpu-not-available"),
        ("libze_loader.so.1: cannot open shared object file", "xpu-not-available"),
        ("RuntimeError: Failed to find C compiler. Please specify", "compiler-missing"),
        ("TritonMissing: Cannot find a working triton installation.", "triton-missing"),
        (
            "[WinError 1455] The paging file is too small",
            "windows-paging-file-too-small",
        ),
        (
            "Expected all tensors to be on the same device, but found at least two",
            "tensors-on-different-devices",
        ),
        (
            "DistNetworkError: The server socket has failed to listen on any local "
            "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE",
            "rendezvous-port-in-use",
        ),
        (
            "video decoding and encoding capabilities of torchvision are deprecated",
            "harmless-notice",
        ),
        ("UnpicklingError: Weights only load failed.", "checkpoint-weights-only"),
    ],
)
def test_situations_beyond_the_cases(text, wanted):
    assert ids(text) == [wanted]


def test_nothing_known_gives_a_note_with_a_rung():
    found = doctor.examine("nvidia-smi hangs and the driver says nothing")
    assert found.diagnoses == ()
    assert "driver lists it" in found.note
    assert "gpu-lab doctor" in repr(found)


# The tables themselves.


def patterns(item: Any) -> list[str]:
    found = []
    for pattern in (*item.get("any", ()), *item.get("all", ())):
        found += [pattern] if isinstance(pattern, str) else pattern
    return [pattern.lstrip("?") for pattern in found]


def all_items() -> list[Any]:
    named = facts.settings("doctor")["facts"].values()
    items = [i for f in named for i in (f if isinstance(f, list) else [f])]
    return items + [i for rule in rules.rules().values() for i in rule["evidence"]]


PATTERNS = sorted({pattern for item in all_items() for pattern in patterns(item)})


def test_all_diagnoses_of_the_cases_have_a_rule():
    assert {c["expected"]["diagnosis_id"] for c in cases.CASES} <= set(rules.rules())
    assert len(rules.rules()) >= 79


@pytest.mark.parametrize("name", rules.rules())
def test_each_rule_is_whole(name):
    rule = rules.rules()[name]
    assert rule["severity"] in ("info", "warning", "error", "critical")
    texts = ("title", "meaning", "source", "steps", "avoid", "evidence")
    assert all(rule[key] for key in texts)
    assert set(rule.get("consequence_of", ())) <= set(rules.rules()) - {name}
    for text in (*rule["steps"], *rule["avoid"], rule["meaning"]):
        assert re.sub(r"\[[^][]*\{[^][]*\]", "", text).count("{") == 0


def test_no_circle_of_causes():
    def chain(name, below=()):
        assert name not in below
        for cause in rules.rules()[name].get("consequence_of", ()):
            chain(cause, (*below, name))

    for name in rules.rules():
        chain(name)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_is_short_and_in_the_form_of_the_tables(pattern):
    assert len(pattern) <= 80
    assert not re.search(r"\\[A-Z]|\(\?P|\s[?*+]", pattern), "see doctor.toml"
    rules.regex(pattern)


def test_each_search_begins_with_a_plain_part():
    for item in all_items():
        first = [p if isinstance(p, str) else p[0] for p in item.get("any", ())]
        for pattern in (*first, *item.get("all", ())):
            assert len(rules.literal(pattern.lstrip("?"))) >= 3, pattern


def test_no_pattern_knows_a_number_or_name_of_a_case():
    text = json.dumps([case["input"] for case in cases.CASES])
    own = set(re.findall(r"(?<![\w.])\d{2,}(?:\.\d+)*(?![\w.])", text)) - CODES
    own |= set(re.findall(r"(?:RTX|GTX) \d+|gfx\d+|/home/\w+|\w+box\b", text))
    for pattern in PATTERNS:
        plain = re.sub(r"\{[\d,]+\}", "", pattern)
        words = set(re.findall(r"(?<![\w.])\d+(?:\.\d+)*(?![\w.])", plain))
        assert not words & own, pattern
        assert not [name for name in own if not name[0].isdigit() and name in plain]


def test_each_pattern_takes_linear_time():
    for pattern in PATTERNS:
        words = re.findall(r"[a-z0-9:./_-]{3,}", pattern.lower().replace(" ", "")) or [
            "a"
        ]
        bad = "".join(words).encode() * (20_000 // len("".join(words)) + 1)
        start = time.process_time()
        for match in itertools.islice(rules.regex(pattern).finditer(bad), 300):
            assert match
        assert time.process_time() - start < 0.5, pattern


# Large, broken and strange input.


def big_log(block: str) -> str:
    return block * (LOG_BYTES // len(block.encode()) + 1)


@pytest.mark.parametrize(
    "kind", ["ordinary", "errors", "one line", "random", "prefixes"]
)
def test_ten_megabytes_take_two_seconds_at_most(kind):
    block = {
        "ordinary": cases.noise(2000),
        "errors": "[rank0]: CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has\n",
        "one line": "NVRM: Xid (PCI:0000:01:00): 45, LnkCap: Width x16 CUDA error: ",
        "random": "".join(
            f"{n * 7919 % 99991:x}-{n:o} jq_{n}\n" for n in range(50_000)
        ),
        "prefixes": "2026-01-01T00:00:00Z [rank0]: [ 1.5] kernel: ",
    }[kind]
    text = big_log(block)
    start = time.process_time()
    doctor.explain(text)
    assert time.process_time() - start < MOST_CPU_S


def test_ten_megabytes_take_200_mb_of_memory_at_most():
    text = big_log(cases.noise(2000))
    tracemalloc.start()
    doctor.explain(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak + len(text.encode()) < MOST_MEMORY_BYTES


def test_evidence_is_the_line_as_it_was():
    found = doctor.explain(cases.coloured(cases.in_log(by_id("t-039")["input"])))
    evidence = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    assert found[0].evidence == (evidence,)
    assert Flat("one\ntwo\n").evidence(3, 6) == "two"


# The command and the notebook.


def explain_files(tmp_path, capsys, files, *options):
    paths = []
    for name, content in files.items():
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(str(path))
    code = cli.main(["explain", *paths, *options])
    return code, capsys.readouterr()


def test_one_json_object_a_file(tmp_path, capsys):
    snapshot = json.dumps(by_id("t-001")["input"])
    files = {
        "a.log": by_id("t-052")["input"],
        "b.json": snapshot,
        "c.log": "all well\n",
    }
    code, said = explain_files(tmp_path, capsys, files, "--json")
    assert code == 1
    answers = [json.loads(line) for line in said.out.splitlines()]
    assert [a["file"].rpartition("/")[2][:5] for a in answers] == [
        "a.log",
        "b.jso",
        "c.log",
    ]
    first = answers[0]["diagnoses"][0]
    keys = [
        "id",
        "severity",
        "title",
        "meaning",
        "steps",
        "avoid",
        "evidence",
        "source",
    ]
    assert list(first) == keys
    assert answers[1]["diagnoses"][0]["id"] == "thunderbolt-not-authorised"
    assert answers[2]["diagnoses"] == []
    assert answers[2]["note"]


def test_text_for_people_and_exit_0_without_an_error(tmp_path, capsys):
    code, said = explain_files(tmp_path, capsys, {"q.txt": by_id("t-030")["input"]})
    assert code == 0
    assert "INFO: Four lanes" in said.out
    assert "  1. " in said.out


@pytest.mark.parametrize("content", [b"\x7fELF\0\0\1", b"caf\xe9 latin"])
def test_binary_or_other_encoding_is_one_line_and_2(content, tmp_path, capsys):
    files = {"bad": content, "good.log": "RuntimeError: received 0 items of ancdata"}
    code, said = explain_files(tmp_path, capsys, files, "--json")
    assert code == 2
    assert said.err.count("\n") == 1
    assert "wanted a text, log or snapshot in UTF-8; found" in said.err
    assert "too-many-open-files" in said.out


def test_a_missing_file_is_one_line_and_2(tmp_path, capsys):
    assert cli.main(["explain", str(tmp_path / "none.log")]) == 2
    assert "found: No such file or directory; try" in capsys.readouterr().err


def test_stdin(monkeypatch, capsys):
    class Stdin:
        class buffer:
            read = staticmethod(lambda: b"RuntimeError: received 3 items of ancdata")

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert cli.main(["explain", "-", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["file"] == "-"


def test_json_that_is_no_snapshot_is_text(tmp_path, capsys):
    files = {"a.json": '{"n": 1, "e": "received 0 items of ancdata"}', "b": "{not json"}
    assert explain_files(tmp_path, capsys, files)[0] == 1


def test_it_starts_fast_and_without_torch(tmp_path):
    log = tmp_path / "a.log"
    log.write_text("RuntimeError: received 0 items of ancdata\n")
    code = f"""
import sys, time
start = time.process_time()
from gpu_lab import cli
cli.main(["explain", {str(log)!r}, "--json"])
heavy = [m for m in ("torch", "numpy", "pandas", "pynvml") if m in sys.modules]
print(time.process_time() - start, heavy, file=sys.stderr)
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stderr.split(maxsplit=1)
        for _ in range(3)
    ]
    assert {heavy.strip() for _, heavy in runs} == {"[]"}
    assert min(float(seconds) for seconds, _ in runs) < MOST_START_S


def test_the_last_exception_is_explained(monkeypatch):
    monkeypatch.delattr(sys, "last_value", raising=False)
    monkeypatch.delattr(sys, "last_exc", raising=False)
    assert "No exception yet" in repr(doctor.explain_last())
    try:
        raise RuntimeError("No CUDA GPUs are available")
    except RuntimeError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    found = doctor.explain_last()
    assert found.diagnoses[0].id == "cuda-requested-without-gpu"
    assert "WARNING: The code asks for CUDA" in repr(found)


def test_a_report_of_ours_is_read_as_its_snapshot(tmp_path: Path) -> None:
    """Its own words about this machine are no errors of somebody's program."""
    path = tmp_path / "report.json"
    words = {"ladder": "torch sees no GPU: Found no NVIDIA driver on your system"}
    path.write_text(json.dumps({**words, "snapshot": {"uname -r": "6.8.0"}}))
    assert doctor.examine_file(str(path)).diagnoses == ()
