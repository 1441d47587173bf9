"""The only reader of `data/`: facts with sources, texts and templates."""

from __future__ import annotations

import csv
import functools
import io
import re
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from gpu_lab.records import GpuLabError

Row = dict[str, str]


def folder(name: str) -> Traversable:
    """The shipped folder of that name: data, notebooks or requirements.

    In a wheel it lies inside the package (`_data`, …), in a checkout beside it.
    """
    package = resources.files("gpu_lab")
    inside = package / f"_{name}"
    if inside.is_dir():
        return inside
    with resources.as_file(package) as path:
        return path.parent / name


def text(name: str) -> str:
    """Whole text of one data file, such as "ladder.toml"."""
    path = folder("data").joinpath(name)
    if not path.is_file():
        raise GpuLabError(f"data file {name!r} is missing: reinstall gpu-lab")
    return path.read_text(encoding="utf-8")


def files(name: str, *, suffix: str) -> tuple[Path, ...]:
    """Files of one folder of `data/` with that suffix, in the order of their names."""
    there = folder("data") / name
    if not there.is_dir():
        raise GpuLabError(f"data folder {name!r} is missing: reinstall gpu-lab")
    found = (item for item in there.iterdir() if item.name.endswith(suffix))
    return tuple(Path(str(item)) for item in sorted(found, key=lambda i: i.name))


@functools.cache
def table(name: str) -> tuple[Row, ...]:
    """Rows of one CSV file: "gpus", "links" or "claims". Empty text = unknown."""
    return tuple(csv.DictReader(io.StringIO(text(f"{name}.csv"))))


@functools.cache
def settings(name: str) -> dict[str, Any]:
    """One TOML file of `data/` as a dict."""
    return tomllib.loads(text(f"{name}.toml"))


def claim(claim_id: str) -> Row:
    """One claim of popular articles with its verdict and source, by id ("C024")."""
    for row in table("claims"):
        if row["id"] == claim_id:
            return row
    raise GpuLabError(
        f"no claim {claim_id!r}; ids run C001 to C{len(table('claims')):03d}"
    )


def link(name: str) -> Row:
    """One link of `data/links.csv` by its name or a part of it: "thunderbolt4".

    Raises:
        GpuLabError: no link or several are named so.
    """
    known = [r for r in table("links") if r["theoretical_gb_s_per_direction"]]
    near = [r for r in known if _plain(name) in _plain(r["link"])]
    rows = [r for r in near if _plain(name) == _plain(r["link"])] or near
    if len(rows) != 1:
        number = "several links" if rows else "no link"
        names = ", ".join(r["link"] for r in rows or known)
        raise GpuLabError(f"{number} {name!r} in data/links.csv; wanted one of {names}")
    return rows[0]


def _plain(name: str) -> str:
    return re.sub(r"\.0(?!\d)|pcie|[^a-z0-9]", "", name.lower())
