"""Trouble cases: what is expected, and texts that must not change the answer.

`python -m cases` (with tests/ on the path) prints the table by kind.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_lab import doctor

Case = dict[str, Any]
FOLDER = Path(__file__).parent / "fixtures" / "cases" / "trouble"
CASES: list[Case] = [json.loads(p.read_text()) for p in sorted(FOLDER.glob("*.json"))]
TEXTS = [case for case in CASES if isinstance(case["input"], str)]
LOGS = [case for case in CASES if case["input_kind"] in ("error_text", "log", "dmesg")]
TABLES = [case for case in CASES if case not in LOGS]
# What ordinary runs print, also of libraries that our cases name.
NOISE = """\
Downloading: 37%|###7      | 148/400 [00:12<00:21, 11.9MB/s]
INFO:root:epoch {n} step {n} loss 0.4312 lr 3.0e-04 112.4 samples/s
[{n}/200] train: loss=1.204 acc=0.71 time=3.1s
2026-05-04 11:02:{s:02d},123 - trainer - INFO - checkpoint saved to runs/a/step{n}.pt
Executing:  42%|████▏     | 8/19 [00:05<00:07,  1.5cell/s]
node-a:210:388 [0] NCCL INFO Channel 00/02 : 0 1
node-a:210:388 [0] NCCL INFO Connected all rings
torch 2.9.1+cu130, CUDA 13.0, cuDNN 91300, driver 580.95.05, 1 GPU
val_loss improved from 0.{n} to 0.31
usb 1-4: new high-speed USB device number {n} using xhci_hcd
GET /api/kernels/8f?{n} 200 OK 3.21ms
DataLoader: 8 workers, pin_memory=True, prefetch_factor=2
WARNING: step {n} skipped: NaN in input file shard-{n}.tar
"""


def mentions(entry: str, text: str) -> bool:
    """Does one of the alternatives of the entry begin a word of the text?"""
    return any(_occurs(word, text) for word in entry.lower().split("|") if word)


def _occurs(word: str, text: str) -> bool:
    text = text.lower()
    for found in re.finditer(re.escape(word), text):
        before, after = text[: found.start()][-1:], text[found.end() :][:1]
        inside = word[0].isalnum() and re.match("[a-z0-9]", before)
        longer = re.match("[a-z0-9]", after) if len(word) <= 3 else None
        number = after.isdigit() and word[-1].isdigit()
        if not inside and not longer and not number:
            return True
    return False


def complaint(case: Case, found: list[doctor.Diagnosis]) -> str:
    """What is wrong with an answer; empty when it is right."""
    wanted = case["expected"]
    if not found or found[0].id != wanted["diagnosis_id"]:
        return f"{[d.id for d in found]}, wanted {wanted['diagnosis_id']}"
    best = found[0]
    if best.severity != wanted["severity"]:
        return f"severity {best.severity}"
    steps = "\n".join(best.steps)
    advice = "\n".join([best.title, best.meaning, steps, *best.avoid])
    missing = [e for e in wanted["must_mention"] if not mentions(e, advice)]
    advised = [e for e in wanted.get("must_not_mention", []) if mentions(e, steps)]
    lacks, advises = [f"lacks {e}" for e in missing], [f"advises {e}" for e in advised]
    return " ".join(lacks + advises)


def noise(lines: int) -> str:
    """Lines of ordinary log."""
    kinds = NOISE.splitlines()
    rows = (kinds[n % len(kinds)].format(n=n, s=n % 60) for n in range(lines))
    return "\n".join(rows) + "\n"


def in_log(text: str) -> str:
    """The text between 2,000 lines of ordinary log."""
    return f"{noise(1300)}{text.rstrip()}\n{noise(700)}"


def coloured(text: str) -> str:
    """Every word with colour codes."""
    return re.sub(r"(\S+)", "\x1b[1;31m\\1\x1b[0m", text)


def stamped(text: str) -> str:
    """Time and rank before every line."""
    lines = text.split("\n")
    return "\n".join(
        f"2026-01-01T00:00:{n % 60:02d}Z [rank0]: {line}"
        for n, line in enumerate(lines)
    )


def ranked(text: str) -> str:
    """A rank before every line."""
    return "\n".join(
        f"[rank{n % 8}]: {line}" for n, line in enumerate(text.split("\n"))
    )


def wrapped(text: str) -> str:
    """Every line cut at 80 characters."""
    pieces = (re.findall(".{1,80}", line) or [""] for line in text.split("\n"))
    return "\n".join(piece for line in pieces for piece in line)


def windows(text: str) -> str:
    """Line ends of Windows."""
    return text.replace("\n", "\r\n")


CHANGES: dict[str, Callable[[str], str]] = {
    "in a log": in_log,
    "coloured": coloured,
    "stamped": stamped,
    "ranked": ranked,
    "wrapped": wrapped,
    "windows": windows,
    "coloured, then wrapped": lambda text: wrapped(coloured(text)),
    "stamped, then wrapped": lambda text: wrapped(stamped(text)),
    "wrapped, then stamped": lambda text: stamped(wrapped(text)),
    "all": lambda text: windows(coloured(wrapped(stamped(in_log(text))))),
}
TABLE_CHANGES: dict[str, Callable[[str], str]] = {
    "in a log": in_log,
    "coloured": lambda text: re.sub("(?m)^(.*)$", "\x1b[36m\\1\x1b[0m", text),
    "windows": windows,
    "all": lambda text: windows(f"\x1b[32m{in_log(text)}\x1b[0m"),
}


def changed(source: Any, change: Callable[[str], str]) -> Any:
    """A text changed, or the values of a snapshot with strangers beside them.

    A value of one line, such as of a file of sysfs, only gets colour and line end.
    """
    if isinstance(source, str):
        return change(source)
    values = {
        key: change(text) if "\n" in text.strip() else f"\x1b[0m{text}\x1b[0m\r\n"
        for key, text in source.items()
    }
    strangers = {"/proc/version": "Linux version 6.8", "cat train.log": noise(50)}
    return {"uptime": noise(20), **values, **strangers}


# Other numbers, names and paths of the same situation.
OTHERS: tuple[tuple[str, Any], ...] = (
    (r"\b(\d+\.\d\d) ([GM]iB)", lambda m: f"{float(m[1]) * 1.25:.2f} {m[2]}"),
    (r"\(PCI:0000:[0-9a-f]{2}:", "(PCI:0000:b7:"),
    (r"\bpid=\d+", "pid=90210"),
    (r"\(pid \d+\)", "(pid 90210)"),
    (r"pid\(s\) [\d, ]+\d", "pid(s) 11, 12"),
    (r"(?<=\.py\", line )\d+", "7"),
    (r"(?<=\.cpp:)\d+|(?<=\.cu:)\d+|(?<=\.cc:)\d+", "4711"),
    (r"/home/user|/opt/conda|/opt/anaconda3|/usr/local", "/srv/some where else"),
    (r"C:\\Users\\user", r"D:\\work"),
    (r"HandsDataset", "TumourSlices"),
    (r"RTX 3090|RTX 3070|RTX 2060|RTX 4090", "RTX 4080 SUPER"),
    (r"RTX 5090", "RTX 5070"),
    (
        r"GTX 970 which is of cuda capability 5\.2",
        "GTX 1080 which is of cuda capability 6.1",
    ),
    (r"Tesla V100-SXM2-32GB", "NVIDIA A100-PCIE-40GB"),
    (r"5\.10\.0-25-cloud-amd64|6\.3\.6-cachyos", "6.8.0-61-generic"),
    (r"gpubox|smc-gpu|node-a", "worker17"),
    (r"gfx1031", "gfx1032"),
    (r"gfx1150", "gfx1151"),
    (r"525\.125\.06", "535.183.01"),
    (r"550\.90\.07", "570.133.07"),
    (r"550\.107\.02", "570.169.01"),
    (r"nvidia-driver-550", "nvidia-driver-570-open"),
    (r"SeqNum=96120", "SeqNum=731"),
    (r"SeqNum=64088", "SeqNum=729"),
    (r"rank 2 and rank 0", "rank 3 and rank 1"),
    (r"found version 10010", "found version 11040"),
    (r"found version 9000", "found version 12020"),
    (r"\(8, 3, 2\)", "(9, 1, 0)"),
    (r"nccl-WU88OE", "nccl-a1B2c3"),
    (r"(\d+\.\d\d) W\b", lambda m: f"{float(m[1]) * 0.8:.2f} W"),
    (r"1515 MHz|780 MHz|405 MHz", "930 MHz"),
    (r"aten::bitwise_and\.Tensor_out", "aten::_linalg_solve_ex.result"),
    (r"2\.3\.1\+cpu", "2.8.0+cpu"),
    (r"cu124 ", "cu126 "),
)


def with_others(text: str) -> str:
    """The text with its numbers, names and paths replaced."""
    for pattern, other in OTHERS:
        text = re.sub(pattern, other, text)
    return text


def main() -> None:
    """Print right answers by kind, and what is wrong with the others."""
    right, total = Counter[str](), Counter[str]()
    for case in CASES:
        wrong = complaint(case, doctor.explain(case["input"]))
        total[case["kind"]] += 1
        right[case["kind"]] += not wrong
        if wrong:
            print(f"{case['id']}: {wrong}")
    for kind in sorted(total):
        print(f"{kind:20s} {right[kind]:3d} of {total[kind]:3d}")
    print(f"{'all':20s} {right.total():3d} of {total.total():3d}")


if __name__ == "__main__":
    main()
