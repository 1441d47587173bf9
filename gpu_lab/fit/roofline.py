"""The roofline: FLOP a second that memory and arithmetic allow (Williams et al. 2009).

bound = min(peak, memory bandwidth x FLOP per byte), CACM 52 (4), page 65.
"""

from __future__ import annotations

from gpu_lab.records import Ceiling, Measurement

TRIAD_FLOP, TRIAD_BYTES = 2, 12  # a = b + s c: one multiply and add; 3 float32 numbers


def intensity(row: Measurement) -> float | None:
    """FLOP per byte of memory; None for rows that only move bytes.

    A product counts its three float32 matrices once each: 2 n**3 / 12 n**2 = n / 6.
    """
    if row.work_unit == "FLOP":
        return float(row.settings["n"]) / 6
    return TRIAD_FLOP / TRIAD_BYTES if "triad" in row.name else None


def flop_per_s(row: Measurement) -> float | None:
    """FLOP a second of a row that computes; None without a time or arithmetic."""
    at = intensity(row)
    if not at or not row.rate:
        return None
    return row.rate if row.work_unit == "FLOP" else at * row.rate


def bound(at: float, *, memory: Ceiling, peak: Ceiling) -> Ceiling:
    """The lower of both ceilings at that many FLOP per byte, in FLOP a second."""
    if not memory.value or not peak.value:
        return peak
    slope = memory.value * at
    if slope < peak.value:
        how = f"memory: {memory.how}"
        return Ceiling(value=slope, kind=memory.kind, how=how)
    return Ceiling(value=peak.value, kind=peak.kind, how=f"arithmetic: {peak.how}")
