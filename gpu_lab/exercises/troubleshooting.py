"""Exercises of notebook 08: six cases, four messages; texts in `data/clinic.toml`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from gpu_lab import facts
from gpu_lab.doctor import explain
from gpu_lab.exercises.frame import Exercise, Kind, NotYet, require_keys
from gpu_lab.exercises.start_here import matmul_ratio


def texts(exam: str) -> str:
    """The texts of one exam, "cases" or "messages", each below its letter."""
    stored = _stored(exam)["texts"].items()
    return "\n".join(f"--- {letter}\n{item['text']}" for letter, item in stored)


def words(exam: str) -> list[str]:
    """What may be answered: the right words among the usual advice."""
    return sorted([*_stored(exam)["words"].values(), *_stored(exam)["advice"]])


def right(exam: str) -> dict[str, str]:
    """Letter -> word of the doctor's first diagnosis."""
    stored = _stored(exam)
    items = stored["texts"].items()
    return {k: stored["words"][explain(item["text"])[0].id] for k, item in items}


def check(answer: Any, *, exam: str) -> str:
    """Compare {"a": "driver", …}; usual advice and wrong words have their own hints."""
    stored, wanted = _stored(exam), right(exam)
    require_keys(answer, wanted)
    for letter, word in wanted.items():
        given = answer[letter]
        if given not in words(exam):
            raise NotYet(f"{letter}: wanted one of {', '.join(words(exam))}")
        if given != word:
            own = stored["texts"][letter]["hint"]
            raise NotYet(f"{letter}: {stored['advice'].get(given, own)}")
    return str(stored["praise"])


def _stored(exam: str) -> dict[str, Any]:
    return dict(facts.settings("clinic")["exam"][exam])


kept_bytes = replace(matmul_ratio, name="kept_bytes")
six_cases, four_messages = (
    Exercise(name, Kind.VALUE, partial(check, exam=exam), partial(right, exam))
    for name, exam in (("six_cases", "cases"), ("four_messages", "messages"))
)
EXERCISES = (kept_bytes, six_cases, four_messages)
