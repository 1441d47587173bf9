"""`python -m peers [--full] [--only C1,C5]`: run what is not on disk yet, print all."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

from gpu_lab import __version__, hardware
from peers import (
    absolute,
    agreement,
    allreduce,
    exact,
    honesty,
    loader,
    memory,
    monitor,
    pairs,
    repeat,
    report,
    simulated,
    speed,
)

# Name -> experiment; those that need a quiet machine most come first.
EXPERIMENTS = {
    "C5 C6 agreement": agreement,
    "C7 all-reduce": allreduce,
    "C1 C2 C3 C4 pairs": pairs,
    "C3b absolute": absolute,
    "C8 C10 speed": speed,
    "C9 honesty": honesty,
    "C12 monitor": monitor,
    "C15 exact": exact,
    "C17 simulated": simulated,
    "L1 loader": loader,
}
IN_FULL = {"F1 F2 fit": memory}
ONLY_ASKED = {"C16 repeat": repeat}  # half an hour
ROOT = Path(__file__).resolve().parents[2]
QUIET_LOAD = 0.5


def code() -> str:
    """Digest of what is measured and of what measures: old figures are not reused."""
    digest = hashlib.sha256()
    rooms = ("timing", "bench", "compare", "fit", "monitor")
    files = [f for room in rooms for f in (ROOT / "gpu_lab" / room).rglob("*.py")]
    for file in sorted([*files, *Path(__file__).parent.glob("*.[pc]*")]):
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Run, keep, print; 1 when a goal is missed, so that a script can tell."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the whole list")
    parser.add_argument("--only", default="", help="goals, such as C1,C5")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json")
    args = parser.parse_args()
    machine = hardware.detect()
    key = {
        "full": args.full,
        "code": code(),
        "gpu_lab": __version__,
        "processor": machine.cpu_name,
        "threads": machine.cpu_threads,
        "torch": machine.versions.get("torch"),
    }
    out = args.out.with_stem(args.out.stem + ("-full" if args.full else ""))
    store, progress = report.Store(out, key=key), report.Progress()
    load = os.getloadavg()[0]
    print(f"{machine.cpu_name}, {machine.cpu_threads} threads, torch {key['torch']}")
    if load > QUIET_LOAD:
        print(f"load {load:.1f}: this machine is not idle, and the figures say so")
    found = []
    wanted = set(args.only.split(",")) if args.only else set()
    chosen = EXPERIMENTS | (IN_FULL if args.full or wanted else {})
    chosen |= ONLY_ASKED if wanted else {}
    for name, experiment in chosen.items():
        if wanted and not wanted & set(name.split()):
            continue
        results = store.done(name)
        if results is None:
            start = time.perf_counter()
            raw = experiment.run(args.full, progress)
            results = experiment.results(raw)
            store.keep(name, raw, results, time.perf_counter() - start)
        print(report.table(results), flush=True)
        found += results
    missed = [r.id for r in found if r.met is False]
    print(f"{len(found)} goals, missed: {', '.join(missed) or 'none'}; {out.name}")
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped by Ctrl-C; what is done is kept", file=sys.stderr)
        sys.exit(130)
    except subprocess.CalledProcessError as error:
        print(f"a peer failed: {error.cmd[:4]}: {error.stderr}", file=sys.stderr)
        sys.exit(2)
