"""Template of `data/` -> one page that opens without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_lab import __version__, facts, store, units


def write(template: str, context: dict[str, Any], path: Path) -> Path:
    """Fill a template and write it in one step; texts of files are escaped.

    Raises:
        OSError: it cannot be written; the old page stays.
    """
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    same = {"style": facts.text("page.css"), "legend": units.LEGEND}
    page = environment.from_string(facts.text(template))
    store.write_text(page.render(**same, version=__version__, **context), path)
    return path
