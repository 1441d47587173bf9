"""Run folder -> report.html (one page, opens without a network) and a short summary."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_lab import plot, redact, show, store, units
from gpu_lab.course import notebooks, page
from gpu_lab.course.manifest import Manifest, Step
from gpu_lab.records import CORE_SUITE, Measurement, Session

NAME = "report.html"
_COLUMNS = "row,source,time (ms),rate,slowest to fastest session,sessions,remark"
CORE_COLUMNS = tuple(_COLUMNS.split(","))


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What the report takes from one executed notebook."""

    step: Step
    figures: tuple[str, ...]
    verdict: str


def write(folder: Path, done: Manifest) -> Path:
    """Write report.html of a run folder; raises OSError when it cannot."""
    return page.write("report.html.j2", context(folder, done), folder / NAME)


def context(folder: Path, done: Manifest) -> dict[str, Any]:
    """All that the template shows, redacted."""
    readable, problems = store.readable(folder)
    whole = [s for s in readable if s.suite == CORE_SUITE and s.complete]
    return {
        "manifest": done,
        "passport": passport(readable),
        "steps": [
            (s, units.duration(s.seconds), redact.text(s.where + s.cause))
            for s in done.steps
        ],
        "ladder": _ladder(readable),
        "core": core_table(whole),
        "core_columns": CORE_COLUMNS,
        "spread": plot.session_spread(whole)._repr_html_() if whole else "",
        "problems": [redact.text(text) for text in problems],
        "lessons": [lesson(folder, s) for s in done.steps if s.kind == "notebook"],
        "answers": [(s.suite, answer) for s in readable for answer in s.answers],
        "missing": not_measurable(readable),
        "stated": readable[-1].stated if readable else {},
    }


def passport(found: list[Session]) -> list[tuple[str, str]]:
    """Passport rows of the first session; empty when nothing was recorded."""
    if not found:
        return []
    first = found[0]
    return show.passport_rows(first.machine, first.machine.device(first.device))


def core_table(core: list[Session]) -> list[tuple[str, ...]]:
    """Rows of the core suite: row, source, time, rate, lowest to highest, sessions."""
    names = dict.fromkeys(m.name for s in core for m in s.measurements)
    table = []
    for name in names:
        rows = [m for s in core for m in s.measurements if m.name == name]
        timed = sorted((m for m in rows if m.available), key=lambda m: m.median_s or 0)
        table.append(_core_row(timed) if timed else _missing_row(rows[0]))
    return table


def not_measurable(found: list[Session]) -> list[tuple[str, str, str]]:
    """What could not be measured here, by whom asked, and why; each once."""
    rows = {
        (m.name, s.suite): m.reason
        for s in found
        for m in s.measurements
        if not m.available
    }
    return [(name, suite, reason) for (name, suite), reason in rows.items()]


def lesson(folder: Path, step: Step) -> Lesson:
    """Pictures and verdict of one executed notebook, as far as it came."""
    path = folder / "notebooks" / f"{step.name}.ipynb"
    figures: list[str] = []
    verdict = ""
    if path.is_file():
        for cell in notebooks.read(path).cells:
            figures += _figures(cell)
            if "verdict" in notebooks.tags(cell):
                verdict = _printed(cell)
    return Lesson(step=step, figures=tuple(figures), verdict=verdict)


def summary(folder: Path, done: Manifest, path: Path | None) -> str:
    """What is printed at the end: passport, what failed, where to look."""
    lines = [
        "",
        *(f"{what:16s}{text}" for what, text in passport(store.readable(folder)[0])),
    ]
    good = len(done.steps) - len(done.failed)
    lines += ["", f"{good} of {len(done.steps)} steps ok"]
    lines += [
        f"{s.state:11s} {s.name}: {s.where}{s.cause or 'not reached'}"
        for s in done.failed
    ]
    lines.append(f"run folder:     {folder}")
    if path:
        lines.append(f"report:         {path.absolute().as_uri()}")
    return "\n".join(lines)


def _ladder(found: list[Session]) -> dict[str, Any] | None:
    ladder = next((s.ladder for s in found if s.ladder), None)
    if ladder is None:
        return None
    return {
        "picture": plot.ladder(ladder)._repr_html_(),
        "sentence": show.ladder_sentence(ladder),
        "rungs": ladder.rungs,
    }


def _core_row(timed: list[Measurement]) -> tuple[str, ...]:
    """The middle session, between the rates of the slowest and the fastest."""
    middle = timed[len(timed) // 2]
    return (
        show.what(middle),
        str(middle.source),
        units.milliseconds(middle.median_s),
        show.rate(middle),
        f"{show.rate(timed[-1])} to {show.rate(timed[0])}",
        str(len(timed)),
        remark(timed),
    )


def remark(rows: list[Measurement]) -> str:
    """In how many sessions of a row something was wrong, by flag."""
    flags = [flag for row in rows for flag in row.flags]
    flags += ["noisy" for row in rows if row.noisy]
    return ", ".join(f"{flag} in {n}" for flag, n in Counter(flags).items())


def _missing_row(row: Measurement) -> tuple[str, ...]:
    return (row.name, str(row.source), *[units.NOT_AVAILABLE] * 3, "0", row.reason)


def _figures(cell: Any) -> list[str]:
    texts = (o.get("data", {}).get("text/html", "") for o in cell.get("outputs", []))
    return [t for t in texts if t.startswith("<figure>")]


def _printed(cell: Any) -> str:
    return "".join(o.get("text", "") for o in cell.get("outputs", []))
