"""Lines of code by room: no blank lines, no comments, no docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

import gpu_lab

PACKAGE = Path(gpu_lab.__file__).parent
# The first plan said 6,500; ten lessons with their exercises did not fit, and a cap
# that forces code out of its room would be the worse rule.
MOST_LINES = 11_000
MOST_IN_A_ROOM = 1200  # above it, a library was probably missed
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(text: str) -> int:
    """Number of lines of Python text that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(text))


def by_room(package: Path) -> dict[str, int]:
    """Room -> lines of code, in the order of the names; files of the top are rooms."""
    count: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        count[room] += code_lines(path.read_text(encoding="utf-8"))
    return dict(count)


def table(rooms: dict[str, int]) -> str:
    """The rooms, the total and the cap as text."""
    total = sum(rooms.values())
    lines = [f"{name:12s} {count:5d}{_remark(count)}" for name, count in rooms.items()]
    return "\n".join([*lines, f"{'total':12s} {total:5d} of at most {MOST_LINES}"])


def main(package: Path | None = None) -> int:
    """Print the table; 1 when the package is above its cap."""
    rooms = by_room(package or PACKAGE)
    print(table(rooms))
    return int(sum(rooms.values()) > MOST_LINES)


def _remark(count: int) -> str:
    return "  large: was a library missed?" if count > MOST_IN_A_ROOM else ""


def _docstring_lines(text: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines
