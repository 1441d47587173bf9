"""Texts of tools -> plain facts, by the patterns in data/detect.toml.

No pattern fits what it does not know, so texts may be cut, mixed or full of noise: a
fact that is not there stays out.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from typing import NamedTuple

from gpu_lab import facts

Thing = dict[str, str]
# Kind of thing -> its key -> what is known of it. Kinds: pci (by address), card (by
# NVIDIA's number), box, listed, topology, mig and system (one thing only).
Facts = dict[str, dict[str, Thing]]
ADDRESS = r"(?P<address>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])"
_QUERY = re.compile(r"--query-gpu[= ]([\w.,]+)")
_ESCAPE = re.compile(r"\x1b\[[\d;]*m")
_LONGEST_LINE = 2000  # no tool prints a longer one
_OTHER_COLUMN = r"[^,\n]*"


class Pattern(NamedTuple):
    """How one tool writes one fact."""

    tool: re.Pattern[str]
    about: str
    form: re.Pattern[str]
    new: bool


def read(snapshot: dict[str, str]) -> Facts:
    """All facts of a snapshot: path or command -> its text."""
    found: Facts = defaultdict(dict)
    for source, text in snapshot.items():
        named = f"{source} " if source.startswith("/") else ""
        _read(found, source, named + clean(source, text))
    return found


def clean(source: str, text: str) -> str:
    """The text with plain line ends and blanks, without what no tool prints.

    A text that ends in a lone 1 may have been cut inside 16: that 1 says nothing.
    """
    text = _ESCAPE.sub("", text.replace("\ufeff", "").replace("\r", ""))
    lines = text.replace("\t", " ").split("\n")
    text = "\n".join(line for line in lines if len(line) <= _LONGEST_LINE)
    return text if source.startswith("/") else re.sub(r"(?<![\d.])1\Z", "", text)


def address(text: str) -> str:
    """PCI address in the one form used here, such as 0000:0a:00.0."""
    *domain, bus, rest = text.lower().split(":")
    return f"{int(domain[0], 16) if domain else 0:04x}:{bus}:{rest}"


def _read(found: Facts, source: str, text: str) -> None:
    current: dict[str, Thing] = {}
    begun: Counter[str] = Counter()
    matches = [
        (match.start(), number, pattern, match)
        for number, pattern in enumerate((*_patterns(), *_columns(source)))
        if pattern.tool.search(source)
        for match in pattern.form.finditer(text)
    ]
    for _, _, pattern, match in sorted(matches, key=lambda m: m[:2]):
        about, fields = pattern.about, _fields(match)
        last = current.get(about)
        fresh = pattern.new and (last is None or bool(last.keys() & fields.keys()))
        key = fields.pop("key", "" if about == "system" else None)
        if about == "pci":
            key = fields.get("address")
        elif key is None and fresh:
            key = str(begun[about]) if about == "card" else f"{source} {begun[about]}"
            begun[about] += 1
        if key is not None:
            last = found[about].setdefault(key, {})
        if last is not None:
            current[about] = last
            # The first text counts, but nvidia-smi's table cuts long names.
            known = {k for k, v in last.items() if "..." not in v}
            last |= {k: v for k, v in fields.items() if k not in known}


def _fields(match: re.Match[str]) -> Thing:
    fields = {name: v.strip() for name, v in match.groupdict().items() if v}
    places = {"address", "limit_at"} & fields.keys()
    return fields | {name: address(fields[name]) for name in places}


@functools.cache
def _patterns() -> tuple[Pattern, ...]:
    rules = facts.settings("detect")["patterns"]
    return tuple(
        Pattern(re.compile(r["tool"]), r["about"], _form(r["pattern"]), "new" in r)
        for r in rules
    )


def _columns(source: str) -> list[Pattern]:
    """The pattern of one row of --query-gpu, made from its columns."""
    query = _QUERY.search(source)
    names = query[1].split(",") if query else []
    known = facts.settings("detect")["columns"]
    row: list[str] = []
    for name in names:
        column = known.get(name, _OTHER_COLUMN)
        row.append(_OTHER_COLUMN if column in row else column)
    form = _form(rf"^{', *'.join(row)}$")
    told = {"key", "name", "address"} & form.groupindex.keys()
    return [Pattern(re.compile("nvidia-smi"), "card", form, True)] if told else []


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("<address>", ADDRESS), re.M)
