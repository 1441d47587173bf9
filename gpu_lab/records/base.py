"""What all nouns share: where a number comes from, errors, plain forms."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

SCHEMA = "1.1"
FORMAT = "gpu_lab.session"
NOISY = 0.10  # IQR / median above this: the measurement calls itself noisy
Settings = dict[str, str | int | float | bool]


class GpuLabError(Exception):
    """What was wanted, what was found, what to try: one line for the user."""


class DeviceLost(GpuLabError):
    """The device vanished while it was in use (typical: a pulled eGPU cable)."""


def first_line(error: object) -> str:
    """First line of what an error says: all that fits into one line for the user."""
    return (str(error).strip() or "no text").splitlines()[0]


class Source(StrEnum):
    """Where a number comes from. The words are never mixed."""

    MEASURED = "MEASURED"
    RECORDED = "RECORDED"
    CITED = "CITED"
    SIMULATED = "SIMULATED"
    NOT_MEASURABLE = "NOT MEASURABLE HERE"


def plain(value: Any) -> Any:
    """Records as plain dicts, lists and texts, ready for JSON."""
    if hasattr(value, "__dataclass_fields__"):
        return {
            name: plain(getattr(value, name)) for name in value.__dataclass_fields__
        }
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, StrEnum) else value
