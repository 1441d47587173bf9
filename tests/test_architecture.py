"""The floor plan, held by the code: imports, torch, the clock, sizes, docstrings."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from authoring import size

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gpu_lab"
# Rooms of one group may import each other; all may import the groups before theirs.
ORDER: tuple[tuple[str, ...], ...] = (
    ("units", "records", "redact", "facts"),
    ("hardware",),
    ("timing",),
    ("bench", "fit"),
    ("store",),
    ("compare",),
    ("plot",),
    ("doctor",),
    ("show",),
    ("exercises",),
    ("monitor",),
    ("course",),
    ("cli",),
)
GROUP = {room: number for number, group in enumerate(ORDER) for room in group}
WITH_TORCH = ("timing", "bench", "fit", "exercises")
WITH_TORCH_FILE = PACKAGE / "hardware" / "torch_view.py"
WITHOUT_TORCH = tuple(r for r in GROUP if r not in (*WITH_TORCH, "hardware"))
# What may be asked of the module `time` outside the room timing, and why.
TIME_ALLOWED = {
    "monotonic": "deadlines and progress: how long we wait, never a measurement",
    "sleep": "waiting",
}
# Paths outside the repository that may be named, and only in hardware/host.py and,
# what the OS counts, in timing/noise.py.
COUNTERS = {
    "/proc/thread-self/schedstat",
    "/proc/pressure/cpu",
    "/proc/stat",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
}
SYSTEM_PATHS = {
    "/sys/devices/system/cpu/cpu0/cache",
    "/proc/cpuinfo",
    "/proc/version",
    "/sys/bus/pci/devices",
    "/dev/dxg",
    "/dev/shm",
    "/.dockerenv",
    "/run/.containerenv",
}
ABSOLUTE = re.compile(r"(?:[A-Za-z]:[\\/]|~/|/)[\w.-]+(?:[\\/][\w.*-]+)*[\\/]?")
MOST_FILE_LINES, MOST_FUNCTION_LINES = 350, 50

AUTHORING = ROOT / "notebooks" / "authoring"  # no room: it may import all of them
FILES = sorted(PACKAGE.rglob("*.py"))
FILE_IDS = [path.relative_to(PACKAGE).as_posix() for path in FILES]
each_file = pytest.mark.parametrize("path", FILES, ids=FILE_IDS)
READ = [*FILES, *sorted(AUTHORING.glob("*.py"))]
each_read_file = pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)


def room_of(path: Path) -> str:
    """Room of a file; "" for the package's own __init__."""
    return (
        path.relative_to(PACKAGE).parts[0].removesuffix(".py").replace("__init__", "")
    )


def rooms_here() -> list[str]:
    """Rooms that exist, in the order of the table."""
    there = {room_of(path) for path in FILES}
    return [room for room in GROUP if room in there]


def parse(path: Path) -> ast.Module:
    """Syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Imports anywhere in a tree as (module, name); name "" for `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from ((str(node.module), alias.name) for alias in node.names)


def imported_rooms(tree: ast.AST) -> set[str]:
    """Rooms of gpu_lab that a file imports."""
    found = set()
    for module, name in imports(tree):
        if module == "gpu_lab" and name and name != "__version__":
            found.add(name)
        elif module.startswith("gpu_lab."):
            found.add(module.split(".")[1])
    return found


def breaks_order(room: str, tree: ast.AST) -> set[str]:
    """Rooms that a file of `room` imports although they come later."""
    return {r for r in imported_rooms(tree) if GROUP[r] > GROUP.get(room, -1)}


def run(code: str) -> str:
    """Output of a fresh Python process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_room_is_on_the_floor_plan() -> None:
    unknown = {room_of(path) for path in FILES} - set(GROUP) - {""}
    assert not unknown, f"not in the order of rooms: {unknown}"


@each_file
def test_imports_never_point_backwards(path: Path) -> None:
    assert not breaks_order(room_of(path), parse(path))


@pytest.mark.parametrize(
    "line",
    [
        "from gpu_lab import store",
        "from gpu_lab.store import load",
        "import gpu_lab.cli",
        "def f():\n    from gpu_lab.course import run",
    ],
)
def test_the_order_check_finds_a_planted_import(line: str) -> None:
    assert breaks_order("bench", ast.parse(line))


@each_file
def test_torch_is_imported_in_functions_of_few_rooms(path: Path) -> None:
    tree = parse(path)
    named = {m.split(".")[0] for m, _ in imports(tree)} & {"torch", "torchvision"}
    if room_of(path) not in WITH_TORCH and path != WITH_TORCH_FILE:
        assert not named
    top = {
        m.split(".")[0] for node in outside_functions(tree) for m, _ in imports(node)
    }
    assert not top & {"torch", "torchvision"}


