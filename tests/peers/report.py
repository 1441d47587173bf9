"""Results as a table and as JSON, kept as each one ends."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """One goal: what was wanted, what was reached, what the peer reaches."""

    id: str
    what: str
    goal: str
    reached: str
    peer: str
    met: bool | None


class Progress:
    """Where we are, on stderr, when somebody watches."""

    def of(self, items: Iterable[T], what: str) -> Iterator[T]:
        """The items, with a line that counts them."""
        from tqdm import tqdm

        yield from tqdm(items, desc=what, leave=False, disable=not sys.stderr.isatty())


class Store:
    """The JSON file: experiment -> its raw figures, its results, how it was run."""

    def __init__(self, path: Path, *, key: dict[str, Any]) -> None:
        """Read what an earlier run of the same code and kind has left."""
        self.path, self.key = path, key
        self.tree: dict[str, Any] = {"key": key, "experiments": {}}
        if path.is_file():
            tree = json.loads(path.read_text("utf-8"))
            if tree.get("key") == key:
                self.tree = tree

    def done(self, name: str) -> list[Result] | None:
        """Results of an experiment that is on disk already."""
        found = self.tree["experiments"].get(name)
        return [Result(**r) for r in found["results"]] if found else None

    def keep(self, name: str, raw: Any, results: list[Result], seconds: float) -> None:
        """Write one experiment at once."""
        self.tree["experiments"][name] = {
            "results": [asdict(r) for r in results],
            "seconds": round(seconds, 1),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "raw": raw,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.tree, indent=1)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.path)


def table(results: Iterable[Result]) -> str:
    """One block a goal: what was wanted, reached, and the peer's figure."""
    words = {True: "met", False: "MISSED", None: "NOT RUN"}
    blocks = []
    for r in results:
        lines = [f"{r.id}  {words[r.met]}  {r.what}"]
        for name, text in (("goal", r.goal), ("ours", r.reached), ("peer", r.peer)):
            lead = f"      {name}  "
            lines += textwrap.wrap(
                text, 96, initial_indent=lead, subsequent_indent=" " * len(lead)
            )
        blocks.append("\n".join(lines))
    return "\n".join(blocks)
