"""What a notebook source must and must not hold: a table of small rules.

A rule takes the notebook (all cells, exercises and solutions) and yields the number
of each bad cell, from 1, or 0 for the whole, with what is wrong and what is wanted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from authoring import convert
from gpu_lab import facts
from gpu_lab.course.notebooks import PARAMETERS, Cell, Notebook, code_cells, tags

Found = Iterator[tuple[int, str]]
Rule = Callable[[Notebook], Found]

CHECKED, IGNORED = "nbval-check-output", "nbval-ignore-output"
EXERCISE, SOLUTION = convert.LEFT_OUT["solutions"], convert.LEFT_OUT["student"]
WORDS = ("parameters", EXERCISE, SOLUTION, "predict", "slide", "notes", "verdict")
TAGS = (*WORDS, IGNORED, CHECKED)
LONGEST_CELL, WIDEST_LINE, MOST_FUNCTIONS = 15, 80, 2

NUMBER_WITH_UNIT = re.compile(
    r"(?<![\w.])\d[\d,]*(?:\.\d+)?\s?"
    r"(?:[kKMGTP]?i?B(?:/s)?|[kMG]b(?:it)?/s|GT/s|[kMGTP]?FLOPS|[mµun]?s|W|k?J|[kMG]?Hz"
    r"|°C|%|(?:samples|images|tokens)/s)(?![\w/])"
)
DEFINITION = "> Definition"
SUMMARY = re.compile(r"^##? Summary\b", re.M)
CONTROL = re.compile(r"^#+ .*\bcontrol\b", re.M | re.I)


def pairs(notebook: Notebook) -> Found:
    """Each exercise cell is directly followed by its solution cell."""
    yield from convert.unpaired(notebook)


def title(notebook: Notebook) -> Found:
    """The first cell has a title and says what you can do afterwards."""
    first = notebook.cells[0] if notebook.cells else None
    if first is None or not _is_text(first) or not first.source.startswith("# "):
        yield 1, "no title, wanted markdown that starts with #"
    elif "afterwards" not in first.source.lower():
        yield 1, 'title without outcomes, wanted "Afterwards you can …"'


def parameters(notebook: Notebook) -> Found:
    """There is one parameters cell: device, profile, seed, with plain types."""
    tagged = [(n, c) for n, c in _numbered(notebook) if "parameters" in tags(c)]
    if len(tagged) != 1:
        yield 0, f"{len(tagged)} cells tagged parameters, wanted 1"
    for number, cell in tagged:
        found = _assignments(cell.source)
        if list(found) != list(PARAMETERS):
            wanted = ", ".join(PARAMETERS)
            yield number, f"parameters {', '.join(found) or 'none'}, wanted {wanted}"
            continue
        for name, given in found.items():
            if not _fits(given, PARAMETERS[name]):
                yield number, f"{name}: wanted a {_text(*PARAMETERS[name])}"


def order(notebook: Notebook) -> Found:
    """Code starts with the parameters cell, then the imports."""
    code = [(n, c) for n, c in _numbered(notebook) if not _is_text(c)][:2]
    if not code or "parameters" not in tags(code[0][1]):
        yield code[0][0] if code else 0, "first code cell, wanted the parameters"
    if len(code) < 2 or not code[1][1].source.startswith(("import ", "from ")):
        yield code[-1][0] if code else 0, "second code cell, wanted the imports"


def allowed_tags(notebook: Notebook) -> Found:
    """Only the tags of the course, and no other metadata."""
    for number, cell in _numbered(notebook):
        for tag in tags(cell):
            if tag not in TAGS:
                yield number, f"tag {tag!r}, wanted one of {', '.join(TAGS)}"
        for key in cell.metadata:
            if key != "tags":
                yield number, f"metadata {key!r}, wanted only tags"
        if cell.cell_type not in ("code", "markdown"):
            yield number, f"a {cell.cell_type} cell, wanted code or markdown"


def forbidden(notebook: Notebook) -> Found:
    """No line of code that breaks under papermill, nbval or on another machine."""
    rules = facts.settings("notebook_rules")["forbidden"]
    for number, cell in _numbered_code(notebook):
        for line in cell.source.splitlines():
            for rule in rules:
                if re.search(rule["pattern"], line):
                    found = f"{rule['what']} in {line.strip()!r}"
                    yield number, f"{found}, wanted {rule['wanted']}"


def python(notebook: Notebook) -> Found:
    """Code cells are plain Python."""
    for number, cell in _numbered_code(notebook):
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            yield number, f"{error.msg}, wanted plain Python"


def definitions(notebook: Notebook) -> Found:
    """Few functions and no class, so that nothing of a cell is sent to a worker."""
    count = 0
    for number, cell in _numbered_code(notebook):
        if {EXERCISE, SOLUTION} & set(tags(cell)):
            continue
        for node in _nodes(cell.source):
            if isinstance(node, ast.ClassDef):
                yield number, f"class {node.name}, wanted it in gpu_lab"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count += 1
                if count > MOST_FUNCTIONS:
                    yield number, f"def {node.name}, wanted at most {MOST_FUNCTIONS}"


def budget(notebook: Notebook) -> Found:
    """Code cells fit on a projected slide."""
    for number, cell in _numbered_code(notebook):
        lines = cell.source.splitlines()
        if len(lines) > LONGEST_CELL:
            yield number, f"{len(lines)} lines, wanted at most {LONGEST_CELL}"
        widest = max(map(len, lines), default=0)
        if widest > WIDEST_LINE:
            yield number, f"{widest} columns, wanted at most {WIDEST_LINE}"


def numbers_in_text(notebook: Notebook) -> Found:
    """No measured number in the text: it would be of another machine."""
    for number, cell in _numbered(notebook):
        for line in cell.source.splitlines() if _is_text(cell) else ():
            found = NUMBER_WITH_UNIT.search(line)
            if found and not line.startswith(DEFINITION):
                yield number, f"{found[0]!r} in the text, wanted it from a record"


def headings(notebook: Notebook) -> Found:
    """A summary and a negative control are there."""
    text = "\n".join(cell.source for cell in notebook.cells if _is_text(cell))
    if not SUMMARY.search(text):
        yield 0, "no summary, wanted a heading ## Summary"
    if not CONTROL.search(text):
        yield 0, "no negative control, wanted a heading with the word control"


def verdict(notebook: Notebook) -> Found:
    """A verdict cell is there, and nbval-lax checks just the verdict cells."""
    there = [cell for cell in code_cells(notebook) if "verdict" in tags(cell)]
    if not there:
        yield 0, f"no verdict cell, wanted one tagged verdict and {CHECKED}"
    for number, cell in _numbered(notebook):
        if ("verdict" in tags(cell)) != (CHECKED in tags(cell)):
            yield number, f"verdict and {CHECKED}, wanted both tags or none"
        if {CHECKED, IGNORED} <= set(tags(cell)):
            yield number, f"{CHECKED} and {IGNORED}, wanted one of them"


RULES: tuple[Rule, ...] = (
    pairs,
    title,
    parameters,
    order,
    allowed_tags,
    forbidden,
    python,
    definitions,
    budget,
    numbers_in_text,
    headings,
    verdict,
)


def _numbered(notebook: Notebook) -> Iterator[tuple[int, Cell]]:
    yield from enumerate(notebook.cells, 1)


def _numbered_code(notebook: Notebook) -> Iterator[tuple[int, Cell]]:
    return ((n, cell) for n, cell in _numbered(notebook) if cell.cell_type == "code")


def _is_text(cell: Cell) -> bool:
    return bool(cell.cell_type == "markdown")


def _nodes(text: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(text)))
    except SyntaxError:  # the rule `python` says so
        return []


def _assignments(text: str) -> dict[str, ast.AST]:
    """Name -> statement of each assignment of a cell."""
    found: dict[str, ast.AST] = {}
    for node in _nodes(text):
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = node
        if isinstance(node, ast.Assign):
            found[ast.unparse(node.targets[0])] = node
    return found


def _fits(node: ast.AST, wanted: tuple[str, Any]) -> bool:
    """Whether a statement is `name: type = default` with that type and default."""
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Constant):
        return False
    kind, default = wanted
    value = node.value.value
    good = type(value) is int if default is int else value == default
    return ast.unparse(node.annotation) == kind and good


def _text(kind: str, default: Any) -> str:
    return f"plain {kind}" + ("" if default is int else f' = "{default}"')
