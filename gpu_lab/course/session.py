"""One session of the core suite, in a process of its own.

Fresh processes differ in ways that repeats inside one process never show (memory
layout, caches, clocks), so a run folder holds several of these.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpu_lab import bench, hardware, show, store
from gpu_lab.records import CORE_SUITE, GpuLabError, Measurement, Session

EXIT_INTERRUPTED = 130


def measure_core(
    *,
    device: str,
    profile: str,
    seed: int,
    folder: Path | None = None,
    names: tuple[str, ...] = (),
) -> Session:
    """Measure the core suite here and store each row as it comes.

    Args:
        folder: run folder; by default the one of this process.
        names: rows wanted; () = all eight.

    Raises:
        GpuLabError: unknown row, or no such device.
    """
    unknown = [name for name in names if name not in bench.CORE]
    if unknown:
        rows = ", ".join(bench.CORE)
        raise GpuLabError(f"no benchmark {unknown[0]!r}; wanted some of: {rows}")
    machine = hardware.detect()
    chosen = hardware.choose(machine, device)
    lab = store.open_session(
        CORE_SUITE, machine, chosen, profile=profile, seed=seed, folder=folder
    )
    suite = [
        r
        for r in bench.core_suite(device=chosen, seed=seed)
        if not names or r[0] in names
    ]
    for name, call in show.progress(suite, what=CORE_SUITE):
        lab.measure(name, call)
    lab.close()
    return lab.session


def failed(session: Session) -> list[Measurement]:
    """Rows whose experiment raised, unlike those that this machine cannot do."""
    return [m for m in session.measurements if m.reason.startswith(store.FAILED)]


def main(argv: list[str] | None = None) -> int:
    """Program form: one line and 2 when it could not start, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m gpu_lab.course.session")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args(argv)
    try:
        session = measure_core(
            device=args.device,
            profile=args.profile,
            seed=args.seed,
            folder=args.out,
            names=tuple(args.names),
        )
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (GpuLabError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    for row in failed(session):
        print(f"{row.name} {row.reason}", file=sys.stderr)
    return 1 if failed(session) else 0


if __name__ == "__main__":
    sys.exit(main())
