"""What must be equal before two rows may be compared."""

from __future__ import annotations

from gpu_lab.records import Machine, Measurement, Session

VERSIONS = ("torch", "cuda", "hip")


def differences(reference: Measurement, candidate: Measurement) -> list[str]:
    """Keys of method that differ, as texts: "n: 512, 1024". Empty: comparable.

    Settings, method version, unit of work and the clock that timed.
    """
    pairs = {
        "method version": (reference.method_version, candidate.method_version),
        "unit": (reference.work_unit, candidate.work_unit),
        "timed by the device": (
            reference.decided_by == "events",
            candidate.decided_by == "events",
        ),
    }
    names = {**reference.settings, **candidate.settings}
    for name in names:
        pairs[name] = (reference.settings.get(name), candidate.settings.get(name))
    return [f"{k}: {a}, {b}" for k, (a, b) in pairs.items() if a != b]


def conditions(reference: Session, candidate: Session) -> list[str]:
    """Keys of condition that differ: versions, driver, threads, power source."""
    first, second = _conditions(reference.machine), _conditions(candidate.machine)
    return [f"{k}: {first[k]}, {second[k]}" for k in first if first[k] != second[k]]


def _conditions(machine: Machine) -> dict[str, object]:
    return {
        **{name: machine.versions.get(name) for name in VERSIONS},
        "driver": machine.driver_version,
        "threads": machine.torch_threads,
        "power": machine.power_source,
    }
