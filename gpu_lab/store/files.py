"""Session files: validated when read, redacted and atomic when written."""

from __future__ import annotations

import datetime
import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpu_lab import __version__, records, redact, units
from gpu_lab.records import GpuLabError, Session

LONGEST_TEXT = 1000
OUT_VARIABLE = "GPU_LAB_OUT"
ROOT_VARIABLE = "GPU_LAB_RUNS"
T = TypeVar("T")


class StoreError(GpuLabError):
    """A file that cannot be read as a session, or one that must not be written."""


def load(path: Path) -> Session:
    """One session file, validated against the records.

    Raises:
        StoreError: truncated, not ours, from a newer major version, or not valid;
            one line that names the file and what is wrong.
    """
    return load_record(path, Session, form=records.FORMAT, schema=records.SCHEMA)


def load_record(path: Path, kind: type[T], *, form: str, schema: str) -> T:
    """One JSON file as a record, checked for its format, schema and fields.

    Args:
        form: what its "format" must be; schema: its newest version that is read.

    Raises:
        StoreError: as `load`.
    """
    what = form.rpartition(".")[2]
    tree = _read(path, what)
    _require_ours(tree, path, form=form, schema=schema)
    try:
        return msgspec.convert(_clean(tree), kind)
    except msgspec.ValidationError as error:
        raise StoreError(f"{path}: not a valid {what}: {error}") from error


def load_folder(folder: Path) -> list[Session]:
    """All sessions of a run folder, by file name; raises StoreError on a bad one."""
    return [load(path) for path in sorted((folder / "sessions").glob("*.json"))]


def save(session: Session, path: Path) -> Path:
    """Write a session atomically, redacted; the old file stays if that fails.

    Raises:
        StoreError: rows of the stand-in that call themselves MEASURED, or NaN.
        OSError: the disk is full or may not be written.
    """
    faked = session.mislabelled()
    if faked:
        raise StoreError(
            f"{path.name}: {', '.join(faked)} ran on a simulated device and is called "
            "MEASURED; wanted SIMULATED; nothing was written"
        )
    try:
        return write_json(redact.tree(records.plain(session)), path)
    except ValueError as error:
        raise StoreError(f"{path.name}: nothing was written: {error}") from error


def write_json(tree: Any, path: Path) -> Path:
    """Write JSON to a temporary neighbour, fsync it, then put it in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False)
    write_text(f"{data}\n", path)
    return path


def write_text(data: str, path: Path) -> None:
    """Replace a text file in one step; raises OSError and keeps the old one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes files that only the owner may read
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def schema() -> dict[str, Any]:
    """JSON schema of a session file, as stored in data/schema/session-1.json."""
    return dict(records.plain(msgspec.json.schema(Session)))


def runs_root() -> Path:
    """Folder of all runs: GPU_LAB_RUNS, else `runs` beside `notebooks` or here."""
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return Path(named)
    here = Path.cwd()
    return (here.parent if here.name in ("notebooks", "solutions") else here) / "runs"


def out_folder() -> Path:
    """Run folder of this process: GPU_LAB_OUT, else `lab` in the folder of runs."""
    named = os.environ.get(OUT_VARIABLE)
    return Path(named) if named else runs_root() / "lab"


def free_name(folder: Path, stem: str) -> Path:
    """First path stem.json, stem-2.json, … that does not exist yet."""
    path, number = folder / f"{stem}.json", 2
    while path.exists():
        path, number = folder / f"{stem}-{number}.json", number + 1
    return path


def now() -> str:
    """Moment as UTC text to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _read(path: Path, what: str) -> Any:
    if not path.is_file():  # a pipe or a device would never end
        raise StoreError(f"{path}: cannot be read: not a file")
    try:
        # Unlike json: no NaN, no 1e999, no depth without end, ten times faster.
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}: wanted a {what} file, found text that is not whole JSON "
            f"(truncated?): {error}"
        ) from error


def _require_ours(tree: Any, path: Path, *, form: str, schema: str) -> None:
    if not isinstance(tree, dict) or tree.get("format") != form:
        what = form.rsplit(".", maxsplit=1)[-1]
        raise StoreError(
            f"{path}: valid JSON, but not a {what} of gpu_lab "
            f'(wanted "format": "{form}")'
        )
    if str(tree.get("schema", "")).split(".")[0] != schema.split(".", maxsplit=1)[0]:
        raise StoreError(
            f"{path}: written in schema {tree.get('schema')!r}, this gpu_lab "
            f"({__version__}) reads {schema}; install the gpu_lab that wrote it"
        )


def _clean(tree: Any) -> Any:
    """Texts of a stranger's file without control codes and of bearable length."""
    if isinstance(tree, str):
        return tree if len(tree) < 50 and tree.isprintable() else _clean_text(tree)
    if isinstance(tree, list):
        numbers = tree and isinstance(tree[0], (int, float))
        return tree if numbers else [_clean(item) for item in tree]
    if isinstance(tree, dict):
        return {_clean(name): _clean(item) for name, item in tree.items()}
    return tree


def _clean_text(text: str) -> str:
    lines = text[:LONGEST_TEXT].splitlines() or [""]
    return "\n".join(units.plain(line, LONGEST_TEXT) for line in lines)
