"""Patterns, values and formulas of `data/doctor*.toml`, read in a flat text."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
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
LONG = 2**18  # from this length on, one pass first finds what can occur at all
ANCHOR = 5
COMMON = b"etaoinsrlcdupm0123456789.:hgfbyv-/=,"  # in logs; other characters are rare
_SLOT = re.compile(r"\{(\w+):(\w+)\}")
_NOT_PLAIN = re.compile(r"\{\w+:\w+\}|(?<!\\)\((?:\\.|[^()])*\)|(?<!\\)\[[^]]*\]")
_PLAIN = re.compile(r"(?:[^\\()\[\]{}.*+?|^$ ]|\\[^a-z0-9])+(?![?*+{])")
_MIB = {"k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}
_BUILTINS: Values = {"max": max, "min": min, "len": len, "set": set, "int": int}


@dataclass
class Reading:
    """One match of a pattern: where it is, and the values read there."""

    spans: list[tuple[int, int]]
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

    return re.compile(_SLOT.sub(group, pattern.replace(" ", "").lower()).encode())


def value(kind: str, text: str) -> Any:
    """What a text of that kind means. Sizes are in MiB, capabilities as 8.6."""
    table = facts.settings("doctor")["lookup"].get(kind)
    if table:
        return table[text]
    if kind == "size":
        number, unit = re.findall(r"[\d.]+|[a-z]+", text)
        return float(number) * _MIB.get(unit[0], 2**-20)
    if kind == "archs":
        return [int(digits) / 10 for digits in re.findall(r"\d+", text)]
    read = {"int": int, "index": int, "number": float, "hex": lambda t: int(t, 16)}
    return read.get(kind, str)(text)


@functools.cache
def anchors() -> dict[bytes, bytes]:
    """Literal of each evidence -> five of its characters, the first one rare."""
    items = [item for rule in rules().values() for item in rule["evidence"]]
    firsts = [p for i in items for p in (*i.get("any", ()), *i.get("all", ())[:1])]
    found = {literal(p if isinstance(p, str) else p[0]) for p in firsts}
    return {
        needle: max(
            (needle[i : i + ANCHOR] for i in range(len(needle) - ANCHOR + 1)),
            key=lambda five: COMMON.find(five[:1]) % 99,
        )
        for needle in found
        if len(needle) >= ANCHOR
    }


def absent(text: bytes) -> set[bytes]:
    """Literals that a long text lacks, by one pass; none are named of a short one."""
    if len(text) < LONG:
        return set()
    fives = groupby(sorted(set(anchors().values())), key=lambda five: five[:1])
    ahead = (
        re.escape(first) + b"(?=%b)" % b"|".join(re.escape(five[1:]) for five in group)
        for first, group in fives
    )
    hits = re.finditer(b"|".join(ahead), text)
    seen = {text[hit.start() : hit.start() + ANCHOR] for hit in hits}
    return {needle for needle, five in anchors().items() if five not in seen}


@functools.cache
def formula(text: str) -> CodeType:
    """A `when` or `let` of the tables, compiled."""
    return compile(f"({text})", "<data/doctor.toml>", "eval")


def evaluate(text: str, names: Values) -> Any:
    """Result of a formula; None where it compares a value that nobody read."""
    try:  # our own data file, not the user's text, says what is evaluated
        return eval(formula(text), {"__builtins__": {}}, _or_none(names))
    except (TypeError, IndexError, ValueError):
        return None


def _or_none(names: Values) -> Values:
    return defaultdict(lambda: None, names)


class Reader:
    """Readings of one text. Facts are read once, when the first rule asks for them."""

    def __init__(self, flat: Flat) -> None:
        """Nothing is read yet."""
        self.flat = flat
        self._absent = absent(flat.text)
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
        known: Values = {
            **_BUILTINS,
            "count": lambda name: len(self.fact(name)),
            "values": lambda name: [v[name] for v in every if name in v],
        }
        shared: Values = {}
        for readings in others:
            shared |= readings[0].values if readings else {}
        kept, before = [], _or_none({})
        for reading in raw:
            values = shared | reading.values
            if evaluate(item.get("when", "1"), {**known, **values, "before": before}):
                kept.append(Reading(reading.spans, values))
            before = _or_none(reading.values)
        return kept

    def _raw(self, item: Item) -> list[Reading]:
        found = [hit for pattern in item.get("any", ()) for hit in self._find(pattern)]
        found += self._together(item["all"]) if "all" in item else []
        return [_reading(hit, item.get("let", {})) for hit in found]

    def _together(self, parts: list[str]) -> Iterator[Hit]:
        """Parts in one paragraph; a leading ? makes a part optional."""
        end = 0
        for first in self._find(parts[0]):
            start = first[0][1].start()
            if start < end:
                continue  # the same paragraph again
            low, end = self.flat.paragraph(start)
            hits = [next(self._find(p.lstrip("?"), low, end), []) for p in parts]
            if all(hit or p[0] == "?" for p, hit in zip(parts, hits, strict=True)):
                yield [match for hit in hits for match in hit]

    def _find(
        self, pattern: Pattern, low: int = 0, high: int | None = None
    ) -> Iterator[Hit]:
        """Matches of a pattern; of a list, matches that follow each other closely."""
        pieces = [pattern] if isinstance(pattern, str) else pattern
        needle, text = literal(pieces[0]), self.flat.text
        high, at = len(text) if high is None else high, low
        for _ in range(0 if needle in self._absent else MOST_HITS):
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
        values[name] = evaluate(text, _BUILTINS | values)
    return Reading([match.span() for _, match in hit], values)