def outside_functions(tree: ast.Module) -> Iterator[ast.stmt]:
    """Import statements that run, or are type-checked, when a file is imported."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def test_importing_the_package_is_light() -> None:
    heavy = ("torch", "numpy", "pandas", "matplotlib", "pynvml")
    code = f"import sys, gpu_lab; print([m for m in {heavy} if m in sys.modules])"
    assert run(code).strip() == "[]"


def test_importing_the_package_takes_at_most_40_ms() -> None:
    code = (
        "import time; start = time.perf_counter(); import gpu_lab;"
        "print(time.perf_counter() - start)"
    )
    assert min(float(run(code)) for _ in range(3)) < 0.040


def test_torch_free_rooms_load_without_torch() -> None:
    rooms = [room for room in rooms_here() if room in WITHOUT_TORCH]
    code = f"""
import importlib, sys
for room in {rooms}:
    importlib.import_module("gpu_lab." + room)
    assert "torch" not in sys.modules, room
"""
    run(code)


def test_nothing_happens_at_import() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in FILES
        if path.name not in ("__init__.py", "__main__.py")
    ]
    code = f"""
import importlib, subprocess, sys

class Forbidden:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError("used at import: " + name)

def refuse(*args, **options):
    raise RuntimeError("a process at import: " + str(args))

sys.modules["pynvml"] = sys.modules["torch"] = Forbidden()
subprocess.Popen.__init__ = refuse
for name in {modules}:
    importlib.import_module(name)
"""
    assert run(code) == ""


@each_file
def test_only_timing_reads_a_clock_or_synchronizes(path: Path) -> None:
    if room_of(path) != "timing":
        assert not list(clock_uses(parse(path)))


def clock_uses(tree: ast.AST) -> Iterator[str]:
    """Uses of a clock, of CUDA events or of synchronize."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of_time = isinstance(node.value, ast.Name) and node.value.id == "time"
            if of_time and node.attr not in TIME_ALLOWED:
                yield f"line {node.lineno}: time.{node.attr}"
            if node.attr in ("synchronize", "perf_counter", "Event", "elapsed_time"):
                yield f"line {node.lineno}: .{node.attr}"
    for module, name in imports(tree):
        if module == "timeit" or (module == "time" and name not in ("", *TIME_ALLOWED)):
            yield f"from {module} import {name}"


@pytest.mark.parametrize(
    "line",
    [
        "time.time()",
        "time.perf_counter_ns()",
        "from time import perf_counter",
        "import timeit",
        "torch.cuda.synchronize()",
        "torch.accelerator.synchronize()",
        "torch.cuda.Event(enable_timing=True)",
    ],
)
def test_the_clock_check_finds_a_planted_clock(line: str) -> None:
    assert list(clock_uses(ast.parse(line)))


@each_read_file
def test_sizes_of_files_and_functions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            rows = text.splitlines()[node.lineno - 1 : node.end_lineno]
            lines = size.code_lines(textwrap.dedent("\n".join(rows)))
            assert lines <= MOST_FUNCTION_LINES, f"{node.name}: {lines} lines of code"


def test_size_of_the_package() -> None:
    """Rooms above 1,200 lines are named by `make check`: a sign, not a fault."""
    assert sum(size.by_room(PACKAGE).values()) <= size.MOST_LINES


@each_read_file
def test_everything_public_has_a_docstring(path: Path) -> None:
    tree = parse(path)
    assert ast.get_docstring(tree), "the module"
    assert list(undocumented(tree)) == []


def undocumented(owner: ast.Module | ast.ClassDef) -> Iterator[str]:
    """Public functions, classes and methods without a docstring."""
    for node in owner.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        if not ast.get_docstring(node):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node)


@each_file
def test_no_path_outside_the_repository_is_named(path: Path) -> None:
    allowed = {
        PACKAGE / "hardware" / "host.py": SYSTEM_PATHS,
        PACKAGE / "timing" / "noise.py": COUNTERS,
    }.get(path, set())
    if room_of(path) == "plot":
        allowed = {".."}  # a hatch of matplotlib
    assert paths_outside(parse(path)) <= allowed


def paths_outside(tree: ast.AST) -> set[str]:
    """Texts that are an absolute path, a home path, or climb out of a folder."""
    waiting, texts = [tree], set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        elif not isinstance(node, ast.JoinedStr):  # pieces of an f-string are no path
            waiting += ast.iter_child_nodes(node)
    return {t for t in texts if ABSOLUTE.fullmatch(t) or "../" in t or t == ".."}


@pytest.mark.parametrize("text", ["/opt/data", "~/data", "../data", "C:/data", "/srv"])
def test_the_path_check_finds_a_planted_path(text: str) -> None:
    assert paths_outside(ast.parse(f"open({text!r})")) == {text}


def test_notebook_sources_name_no_path_outside() -> None:
    for path in sorted((ROOT / "notebooks" / "src").glob("*.py")):
        assert paths_outside(parse(path)) == set(), path.name
