"""What a built notebook must and must not hold: a table of small rules.

As in `source_rules`, a rule yields the number of each bad cell, or 0 for the whole,
with what is wrong and what is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from authoring import convert
from authoring.source_rules import IGNORED, Found, Rule
from gpu_lab.course.notebooks import Cell, Notebook, code_cells, tags

EMBEDDED = re.compile(r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]+")
HOME_FOLDER = re.compile(
    r"(?<![\w.])/(?:home|Users|root)/\S|\b[A-Za-z]:\\Users\\", re.I
)
# A slash that follows a word, a tag or a colon is a rate, HTML or an address.
# Places that every Linux has say nothing about this machine: advice may name them.
EVERYWHERE = r"(?!dev/shm|proc/driver|sys/bus|usr/share|var/cuda-repo)"
ABSOLUTE_PATH = re.compile(
    rf"(?<![\w/.<:])/{EVERYWHERE}[\w.-]+/[\w.-]+|\b[A-Za-z]:\\\w"
)
ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
WIDGET = "application/vnd.jupyter.widget"
COUNT = re.compile(r": (\d+) checks\n")
BUILD = "try make notebooks"


def drift(fresh: Notebook, built: Notebook) -> Found:
    """The first cell that does not agree with the source; not in the table."""
    pairs = zip(convert.shape(fresh), convert.shape(built), strict=False)
    for number, (wanted, found) in enumerate(pairs, 1):
        for name, one, other in zip(
            ("type", "text", "metadata", "id"), wanted, found, strict=True
        ):
            if one != other:
                yield number, f"{name} differs from the source; {BUILD}"
                return
    if len(fresh.cells) != len(built.cells):
        yield 0, f"{len(built.cells)} cells, the source has {len(fresh.cells)}; {BUILD}"
    elif fresh.metadata != built.metadata:
        yield 0, f"metadata of the notebook differ from the fixed ones; {BUILD}"


def counts(notebook: Notebook) -> Found:
    """Every code cell was run, once, from the top."""
    for wanted, (number, cell) in enumerate(_numbered_code(notebook), 1):
        if cell.execution_count is None:
            yield number, f"was not run, wanted count {wanted}; {BUILD}"
        elif cell.execution_count != wanted:
            yield number, f"count {cell.execution_count}, wanted {wanted}; {BUILD}"


def verdict_text(notebook: Notebook) -> Found:
    """Verdict cells hold their text: a count and as many lines that say ok."""
    for number, cell in _numbered_code(notebook):
        if "verdict" not in tags(cell):
            continue
        text = "".join(_texts(cell))
        count = COUNT.search(text)
        lines = sum(line.startswith("ok  ") for line in text.splitlines())
        if not count or int(count[1]) != lines or not lines:
            said = count[1] if count else "no count"
            yield (
                number,
                f"verdict with {lines} ok lines of {said}, wanted all; {BUILD}",
            )


def ignored(notebook: Notebook) -> Found:
    """At most half of the code cells escape comparison."""
    code = code_cells(notebook)
    count = sum(IGNORED in tags(cell) for cell in code)
    if count > len(code) / 2:
        yield 0, f"{count} of {len(code)} code cells {IGNORED}, wanted at most half"


def clean(notebook: Notebook) -> Found:
    """No error, no words on stderr, no widget and no traces of papermill."""
    for key in ("widgets", "papermill"):
        if key in notebook.metadata:
            yield 0, f"metadata {key!r}, wanted none; {BUILD}"
    for number, cell in enumerate(notebook.cells, 1):
        if "papermill" in cell.metadata:
            yield number, f"metadata 'papermill', wanted none; {BUILD}"
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                yield number, f"stored error {output.ename}, wanted none"
            if output.get("name") == "stderr":
                yield number, "stored text on stderr, wanted silence"
            if any(kind.startswith(WIDGET) for kind in output.get("data", {})):
                yield number, "stored widget, wanted text or a picture"


def paths(notebook: Notebook) -> Found:
    """No home folder anywhere; nothing of this machine in what nbval compares."""
    for number, cell in _numbered_code(notebook):
        text = EMBEDDED.sub("", "\n".join(_texts(cell)))
        if HOME_FOLDER.search(text):
            yield number, "home folder in the output, wanted none"
        elif IGNORED not in tags(cell):
            for pattern, what in ((ABSOLUTE_PATH, "path"), (ADDRESS, "memory address")):
                found = pattern.search(text)
                if found:
                    yield (
                        number,
                        f"{what} {found[0]!r} in a compared output, wanted none",
                    )


RULES: tuple[Rule, ...] = (counts, verdict_text, ignored, clean, paths)


def _numbered_code(notebook: Notebook) -> Iterator[tuple[int, Cell]]:
    return ((n, c) for n, c in enumerate(notebook.cells, 1) if c.cell_type == "code")


def _texts(cell: Cell) -> Iterator[str]:
    """Every text of the stored outputs; pictures of their own are left out."""
    for output in cell.get("outputs", []):
        if "text" in output:
            yield output.text
        for kind, data in output.get("data", {}).items():
            if kind.startswith("text/"):
                yield str(data)
