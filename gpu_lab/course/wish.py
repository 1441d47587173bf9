"""What the user asked the runner for, checked before anything is executed."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from gpu_lab import hardware, store
from gpu_lab.course import engine, manifest, notebooks
from gpu_lab.records import GpuLabError

PROFILES = tuple(engine.LIMITS)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asked for, checked: nothing in it can fail for its form."""

    notebooks: dict[str, Path]
    device: str
    profile: str
    seed: int
    sessions: int
    out: Path
    root: Path
    edition: str = "student"
    skip: tuple[str, ...] = field(default_factory=tuple)


def check(args: argparse.Namespace) -> Wish:
    """The wish as far as it can be checked without executing anything."""
    if args.profile not in PROFILES:
        raise GpuLabError(
            f"unknown profile {args.profile!r}; wanted {', '.join(PROFILES)}"
        )
    if args.sessions < 0:
        raise GpuLabError(f"--sessions {args.sessions}: wanted 0 or more")
    found = notebooks.paths(tuple(args.names), edition=args.edition)
    for path in found.values():
        notebooks.require_parameters(path)
    device = hardware.choose(hardware.detect(), args.device).label
    out = (args.out or store.runs_root() / _stamp()).absolute()
    require_writable(out)
    store.load_folder(out)
    root = _state_folder(out)
    skip = tuple(filter(None, args.skip.split(",")))
    return Wish(
        notebooks=found,
        device=device,
        profile=args.profile,
        seed=args.seed,
        sessions=args.sessions,
        out=out,
        root=root,
        edition=args.edition,
        skip=skip + offer_to_skip(root, known=skip),
    )


def require_writable(folder: Path) -> None:
    """Raise GpuLabError unless files can be made in a folder that is new or a run."""
    if folder.is_dir() and any(folder.iterdir()) and not is_run(folder):
        raise GpuLabError(
            f"{folder} is not empty and not a run folder; wanted a new name for --out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise GpuLabError(
            f"cannot write into {folder}: {error.strerror}; try --out with another one"
        ) from error


def offer_to_skip(root: Path, *, known: tuple[str, ...]) -> tuple[str, ...]:
    """Name the experiments that a crash interrupted; leave them out if so wished."""
    journal = store.Journal(root)
    names = tuple(name for name in journal.unfinished() if name not in known)
    if not names:
        return ()
    print(f"The last run stopped inside {', '.join(names)}.", file=sys.stderr)
    if not sys.stdin.isatty():
        print(f"To leave it out: gpu-lab run --skip {','.join(names)}", file=sys.stderr)
        return ()
    wanted = input("Skip it this time? [y/N] ").strip().lower() == "y"
    journal.settle()
    return names if wanted else ()


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, whatever its state."""
    return (folder / manifest.NAME).is_file()


def _state_folder(out: Path) -> Path:
    """Where the journal and the stated dock are kept over all runs."""
    root = store.runs_root().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return out
    return root if os.access(root, os.W_OK) else out


def _stamp() -> str:
    return datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
