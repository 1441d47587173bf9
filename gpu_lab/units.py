"""Quantity -> text with its unit: the only number formatter of the project.

Sizes are binary (KiB, MiB, GiB); rates are decimal (1 GB/s = 10**9 bytes a second,
1 TFLOPS = 10**12 floating-point operations a second). None is "n/a" everywhere.
"""

from __future__ import annotations

import math
import re

from gpu_lab.records import GpuLabError

NOT_AVAILABLE = "n/a"
LEGEND = (
    "GB/s = 10**9 bytes a second, TFLOPS = 10**12 floating-point operations a second, "
    "MiB = 2**20 bytes"
)

_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZE_STEPS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def number(value: float, digits: int = 3) -> str:
    """Plain decimal text of a number with `digits` significant digits."""
    if value == 0:
        return "0.0"
    text = f"{value:.{digits}g}"
    if "e" in text:  # 1.2e+03 and 5e-05 are for machines, not for readers
        places = (
            0 if abs(value) >= 1 else digits - 1 - math.floor(math.log10(abs(value)))
        )
        text = f"{value:.{places}f}"
    return text if "." in text or abs(float(text)) >= 100 else f"{text}.0"


def seconds(value: float | None) -> str:
    """Time in seconds as text in s, ms, µs or ns."""
    if value is None:
        return NOT_AVAILABLE
    for step, unit in _TIME_STEPS:
        if abs(value) >= step:
            return f"{number(value / step)} {unit}"
    return f"{number(value / 1e-9)} ns"


def about(value: float | None, *, factor: float) -> str:
    """Time in seconds as text with no more digits than an error factor leaves.

    Known to 2.5 % two digits, else one; a leading 1 brings its neighbour along.
    """
    if value is None:
        return NOT_AVAILABLE
    exponent = math.floor(math.log10(value))
    leading_one = value / 10**exponent < 2
    places = exponent - (1 if factor < 1.025 or leading_one else 0)
    rounded = round(value / 10**places) * 10**places
    step, unit = next((s for s in _TIME_STEPS if s[0] <= rounded), _TIME_STEPS[-1])
    return f"{rounded / step:.{max(0, round(math.log10(step)) - places)}f} {unit}"


def milliseconds(value: float | None) -> str:
    """Time in seconds as a bare number of ms, for a column that names the unit.

    There is always a decimal point, so that it reads as a measured number.
    """
    if value is None:
        return NOT_AVAILABLE
    text = number(1e3 * value)
    return text if "." in text else f"{text}.0"


def bandwidth(bytes_per_s: float | None) -> str:
    """Bytes a second as text in GB/s (10**9 bytes a second)."""
    return _with_unit(bytes_per_s, 1e9, "GB/s")


def flops(flop_per_s: float | None) -> str:
    """Floating-point operations a second as text, always in TFLOPS."""
    return _with_unit(flop_per_s, 1e12, "TFLOPS")


def pace(per_s: float | None, what: str) -> str:
    """Things a second as text, such as "123 samples/s"."""
    return _with_unit(per_s, 1, f"{what}s/s")


def power(watts: float | None) -> str:
    """Power in watts as text in W."""
    return _with_unit(watts, 1, "W")


def temperature(celsius: float | None) -> str:
    """Temperature in degrees Celsius as text."""
    return _with_unit(celsius, 1, "°C")


def clock(megahertz: float | None) -> str:
    """Clock in MHz as text."""
    return NOT_AVAILABLE if megahertz is None else f"{megahertz:.0f} MHz"


def ratio(value: float | None, digits: int = 2) -> str:
    """Ratio of two equal quantities as text, such as 1.9x; 3 digits for close ones."""
    if value is None:
        return NOT_AVAILABLE
    places = digits - 1 if value >= 1 else max(digits, 2)
    return f"{value:.{places}f}x"


def percent(fraction: float | None) -> str:
    """Fraction of one as text in percent."""
    return NOT_AVAILABLE if fraction is None else f"{100 * fraction:.1f} %"


def size(size_bytes: int | None) -> str:
    """Chosen size in bytes as text, exact when it is a whole KiB, MiB or GiB."""
    if size_bytes is None:
        return NOT_AVAILABLE
    for step, unit in _SIZE_STEPS:
        if size_bytes >= step and size_bytes % step == 0:
            return f"{size_bytes // step} {unit}"
    return memory(size_bytes)


def memory(size_bytes: float | None) -> str:
    """Measured memory in bytes as text with one decimal, such as 512.3 MiB."""
    if size_bytes is None:
        return NOT_AVAILABLE
    for step, unit in _SIZE_STEPS:
        if size_bytes >= step:
            return f"{size_bytes / step:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def parse_size(text: str) -> float:
    """Bytes of "8GiB", "24 GB" or "512MiB".

    Raises:
        GpuLabError: no such size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mg]i?b)", text.strip().lower())
    if not match or not float(match[1]):
        raise GpuLabError(f"memory {text!r}; wanted a size such as 8GiB")
    steps = {"gib": 2**30, "mib": 2**20, "gb": 10**9, "mb": 10**6}
    return float(match[1]) * steps[match[2]]


def duration(value: float) -> str:
    """Waiting time in seconds as text for people: 45 s, 2 min 05 s."""
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def plain(text: str, most: int = 200) -> str:
    """Text from a file for one line of a page or terminal: no control codes, cut."""
    kept = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return kept if len(kept) <= most else f"{kept[: most - 1]}…"


def _with_unit(value: float | None, step: float, unit: str) -> str:
    return NOT_AVAILABLE if value is None else f"{number(value / step)} {unit}"
