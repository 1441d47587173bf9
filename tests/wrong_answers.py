"""Wrong answers that learners really give: each must be NOT YET with its own hint.

exercise -> {name of the mistake: (answer, words of its hint)}
"""

from typing import Any

from gpu_lab.exercises import start_here


def _shifted(by: int) -> dict[str, int]:
    return {name: rung + by for name, rung in start_here.right_rungs().items()}


def _from_the_top() -> dict[str, int]:
    return {name: 7 - rung for name, rung in start_here.right_rungs().items()}


def wrong_answers() -> dict[str, dict[str, tuple[Any, str]]]:
    """All wrong answers, made when asked: some read data files."""
    return {
        "first_rungs": {
            "named the last rung that holds": (_shifted(-1), "last rungs that hold"),
            "counted from the top": (_from_the_top(), "count from the bottom"),
            "always blamed the driver": (
                dict.fromkeys("abc", 2),
                "not every trouble is the driver",
            ),
            "always reinstalled torch": (
                dict.fromkeys("abc", 3),
                "often a consequence",
            ),
            "one machine left open": ({**_shifted(0), "c": ...}, "still open: c"),
            "wrote names, not numbers": (
                dict.fromkeys("abc", "driver"),
                "whole number from 1 to 6",
            ),
        },
    }


MALFORMED_GUESSES = {
    "no unit": ("40", "no unit"),
    "a bare number": (40, "no unit"),
    "wrong unit": ("40 ms", "the unit is"),
    "wrong sign": ("-40x", "wrong sign"),
    "zero": ("0x", "cannot be"),
    "a decimal comma": ("60,5x", "decimal point"),
    "no number": ("many", "not a number"),
    "infinite": ("1e999x", "too large"),
    "two dots": ("1.2.3x", "not a number"),
}
