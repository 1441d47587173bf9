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
Pattern = str | list[str]
Values = dict[str, Any]
Hit = list[tuple[str, re.Match[bytes]]]  # pieces of a pattern with their matches
REACH = 200  # characters around a literal in which its pattern is tried
MOST_HITS = 300  # tries of one pattern: a log of nothing but errors must end too
_SLOT = re.compile(r"\{(\w+):(\w+)\}")
_NOT_PLAIN = re.compile(r"\{\w+:\w+\}|(?<!\\)\((?:\\.|[^()])*\)|(?<!\\)\[[^]]*\]")
_PLAIN = re.compile(r"(?:[^\\()\[\]{}.*+?|^$ ]|\\[^a-z0-9])+(?![?*+{])")
_MIB = {"k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}
_BUILTINS = {"max": max, "min": min, "len": len, "set": set, "int": int}


@dataclass
class Reading:
    """One match of a pattern: where it is, and the values read there."""

    spans: list[tuple[int, int]]
    values: dict[str, Any]


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

    def group(slot: re.Match[str]) -> str:
        return f"(?P<{slot[1]}>{_kind(slot[2])})"

    return re.compile(_SLOT.sub(group, pattern.replace(" ", "").lower()).encode())


def _kind(name: str) -> str:
    known = facts.settings("doctor")
    keys = known["lookup"].get(name)
    if keys is None:
        return str(known["kinds"][name])
    return "|".join(re.escape(k) for k in sorted(keys, key=len, reverse=True))


def value(kind: str, text: str) -> Any:
    """What a text of that kind means: sizes in MiB, the others as they are written."""
    table = facts.settings("doctor")["lookup"].get(kind)
    if table is not None:
        return table[text]
    if kind == "size":
        number, unit = re.findall(r"[\d.]+|[a-z]+", text)
        return float(number) * _MIB.get(unit[0], 2**-20)
    if kind == "archs":
        return [int(digits) / 10 for digits in re.findall(r"\d+", text)]
    if kind == "cudacode":
        return f"{int(text) // 1000}.{int(text) % 1000 // 10}"
    read = {"number": float, "int": int, "index": int, "sm": lambda t: int(t) / 10}
    return read.get(kind, str)(text) if kind != "hex" else int(text, 16)


@functools.cache
def formula(text: str) -> CodeType:
    """A `when` or `let` of the tables, compiled."""
    return compile(f"({text})", "<data/doctor.toml>", "eval")


def evaluate(text: str, names: Values) -> Any:
    """Result of a formula; None where it compares a value that nobody read."""
    try:  # our own data file, not the user's text, says what is evaluated
        return eval(formula(text), {"__builtins__": {}}, _with_none(names))
    except (TypeError, IndexError, ValueError):
        return None


def _with_none(names: Values) -> Values:
    return defaultdict(lambda: None, names)


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
        if not raw or not all(self.fact(name) for name in item.get("with", ())):
            return []
        others = [self.fact(n) for n in (*item.get("with", ()), *item.get("maybe", ()))]
        every = [r.values for readings in (raw, *others) for r in readings]
        names: Values = {
            **_BUILTINS,
            "count": lambda name: len(self.fact(name)),
            "values": lambda name: [v[name] for v in every if name in v],
        }
        shared: Values = {}
        for readings in others:
            shared |= readings[0].values if readings else {}
        kept, before = [], _with_none({})
        for reading in raw:
            known = {**names, **shared, **reading.values, "before": before}
            if evaluate(item.get("when", "True"), known):
                kept.append(Reading(reading.spans, shared | reading.values))
            before = _with_none(reading.values)
        return kept

    def _raw(self, item: Item) -> list[Reading]:
        found = [hit for pattern in item.get("any", ()) for hit in self._find(pattern)]
        if "all" in item:
            found += self._together(item["all"])
        return [_reading(hit, item.get("let", {})) for hit in found]

    def _together(self, parts: list[str]) -> Iterator[Hit]:
        """Parts in one paragraph; a leading ? makes a part optional."""
        end = 0
        for first in self._find(parts[0]):
            if first[0][1].start() < end:
                continue  # the same paragraph again
            low, end = self.flat.paragraph(first[0][1].start())
            hits = {p: next(self._find(p.lstrip("?"), low, end), []) for p in parts}
            if all(hit or p[0] == "?" for p, hit in hits.items()):
                yield [match for hit in hits.values() for match in hit]

    def _find(
        self, pattern: Pattern, low: int = 0, high: int | None = None
    ) -> Iterator[Hit]:
        """Matches of a pattern; of a list, matches that follow each other closely."""
        pieces = [pattern] if isinstance(pattern, str) else pattern
        needle, text = literal(pieces[0]), self.flat.text
        high, at = len(text) if high is None else high, low
        for _ in range(MOST_HITS):
            at = text.find(needle, at, high)
            if at < 0:
                return
            hit = self._chain(pieces, max(low, at - REACH), high)
            if hit:
                yield hit
            low = at = max(at + len(needle), hit[-1][1].end() if hit else 0)

    def _chain(self, pieces: list[str], start: int, high: int) -> Hit:
        hit: Hit = []
        for piece in pieces:
            stop = min(high, start + 2 * REACH)
            match = regex(piece).search(self.flat.text, start, stop)
            if match is None:
                return []
            hit.append((piece, match))
            start = match.end()
        return hit


def _reading(hit: Hit, let: dict[str, str]) -> Reading:
    values: Values = {}
    for pattern, match in hit:
        kinds = dict(_SLOT.findall(pattern))
        for name, text in match.groupdict().items():
            values[name] = value(kinds[name], text.decode(errors="replace"))
    for name, text in let.items():
        values[name] = evaluate(text, {**_BUILTINS, **values})
    return Reading([match.span() for _, match in hit], values)
