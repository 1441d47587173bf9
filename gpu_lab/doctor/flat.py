"""A text in its flat form, in which wraps, colours and prefixes make no difference.

Flat means: lower case, no blanks, no time stamps or rank numbers before a line. A
paragraph (one device of a list, one row of a table) begins with the sign ~. Everything
is bytes: a log of 10 MB must not become 40 MB because of one arrow in it.
"""

from __future__ import annotations

import io
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from gpu_lab import units

MARK = b"~"
MOST_EVIDENCE = 3  # lines shown of one finding
_BLANKS = b" \t\r\n\v\f"
_ANSI = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|.)")
_PREFIXES = (
    rb"\s+",
    rb"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?",
    rb"\[(?:rank|default) ?\d+\]:?",  # torchrun
    rb"\[ *\d+\.\d+\]",  # dmesg, its other form, syslog
    rb"\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]",
    rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ ",
    rb"kernel:",
    rb"[\w.-]+-\d+ +\|",  # docker compose
)
_PREFIX = re.compile(rb"(?:" + rb"|".join(_PREFIXES) + rb")*")
# A device of lspci or of nvidia-smi -q begins.
_DEVICE = re.compile(
    rb"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z]|GPU [0-9A-F]{8}:"
)
_FIELD = rb"[a-z][a-z0-9_.]*(?: \[[\w%./]+\])?"
_HEADER = re.compile(_FIELD + rb"(?:, ?" + _FIELD + rb")+")


def of_map(entries: Mapping[str, str]) -> str:
    """One text of a snapshot: `key: value`, and ~ between its folders and commands."""
    lines, folder = [], ""
    for key in sorted(entries, key=lambda k: k.rpartition("/")[0]):
        if key.rpartition("/")[0] != folder or not key.startswith("/"):
            lines.append("~")
        folder = key.rpartition("/")[0]
        lines.append(f"{key}:\n{entries[key]}")
    return "\n".join([*lines, "~"])


class Flat:
    """The flat form of a text, and the way back to its lines."""

    def __init__(self, data: bytes) -> None:
        """Flatten a text in UTF-8."""
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._data = _ANSI.sub(b"", data)
        self._lines, self._starts = array("L"), array("L")
        self._columns: list[bytes] = []
        flat, at = bytearray(), 0
        for line in io.BytesIO(self._data):
            self._lines.append(at)
            self._starts.append(len(flat))
            flat += self._flat_line(line)
            at += len(line)
        self.text = bytes(flat).lower()

    def paragraph(self, at: int) -> tuple[int, int]:
        """Bounds of the paragraph around a place of the flat text."""
        end = self.text.find(MARK, at)
        return self.text.rfind(MARK, 0, at) + 1, end if end >= 0 else len(self.text)

    def evidence(self, start: int, end: int) -> str:
        """The lines that a stretch of the flat text comes from, as one line."""
        first = bisect_right(self._starts, start) - 1
        last = min(bisect_right(self._starts, end - 1), first + MOST_EVIDENCE)
        stop = self._lines[last] if last < len(self._lines) else None
        words = self._data[self._lines[first] : stop].decode(errors="replace").split()
        return units.plain(" ".join(words), 300)

    def _flat_line(self, line: bytes) -> bytes:
        begin = _PREFIX.match(line)
        text = line[begin.end() :].rstrip() if begin else line
        cells = [cell.strip() for cell in text.split(b",")]
        if len(cells) > 1 and _HEADER.fullmatch(text):
            self._columns = cells
        elif len(cells) > 1 and len(cells) == len(self._columns):
            pairs = zip(self._columns, cells, strict=True)
            text = b"~" + b",".join(key + b":" + cell for key, cell in pairs) + b"~"
        else:
            self._columns = []
        mark = MARK if _DEVICE.match(text) else b""
        return mark + text.translate(None, _BLANKS)
