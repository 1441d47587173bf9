"""A text in its flat form, in which wraps, colours and prefixes make no difference.

Flat means: lower case, no blanks, no time stamps or rank numbers before a line. A
paragraph (one device of a list, one row of a table) begins with the sign ~. Everything
is bytes: a log of 10 MB must not become 40 MB because of one arrow in it.
"""

from __future__ import annotations

import functools
import io
import re
from array import array
from bisect import bisect_right
from collections.abc import Mapping

from gpu_lab import facts, redact, units

MARK = b"~"
MOST_LINES, MOST_BYTES = 3, 3000  # shown of one finding
# Colour codes and the like; a wrap may have cut one.
_ANSI = re.compile(
    rb"\x1b\n?(?:\[[0-?\n]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|.)"
)


def of_map(entries: Mapping[str, str]) -> str:
    """One text of a snapshot: `key: value`, and ~ between its folders and commands."""
    folders: dict[str, list[str]] = {}
    for key, text in entries.items():
        folder = key.rpartition("/")[0] if key.startswith("/") else key
        folders.setdefault(folder, []).append(f"{key}:\n{text}")
    return "\n~\n".join(["", *map("\n".join, folders.values()), ""])


class Flat:
    """The flat form of a text, and the way back to its lines."""

    def __init__(self, text: str) -> None:
        """Flatten a text."""
        data = text.encode(errors="replace").replace(b"\r\n", b"\n")
        self._data = _ANSI.sub(b"", data.replace(b"\r", b"\n"))
        self._lines, self._starts = array("I"), array("I")
        self._columns: list[bytes] = []
        flat, at = bytearray(), 0
        for line in io.BytesIO(self._data):
            self._lines.append(at)
            self._starts.append(len(flat))
            flat += self._flat_line(line)
            at += len(line)
        self._lines.append(at)
        self.text = bytes(flat).lower()

    def paragraph(self, at: int) -> tuple[int, int]:
        """Bounds of the paragraph around a place of the flat text."""
        end = self.text.find(MARK, at)
        return self.text.rfind(MARK, 0, at) + 1, len(self.text) if end < 0 else end

    def evidence(self, start: int, end: int) -> str:
        """The lines that a stretch of the flat text comes from, as one line."""
        first = bisect_right(self._starts, start) - 1
        last = min(bisect_right(self._starts, end - 1), first + MOST_LINES)
        begin, stop = self._lines[first], self._lines[last]
        whole = stop - begin < MOST_BYTES  # else a log without line ends
        raw = self._data[begin:stop] if whole else self.text[start:end]
        words = " ".join(raw.decode(errors="replace").split())
        return redact.text(units.plain(words, 300))

    def _flat_line(self, line: bytes) -> bytes:
        prefix, device, header = _shapes()
        text = prefix.sub(b"", line, count=1).rstrip()
        cells = text.split(b",")
        if len(cells) > 1 and header.fullmatch(text):
            self._columns = cells
        elif len(cells) > 1 and len(cells) == len(self._columns):
            pairs = map(b":".join, zip(self._columns, cells, strict=True))
            text = MARK + b",".join(pairs) + MARK
        elif self._columns:
            self._columns = []
        mark = MARK if device.match(text) else b""
        return mark + text.translate(None, b" \t\v\f\n")


@functools.cache
def _shapes() -> tuple[re.Pattern[bytes], ...]:
    lines = facts.settings("doctor")["lines"]
    prefix, field = "|".join(lines["prefix"]), lines["field"]
    texts = f"(?:{prefix}){{0,9}}", lines["device"], f"{field}(?:, ?{field})+"
    return tuple(re.compile(text.encode()) for text in texts)
