"""The runner: core suite in fresh processes, then every notebook, into one folder.

    runs/<time>/  run.json  sessions/*.json  notebooks/*.ipynb  report.html

Everything that can be wrong with the wish is said before anything is executed.
Running again with the same folder goes on where it ended.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tqdm import tqdm as Progress

from gpu_lab import records, show, store, units
from gpu_lab.course import engine, fresh, manifest, notebooks, report
from gpu_lab.course.manifest import FAILED, INTERRUPTED, OK, Manifest, Step
from gpu_lab.course.wish import Wish, check, is_run
from gpu_lab.records import GpuLabError

SESSION_UNITS = 10  # of the progress bar; a cell is one
CORE, NOTEBOOK = "core session", "notebook"


def run(args: argparse.Namespace) -> int:
    """Check the wish, do all steps, write the report; the exit code.

    Raises:
        GpuLabError: the wish cannot be met; nothing was executed or overwritten.
    """
    with _interruptible():
        wish = check(args)
        done = _do_steps(wish, start_manifest(wish))
        whole = finish(wish, done)
    if any(step.state == INTERRUPTED for step in done.steps):
        return 130
    return 1 if done.failed or not whole else 0


def start_manifest(wish: Wish) -> Manifest:
    """All steps, waiting; those that an earlier start finished stay done.

    Raises:
        GpuLabError: the folder holds a run with other settings.
    """
    start = Manifest(
        device=wish.device,
        profile=wish.profile,
        seed=wish.seed,
        created=store.now(),
        edition=wish.edition,
        pid=os.getpid(),
        time=store.now(),
    )
    for number in range(1, wish.sessions + 1):
        start = start.with_step(Step(name=f"core {number}", kind=CORE))
    for name in wish.notebooks:
        start = start.with_step(Step(name=name, kind=NOTEBOOK))
    if is_run(wish.out):
        start = _go_on(manifest.load(wish.out), start, wish.out)
    manifest.save(start, wish.out)
    return start


def finish(wish: Wish, done: Manifest) -> bool:
    """Write the report, print the summary; False when something was lost."""
    path: Path | None = None
    lost = [*done.lost, *store.readable(wish.out)[1]]
    try:
        path = report.write(wish.out, done)
        manifest.save(replace(done, pid=None), wish.out)
    except OSError as error:
        lost.append(f"{error.filename or report.NAME}: {error.strerror}")
    for text in lost:
        print(f"lost: {text}", file=sys.stderr)
    print(report.summary(wish.out, done, path))
    return not lost


def _do_steps(wish: Wish, plan: Manifest) -> Manifest:
    # The bar first: the environment switches off those of the children.
    with _bar(wish, plan) as bar, engine.environment(_inherited(wish)):
        for step in plan.steps:
            if step.state == OK:
                bar.update(_size(step, wish))
                continue
            bar.set_description(step.name)
            done = _one_step(step, wish, bar)
            plan = _keep(plan.with_step(done), wish)
            _say(done, bar)
            if done.state == INTERRUPTED:
                break
    return plan


def _one_step(step: Step, wish: Wish, bar: Progress[NoReturn]) -> Step:
    start, before = time.monotonic(), bar.n
    try:
        done = _core(step, wish) if step.kind == CORE else _notebook(step, wish, bar)
    except KeyboardInterrupt:
        done = replace(step, state=INTERRUPTED, cause="stopped by Ctrl-C")
    except OSError as error:
        done = replace(step, state=FAILED, cause=f"could not write: {error.strerror}")
    bar.update(before + _size(step, wish) - bar.n)
    return replace(done, seconds=round(time.monotonic() - start, 1))


def _core(step: Step, wish: Wish) -> Step:
    """One session of the core suite in a fresh process."""
    cause = fresh.session(
        device=wish.device, profile=wish.profile, seed=wish.seed, out=wish.out
    )
    return replace(step, state=FAILED if cause else OK, cause=cause)


def _notebook(step: Step, wish: Wish, bar: Progress[NoReturn]) -> Step:
    start = bar.n

    def on_cell(cell: int, cells: int) -> None:
        bar.set_description(f"{step.name} cell {cell} of {cells}")
        bar.update(start + cell - 1 - bar.n)

    outcome = engine.execute(
        wish.notebooks[step.name],
        wish.out / "notebooks" / f"{step.name}.ipynb",
        parameters={"device": wish.device, "profile": wish.profile, "seed": wish.seed},
        limits=engine.LIMITS[wish.profile],
        on_cell=on_cell,
    )
    return replace(
        step,
        state=FAILED if outcome.cause else OK,
        cell=outcome.cell,
        cells=outcome.cells,
        line=outcome.line,
        cause=outcome.cause,
    )


def _keep(plan: Manifest, wish: Wish) -> Manifest:
    """Save run.json; if the disk is full, remember in memory what was lost."""
    try:
        manifest.save(plan, wish.out)
    except OSError as error:
        text = f"{manifest.NAME}: {error.strerror}"
        return replace(plan, lost=tuple(dict.fromkeys((*plan.lost, text))))
    return plan


def _go_on(old: Manifest, fresh: Manifest, out: Path) -> Manifest:
    same = ("device", "profile", "seed", "edition")
    for name in same:
        if getattr(old, name) != getattr(fresh, name):
            raise GpuLabError(
                f"{out} holds a run with {name} {getattr(old, name)!r}, wanted "
                f"{getattr(fresh, name)!r}; choose another --out"
            )
    if old.pid != fresh.pid and store.still_runs(records.plain(old)):
        raise GpuLabError(
            f"another run (process {old.pid}) writes into {out}; choose another --out"
        )
    finished = {s.name: s for s in old.steps if s.state == OK}
    steps = tuple(finished.get(s.name, s) for s in fresh.steps)
    kept = tuple(s for n, s in finished.items() if n not in {f.name for f in steps})
    return replace(fresh, created=old.created, steps=kept + steps)


def _size(step: Step, wish: Wish) -> int:
    if step.kind == CORE:
        return SESSION_UNITS
    path = wish.notebooks.get(step.name)
    return len(notebooks.read(path).cells) if path else 0


def _bar(wish: Wish, plan: Manifest) -> Progress[NoReturn]:
    total = sum(_size(step, wish) for step in plan.steps)
    return Progress(total=total, disable=show.quiet(), leave=False, bar_format=BAR)


BAR = "{desc} {percentage:3.0f}% |{bar}| {elapsed}, about {remaining} left"


def _say(step: Step, bar: Progress[NoReturn]) -> None:
    took = units.duration(step.seconds)
    cause = f"  {step.where}{step.cause}" if step.cause else ""
    bar.write(f"{step.state:11s} {step.name} ({took}){cause}")


def _inherited(wish: Wish) -> dict[str, str]:
    """What kernels and sessions inherit: where to write, what to skip, no bars."""
    return {
        store.OUT_VARIABLE: str(wish.out),
        store.ROOT_VARIABLE: str(wish.root),
        store.SKIP_VARIABLE: ",".join(wish.skip),
        show.PROGRESS_VARIABLE: "0",
    }


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C and a polite kill both end the run in order, even in the background."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
