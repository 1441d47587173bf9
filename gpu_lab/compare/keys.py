"""What must be equal before two rows may be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpu_lab.records import GpuLabError, Machine, Measurement, Session


def _everything(_row: Measurement) -> bool:
    return True


def _on_gpu(row: Measurement) -> bool:
    return row.device != "cpu"


def _on_host(row: Measurement) -> bool:
    return row.device == "cpu" or row.name.startswith("host_")


# Key of condition -> how it reads in a machine, and the rows that it touches.
CONDITIONS: dict[
    str, tuple[Callable[[Machine], object], Callable[[Measurement], bool]]
] = {
    "torch": (lambda m: m.versions.get("torch"), _everything),
    "cuda": (lambda m: m.versions.get("cuda"), _on_gpu),
    "hip": (lambda m: m.versions.get("hip"), _on_gpu),
    "driver": (lambda m: m.driver_version, _on_gpu),
    "threads": (lambda m: m.torch_threads, _on_host),
    "power": (lambda m: m.power_source, _everything),
}


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


def conditions(sessions: Iterable[Session]) -> dict[str, list[str]]:
    """Keys of condition that are not the same in all sessions -> the values met."""
    machines = [session.machine for session in sessions]
    met = {
        key: list(dict.fromkeys(str(read(machine)) for machine in machines))
        for key, (read, _touches) in CONDITIONS.items()
    }
    return {key: values for key, values in met.items() if len(values) > 1}


def touching(keys: Iterable[str], row: Measurement) -> list[str]:
    """Those of the keys of condition that can change this row."""
    return [key for key in keys if CONDITIONS[key][1](row)]


def require_keys(allow: Sequence[str]) -> None:
    """Raises GpuLabError for a word that is no key of condition."""
    for key in allow:
        if key not in CONDITIONS:
            raise GpuLabError(
                f"unknown key {key!r}; wanted some of {', '.join(CONDITIONS)}"
            )
