"""Run folders with known truth, for tests of comparisons."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpu_lab import store
from gpu_lab.records import (
    Device,
    DeviceState,
    Machine,
    Measurement,
    Run,
    Session,
    Source,
)

MACHINE = Machine(
    system="Linux",
    python="3.11",
    cpu_name="some processor",
    cpu_cores=2,
    cpu_threads=2,
    memory_bytes=2**33,
    torch_threads=2,
    driver_version="580.1",
    versions={"torch": "2.14.1", "cuda": "13.0"},
    devices=(
        Device(backend="cpu", name="some processor"),
        Device(backend="cuda", name="some card"),
    ),
)
TIMES_S = {"matmul_fp32": 0.02, "matmul_fp16": 0.01, "host_copy": 0.05, "h2d": 0.005}
ROUNDS = 40


def measurement(
    name: str,
    time_s: float,
    draw: random.Random,
    *,
    noise: float = 0.005,
    rounds: int = ROUNDS,
    **fields: object,
) -> Measurement:
    """One row whose rounds scatter around a known time."""
    times_s = tuple(time_s * math.exp(draw.gauss(0, noise)) for _ in range(rounds))
    plain = Measurement(
        name=name,
        device="cpu",
        source=Source.MEASURED,
        times_s=times_s,
        settings={"n": 8},
    )
    return replace(plain, **fields)


def session(
    scale: Mapping[str, float],
    draw: random.Random,
    *,
    between: float = 0.01,
    machine: Machine = MACHINE,
    rows: tuple[str, ...] = tuple(TIMES_S),
    **fields: object,
) -> Session:
    """A session of the core suite; each row has its own luck in each session."""
    measurements = tuple(
        measurement(
            name,
            TIMES_S.get(name, 0.01)
            * scale.get(name, 1.0)
            * math.exp(draw.gauss(0, between)),
            draw,
            **fields,
        )
        for name in rows
    )
    return Session(
        suite="core",
        created="2026-12-01T00:00:00+00:00",
        profile="quick",
        device=str(measurements[0].device),
        seed=0,
        machine=machine,
        measurements=measurements,
        complete=True,
    )


def run(
    seed: int,
    *,
    sessions: int = 5,
    scale: Mapping[str, float] | None = None,
    name: str = "run",
    **fields: object,
) -> Run:
    """A run of so many sessions; `scale` multiplies the time of a row."""
    draw = random.Random(seed)
    made = tuple(session(scale or {}, draw, **fields) for _ in range(sessions))
    return Run(name=name, sessions=made)


def on_gpu(clock_mhz: int) -> dict[str, object]:
    """Fields of rows that a device timed itself, at a clock."""
    states = (DeviceState(clock_sm_mhz=clock_mhz),) * ROUNDS
    return {"device": "cuda:0", "decided_by": "events", "states": states}


def keep(made: Run, folder: Path) -> Path:
    """The run as a run folder."""
    for number, one in enumerate(made.sessions, 1):
        store.save(one, folder / "sessions" / f"{one.suite}-{number}.json")
    return folder
