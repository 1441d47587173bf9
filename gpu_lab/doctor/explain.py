"""Diagnoses of a text: causes before consequences, with what to do and what not."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_lab import facts
from gpu_lab.doctor.flat import Flat, of_map
from gpu_lab.doctor.rules import Item, Reader, Reading, rules
from gpu_lab.records import GpuLabError

SEVERITIES = ("critical", "error", "warning", "info")
MOST_EVIDENCE = 5
_PART = re.compile(r"\[([^\[\]]*\{[^\[\]]*)\]")  # left out when a value is unknown


@dataclass(frozen=True)
class Diagnosis:
    """One thing that is wrong: what it means, what helps, what does not."""

    id: str
    severity: str
    title: str
    meaning: str
    steps: tuple[str, ...]
    avoid: tuple[str, ...]
    evidence: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Explanation:
    """Diagnoses of one text, best first; a note where there are none."""

    diagnoses: tuple[Diagnosis, ...]
    note: str = ""

    def __repr__(self) -> str:
        """Text for people."""
        return "\n\n".join([*map(_paragraph, self.diagnoses), self.note]).strip()


def explain(source: str | Mapping[str, str]) -> list[Diagnosis]:
    """Diagnoses of a text, a log, or a snapshot {path or command: text}; best first."""
    return list(examine(source).diagnoses)


def examine(source: str | Mapping[str, str]) -> Explanation:
    """The same with a note: which rung to check when nothing known was found."""
    text = source if isinstance(source, str) else of_map(source)
    reader = Reader(Flat(text))
    found: dict[str, list[tuple[Item, Reading]]] = {}
    for name, rule in rules().items():
        pairs = [(i, r) for i in rule["evidence"] for r in reader.readings(i)]
        if pairs:
            found[name] = pairs
    best = sorted(found, key=lambda name: _order(name, found))
    diagnoses = tuple(_diagnosis(name, found[name], reader.flat) for name in best)
    return Explanation(diagnoses, "" if diagnoses else _nearest_rung(reader.flat))


def examine_file(name: str) -> Explanation:
    """The same for a file: a text, a log, or a snapshot as JSON map; - is stdin.

    Raises:
        GpuLabError: it cannot be read, or is no text in UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        text = data.decode("utf-8-sig")
        if "\0" in text:
            raise ValueError("zero bytes, so it is binary")
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or error
        raise GpuLabError(
            f"{name}: wanted a text, log or snapshot in UTF-8; found: {found}; "
            "try: the path of a text file, or iconv -c -t UTF-8"
        ) from error
    entries = None
    with suppress(ValueError, RecursionError):  # most texts are no JSON
        entries = json.loads(text)
        if isinstance(entries, dict):  # a report of `gpu-lab doctor` holds a snapshot
            entries = entries.get("snapshot", entries)
    if isinstance(entries, dict) and set(map(type, entries.values())) <= {str}:
        return examine(entries)
    return examine(text)


def explain_last() -> Explanation:
    """Explanation of the exception just raised: for the next cell of a notebook."""
    import traceback

    error = getattr(sys, "last_value", None) or getattr(sys, "last_exc", None)
    if error is None:
        return Explanation((), "No exception yet: run the cell that fails, then this.")
    return examine("".join(traceback.format_exception(error)))


def _order(name: str, found: Mapping[str, Any]) -> tuple[int, int, int]:
    """Causes first, then the more severe, then what comes first in the text."""
    severity = SEVERITIES.index(rules()[name]["severity"])
    return _depth(name, found), severity, min(r.spans[0][0] for _, r in found[name])


def _depth(name: str, found: Mapping[str, Any]) -> int:
    causes = [c for c in rules()[name].get("consequence_of", ()) if c in found]
    return max((1 + _depth(cause, found) for cause in causes), default=0)


def _diagnosis(name: str, pairs: list[tuple[Item, Reading]], flat: Flat) -> Diagnosis:
    rule = rules()[name]
    values = {
        k: v for _, r in pairs[::-1] for k, v in r.values.items() if v is not None
    }
    notes = dict.fromkeys(item["note"] for item, _ in pairs if "note" in item)
    spans = sorted(span for _, reading in pairs for span in reading.spans)
    evidence = dict.fromkeys(flat.evidence(*span) for span in spans)
    return Diagnosis(
        name,
        rule["severity"],
        _fill(rule["title"], values),
        _fill(" ".join([rule["meaning"], *notes]), values),
        tuple(_fill(step, values) for step in rule["steps"]),
        tuple(rule["avoid"]),
        tuple(evidence)[:MOST_EVIDENCE],
        rule["source"],
    )


def _fill(text: str, values: Mapping[str, Any]) -> str:
    """Text with its values; a part in brackets is left out when one is unknown."""

    def part(found: re.Match[str]) -> str:
        try:
            return found[1].format_map(values)
        except KeyError:
            return ""

    return _PART.sub(part, text)


def _nearest_rung(flat: Flat) -> str:
    known = facts.settings("doctor")
    words: dict[str, list[str]] = known["rungs"]

    def count(rung: str) -> int:
        return sum(flat.text.count(word.encode()) for word in words[rung])

    rung = facts.settings("ladder")[max(words, key=count)]
    return str(known["unknown"].format(**rung))


def _paragraph(found: Diagnosis) -> str:
    steps = [f"  {number}. {step}" for number, step in enumerate(found.steps, 1)]
    lines = [f"{found.severity.upper()}: {found.title} ({found.id})", found.meaning]
    lines += ["Do:", *steps, "Do not:", *(f"  - {text}" for text in found.avoid)]
    seen = [f"  {text}" for text in found.evidence]
    return "\n".join([*lines, "Seen:", *seen, f"Source: {found.source}"])
