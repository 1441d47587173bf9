"""Run folders -> what `gpu-lab compare` prints and the pages that it writes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpu_lab import compare, plot, records, show, units
from gpu_lab.compare import Group, Member, Row
from gpu_lab.compare.pairs import COMPARED, LEFT_OUT
from gpu_lab.course import page
from gpu_lab.records import Measurement, Run

MARGINS = "2 % where the device times itself, 5 % elsewhere and for transfers"
LINK_SIZES = range(1, 2**40)
COLUMNS = ("run", "device", "link", "rung")


def lines(
    reference: Run, candidate: Run, rows: Sequence[Row], again: Run | None = None
) -> Iterator[str]:
    """The comparison as text: in short, row by row, groups, what was left out."""
    names = {"reference": reference.name, "candidate": candidate.name}
    yield from show.in_short(rows, **names)
    yield ""
    yield from _aligned(_cells(rows), ("row", *names.values(), "verdict"))
    yield ""
    for one in compare.groups(rows):
        yield f"geometric mean of {_group(one)}"
    if again:
        yield f"reference again: {again.name}, {len(again.core)} sessions"
    runs = [run for run in (reference, candidate, again) if run]
    yield from (f"left out: {text}" for text in _left_out(runs))


def write(
    path: Path, reference: Run, candidate: Run, rows: Sequence[Row], again: Run | None
) -> Path:
    """The comparison as a page: pictures, passports, rows, notebooks side by side."""
    runs = [run for run in (reference, candidate, again) if run]
    context = {
        "reference": reference.name,
        "candidate": candidate.name,
        "again": again.name if again else "",
        "short": show.in_short(
            rows, reference=reference.name, candidate=candidate.name
        ),
        "counts": [f"{len(run.core)} sessions, {run.first.created}" for run in runs],
        "rows": [
            dict(zip(("what", "reference", "candidate", "words"), cells, strict=True))
            | {"kind": str(row.comparison.verdict).split(maxsplit=1)[0]}
            for cells, row in zip(_cells(rows), rows, strict=True)
        ],
        "forest": plot.forest(rows)._repr_html_() if rows else "",
        "groups": [_group(one) for one in compare.groups(rows)],
        "margins": MARGINS,
        "passports": passports(reference, candidate),
        "curves": _curves(runs),
        "roofs": _roofs(runs),
        "lessons": [*_lessons(reference, candidate)],
        "left_out": _left_out(runs),
    }
    return page.write("compare.html.j2", context, path)


def tree(
    reference: Run, candidate: Run, rows: Sequence[Row], again: Run | None = None
) -> dict[str, Any]:
    """The comparison for programs; the sessions themselves stay in their folders."""
    runs = [run for run in (reference, candidate, again) if run]
    return {
        "reference": reference.name,
        "candidate": candidate.name,
        "rows": [
            {
                "name": row.name,
                "reference_s": row.reference.median_s if row.reference else None,
                "candidate_s": row.candidate.median_s if row.candidate else None,
                **records.plain(row.comparison),
            }
            for row in rows
        ],
        "groups": records.plain(compare.groups(rows)),
        "again": again.name if again else None,
        "left_out": _left_out(runs),
    }


def fleet_tree(members: Sequence[Member]) -> dict[str, Any]:
    """Many runs for programs, in the order given."""
    names = _names(members)
    cells = _fleet_cells(members, names)
    return {
        "runs": [
            dict(zip(COLUMNS, row, strict=False))
            | {"times_s": member.times_s, "left_out": list(member.run.left_out)}
            for member, row in zip(members, cells, strict=True)
        ]
    }


def fleet_lines(members: Sequence[Member]) -> Iterator[str]:
    """Many runs as text, in the order given."""
    names = _names(members)
    yield from _aligned(_fleet_cells(members, names), (*COLUMNS, *names))
    yield from (f"left out: {text}" for text in _left_out([m.run for m in members]))


def write_fleet(path: Path, members: Sequence[Member], *, by: str) -> Path:
    """Many runs as a page."""
    names = _names(members)
    context = {
        "by": by,
        "columns": (*COLUMNS, *names),
        "rows": _fleet_cells(members, names),
        "left_out": _left_out([m.run for m in members]),
    }
    return page.write("fleet.html.j2", context, path)


def _left_out(runs: Sequence[Run]) -> list[str]:
    """What of the folders is not used, and why, with the name of the run."""
    return [f"{run.name}: {text}" for run in runs for text in run.left_out]


def passports(reference: Run, candidate: Run) -> list[tuple[str, str, str]]:
    """Rows of both passports: what, reference, candidate; stated ones are marked."""
    both = [dict(_passport(run)) for run in (reference, candidate)]
    names = dict.fromkeys((*both[0], *both[1]))
    none = units.NOT_AVAILABLE
    return [(name, both[0].get(name, none), both[1].get(name, none)) for name in names]


def _passport(run: Run) -> list[tuple[str, str]]:
    first = run.first
    rows = show.passport_rows(first.machine, first.machine.device(first.device))
    stated = {k: v for session in run.sessions for k, v in session.stated.items()}
    return rows + [(f"{name} (stated)", text) for name, text in stated.items()]


def _cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return [
        (
            _what(row),
            _value(row.reference),
            _value(row.candidate),
            show.verdict_words(row.comparison),
        )
        for row in rows
    ]


def _what(row: Row) -> str:
    one = row.reference or row.candidate
    return show.what(one) if one else row.name


def _value(row: Measurement | None) -> str:
    """Rate of a row where it has one, else its time."""
    if row is None or not row.available:
        return units.NOT_AVAILABLE
    rate = show.rate(row)
    return units.seconds(row.median_s) if rate == units.NOT_AVAILABLE else rate


def _group(one: Group) -> str:
    ends = f"{units.ratio(one.low, 3)} to {units.ratio(one.high, 3)}"
    return f"{one.name} ({', '.join(one.rows)}): {units.ratio(one.speedup, 3)} ({ends})"


def _lessons(reference: Run, candidate: Run) -> Iterator[tuple[str, ...]]:
    both = (reference.lessons, candidate.lessons)
    for suite, name in dict.fromkeys((*both[0], *both[1])):
        rows = [lessons.get((suite, name)) for lessons in both]
        if any(row and row.available for row in rows):
            yield (suite, name, *map(_with_source, rows))


def _with_source(row: Measurement | None) -> str:
    value = _value(row)
    return f"{value}, {row.source}" if row and row.available else value


def _curves(runs: Sequence[Run]) -> str:
    """Link curves of all runs in one picture; empty where no copy was timed."""
    curves: dict[str, list[Measurement]] = {}
    for run in runs:
        for row in run.lessons.values():
            size = row.settings.get("size_bytes")
            if "pinned" in row.settings and row.rate and isinstance(size, int):
                if size not in LINK_SIZES:
                    continue
                way = row.name.rpartition(units.size(size))[0]
                curves.setdefault(f"{run.name} {way.strip()}", []).append(row)
    whole = {name: rows for name, rows in curves.items() if len(rows) > 1}
    return plot.link_curves(whole)._repr_html_() if whole else ""


def _roofs(runs: Sequence[Run]) -> str:
    """Rooflines of the runs that measured copies and products in one notebook."""
    roofs: dict[str, list[Measurement]] = {}
    for run in runs:
        for _suite, rows in itertools.groupby(
            run.lessons.items(), lambda item: item[0][0]
        ):
            found = [row for _key, row in rows if _on_roof(row)]
            if {row.work_unit for row in found} == {"byte", "FLOP"}:
                roofs.setdefault(run.name, found)
    return plot.rooflines(roofs)._repr_html_() if roofs else ""


def _on_roof(row: Measurement) -> bool:
    """Whether a row belongs there; what is simulated has no roof among machines."""
    right = row.name in ("copy", "triad") or row.settings.get("dtype") == "float32"
    return right and row.source in COMPARED


def _names(members: Sequence[Member]) -> list[str]:
    return list(dict.fromkeys(name for member in members for name in member.times_s))


def _fleet_cells(
    members: Sequence[Member], names: Sequence[str]
) -> list[tuple[str, ...]]:
    middle = {
        name: _middle([m.times_s[name] for m in members if name in m.times_s])
        for name in names
    }
    return [
        (*_who(member), *(_against(member, name, middle[name]) for name in names))
        for member in members
    ]


def _who(member: Member) -> tuple[str, ...]:
    first, ladder = member.run.first, member.run.ladder
    device = first.machine.device(first.device)
    link = show.link(device.link) if device.is_gpu else units.NOT_AVAILABLE
    rung = f"{ladder.height} of {len(ladder.rungs)}" if ladder else units.NOT_AVAILABLE
    return (member.run.name, device.name, link, rung)


def _against(member: Member, name: str, middle_s: float) -> str:
    if name not in member.times_s:
        return units.NOT_AVAILABLE
    row, time_s = member.rows[name], member.times_s[name]
    flags = "".join(f", {flag}" for flag in LEFT_OUT if flag in row.flags)
    return f"{_value(row)} ({units.ratio(middle_s / time_s)}{flags})"


def _middle(times_s: Sequence[float]) -> float:
    return sorted(times_s)[len(times_s) // 2]


def _aligned(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> Iterator[str]:
    """Rows as text in columns; the last column is as long as it is."""
    table = [columns, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns) - 1)]
    for row in table:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]])
