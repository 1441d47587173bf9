"""Patterns, values and formulas of `data/doctor*.toml`, read in a flat text."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from gpu_lab import facts
from gpu_lab.doctor.flat import Flat

Item = dict[str, Any]  # one evidence or fact of the tables
Values = dict[str, Any]
Pattern = str | list[str]
Span = tuple[int, int]
Hit = tuple[str, re.Match[bytes]]  # a pattern and one match of it
GAP = "…"  # between pieces of a pattern: up to 300 characters
REACH = 600  # characters around a literal in which its pattern is tried
MOST_HITS = 300  # tries of one pattern: a log of nothing but errors must end too
_SLOT = re.compile(r"\{(\w+):(\w+)\}")
_NOT_PLAIN = re.compile(r"\{\w+:\w+\}|(?<!\\)\((?:\\.|[^()])*\)|(?<!\\)\[[^]]*\]")
_PLAIN = re.compile(r"(?:[^\\()\[\]{}.*+?|^$ …]|\\[^a-z0-9])+(?![?*+{])")
_MIB = {"k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}
_BUILTINS: Values = {"max": max, "min": min, "len": len, "set": set, "int": int}


@dataclass
class Reading:
    """One match of a pattern: where it is, and the values read there."""

    spans: list[Span]
    values: Values


@functools.cache
def rules() -> dict[str, Item]:
    """All rules by id, in the order of the tables."""
    names = facts.settings("doctor")["tables"]
    return {key: rule for name in names for key, rule in facts.settings(name).items()}


@functools.cache
def literal(pattern: str) -> bytes:
    """Longest plain part of a pattern: where it is missing, no regex is tried."""
    plain = _PLAIN.findall(_NOT_PLAIN.sub(" ", pattern.replace(" ", "").lower()))
    return max(plain, key=len, default="").replace("\\", "").encode()


@functools.cache
def regex(pattern: str) -> re.Pattern[bytes]:
    """The pattern for flat text, its {name:kind} as named groups."""
    known = facts.settings("doctor")

    def group(slot: re.Match[str]) -> str:
        keys = sorted(known["lookup"].get(slot[2], ()), key=len, reverse=True)
        form = "|".join(map(re.escape, keys)) or known["kinds"][slot[2]]
        return f"(?P<{slot[1]}>{form})"

    flat = _SLOT.sub(group, pattern.replace(" ", "").lower())
    return re.compile(flat.replace(GAP, ".{0,300}?").encode())


def value(kind: str, text: str) -> Any:
    """What a text of that kind means. Sizes are in MiB, capabilities as 8.6."""
    if table := facts.settings("doctor")["lookup"].get(kind):
        return table[text]
    if kind == "size":
        number, unit = re.findall(r"[\d.]+|[a-z]+", text)
        return float(number) * _MIB.get(unit[0], 2**-20)
    if kind == "archs":
        return [int(digits) / 10 for digits in re.findall(r"\d+", text)]
    read = {"int": int, "index": int, "number": float}
    return read.get(kind, str)(text)


def evaluate(formula: str, names: Values) -> Any:
    """Result of a `when` or `let`; None where it compares a value that nobody read."""
    known = defaultdict(lambda: None, names)
    try:  # our own data file, not the user's text, says what is evaluated
        return eval(_code(formula), {"__builtins__": {}}, known)
    except (TypeError, LookupError, ValueError):
        return None


@functools.cache
def _code(formula: str) -> CodeType:
    return compile(f"({formula})", "doctor.toml", "eval")


class Reader:
    """Readings of one text. Facts are read once, when the first rule asks for them."""

    def __init__(self, flat: Flat) -> None:
        """Nothing is read yet."""
        self.flat = flat
        self._facts: dict[str, list[Reading]] = {}

    def fact(self, name: str) -> list[Reading]:
        """Readings of a fact, in the order of the text."""
        if name not in self._facts:
            found = facts.settings("doctor")["facts"][name]
            items = found if isinstance(found, list) else [found]
            readings = [r for item in items for r in self._raw(item)]
            self._facts[name] = sorted(readings, key=lambda r: r.spans)
        return self._facts[name]

    def readings(self, item: Item) -> list[Reading]:
        """Readings of one evidence: those for which its formula is true."""
        raw = self.fact(item["fact"]) if "fact" in item else self._raw(item)
        needed = [self.fact(name) for name in item.get("with", ()) if raw]
        if not all(needed):
            return []
        pools = [*needed, *(self.fact(name) for name in item.get("maybe", ()) if raw)]
        every = [r.values for pool in (raw, *pools) for r in pool]
        known: Values = {
            **_BUILTINS,
            "count": lambda name: len(self.fact(name)),
            "values": lambda name: [v[name] for v in every if name in v],
        }
        shared = {k: v for pool in pools for r in pool[:1] for k, v in r.values.items()}
        kept, before = [], Reading([], {})
        for reading in raw:
            values = shared | reading.values
            names = known | values | {"before": lambda name, b=before: b.values[name]}
            if evaluate(item.get("when", "1"), names):
                kept.append(Reading(reading.spans, values))
            before = reading
        return kept

    def _raw(self, item: Item) -> list[Reading]:
        found = [[hit] for p in item.get("any", ()) for hit in self._find(p)]
        found += self._together(item["all"]) if "all" in item else []
        return [_reading(hits, item.get("let", {})) for hits in found]

    def _together(self, parts: list[str]) -> Iterator[list[Hit]]:
        """Parts in one paragraph; a leading ? makes a part optional."""
        end = 0
        for _, first in self._find(parts[0]):
            if first.start() < end:
                continue  # the same paragraph again
            within = self.flat.paragraph(first.start())
            end = within[1]
            hits = [next(self._find(p.lstrip("?"), within), None) for p in parts]
            if all(hit or p[0] == "?" for p, hit in zip(parts, hits, strict=True)):
                yield [hit for hit in hits if hit]

    def _find(self, pattern: Pattern, within: Span | None = None) -> Iterator[Hit]:
        """Matches of a pattern; of a list, matches that follow each other closely."""
        joined = pattern if isinstance(pattern, str) else GAP.join(pattern)
        needle, text = literal(joined), self.flat.text
        low, high = within or (0, len(text))
        at = low
        for _ in range(MOST_HITS):
            at = text.find(needle, at, high)
            if at < 0:
                return
            around = max(low, at - REACH), min(high, at + REACH)
            match = regex(joined).search(text, *around)
            if match:
                yield joined, match
            low = at = max(at + len(needle), match.end() if match else 0)


def _reading(hits: list[Hit], let: dict[str, str]) -> Reading:
    values: Values = {}
    for pattern, match in hits:
        kinds = dict(_SLOT.findall(pattern))
        for name, text in match.groupdict().items():
            values[name] = value(kinds[name], text.decode(errors="replace"))
    for name, text in let.items():
        values[name] = evaluate(text, _BUILTINS | values)
    return Reading([match.span() for _, match in hits], values)
