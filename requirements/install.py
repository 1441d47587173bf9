#!/usr/bin/env python3
"""Make .venv and install the course into it; quick and silent when it is up to date.

    python3 requirements/install.py [--variant cpu] [--extras dev] [--venv .venv]

The Makefile runs it; Windows users may run it directly. Standard library only, and no
syntax newer than Python 3.6, so that an old Python can at least say that it is old.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
TORCH_FILES = {
    "default": "torch.txt",
    "cpu": "torch-cpu.txt",
    "cu126": "torch-cu126.txt",
    "cu130": "torch-cu130.txt",
    "rocm": "torch-rocm.txt",
    "xpu": "torch-xpu.txt",
}
# What each set of extras contains.
EXTRAS = {"notebooks": {"notebooks"}, "dev": {"dev", "notebooks"}}
# Download and size on disk in GB, with Jupyter (0.1 and 0.8 of it). Measured for the
# default on Linux; the other is an estimate, from the size of PyTorch's CPU wheel.
SIZES_GB = {"cuda": (3.1, 6.1), "small": (0.3, 1.5)}
PAUSE_S = 5
FAILED = 2
INTERRUPTED = 130


# --- what may be wrong before anything is downloaded; each returns one line or None


def python_problem(version):
    """A Python that is too old."""
    if tuple(version[:2]) >= OLDEST_PYTHON:
        return None
    return (
        "wanted: Python 3.11 or newer; found: {}; "
        "try: install a newer one and name it, as in `make run PYTHON=python3.12`"
    ).format(".".join(str(part) for part in version[:3]))


def venv_problem(has_module, version):
    """Debian and Ubuntu ship Python without the modules that make a venv."""
    missing = [name for name in ("venv", "ensurepip") if not has_module(name)]
    if not missing:
        return None
    return (
        "wanted: Python's modules venv and ensurepip; found: no {}; "
        "try (Debian, Ubuntu): apt install python{}.{}-venv"
    ).format(" and no ".join(missing), version[0], version[1])


def platform_problem(system, machine):
    """PyTorch ended its wheels for Intel Macs with 2.2."""
    if (system, machine) != ("Darwin", "x86_64"):
        return None
    return (
        "wanted: a platform with PyTorch 2.14 wheels; found: an Intel Mac (or an Intel "
        "Python on Apple silicon); try: another machine, or an arm64 Python"
    )


def disk_problem(free_gb, needed_gb, place):
    """Less room than the installation takes."""
    if free_gb >= needed_gb:
        return None
    return (
        "wanted: {:.1f} GB free for {}; found: {:.1f} GB; "
        "try: free some space; the CPU build needs least: make run TORCH=cpu"
    ).format(needed_gb, place, free_gb)


def free_gb(path):
    """Free space where `path` lies or will lie."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(str(path)).free / 1e9


def has_torch(venv):
    """Whether the venv holds some torch, by its folder (Linux and Mac, Windows)."""
    patterns = ("lib/*/site-packages/torch", "Lib/site-packages/torch")
    return any(path for pattern in patterns for path in venv.glob(pattern))


def first_problem(variant, venv):
    """The first thing that stops an installation here, in one line, or None."""
    download, disk = size_gb(platform.system(), variant)
    problem = venv_problem(importlib.util.find_spec, sys.version_info)
    problem = problem or platform_problem(platform.system(), platform.machine())
    if problem or has_torch(venv):  # then most of the room is taken already
        return problem
    temporary = Path(tempfile.gettempdir())  # often a small file system in memory
    return disk_problem(free_gb(venv), disk, venv.name) or disk_problem(
        free_gb(temporary), download, "pip's downloads in TMPDIR"
    )


# --- what will be downloaded


def nvidia_card(pci_devices, has_driver_tool):
    """Whether an NVIDIA display device is on the bus (Linux) or has its driver."""
    for folder in pci_devices:
        try:
            vendor = (folder / "vendor").read_text().strip()
            kind = (folder / "class").read_text().strip()
        except OSError:  # a device may vanish while it is read, an eGPU above all
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):  # 03 = display controller
            return True
    return has_driver_tool


def card_seen_here():
    """Whether this machine shows an NVIDIA card."""
    bus = Path("/sys/bus/pci/devices")
    devices = sorted(bus.iterdir()) if bus.is_dir() else []
    return nvidia_card(devices, shutil.which("nvidia-smi") is not None)


def size_gb(system, variant):
    """(download, on disk) in GB."""
    has_cuda = variant.startswith("cu") or (variant == "default" and system == "Linux")
    return SIZES_GB["cuda" if has_cuda else "small"]


def announcement(system, variant, card_seen):
    """What will be downloaded, how big it is, and what else may fit better."""
    build = {"Linux": "CUDA build", "Darwin": "Mac build"}.get(system, "CPU build")
    if variant != "default":
        build = "{} build".format(variant)
    lines = [
        "Installing PyTorch ({}) and Jupyter: about {} GB to download, {} GB on "
        "disk.".format(build, *size_gb(system, variant))
    ]
    if variant == "default" and system == "Linux" and not card_seen:
        lines.append(
            "No NVIDIA card seen. `make run TORCH=cpu` (or `make test TORCH=cpu`) "
            "downloads about 0.3 GB instead."
        )
    if variant == "default" and system == "Windows" and card_seen:
        lines.append(
            "NVIDIA card seen, which this build cannot use: add --variant cu130 "
            "(RTX 20 series and newer) or --variant cu126 (older)."
        )
    return lines


def announce(variant):
    """Print it, and leave time to stop when something smaller would do."""
    lines = announcement(platform.system(), variant, card_seen_here())
    print("\n".join(lines), flush=True)
    if len(lines) > 1 and sys.stdin is not None and sys.stdin.isatty():
        print("Going on in {} s; Ctrl-C stops.".format(PAUSE_S), flush=True)
        time.sleep(PAUSE_S)


# --- the stamp: what the venv holds, and whether the last run came to its end


def wanted_stamp(variant, extras, root):
    """What the stamp says after a complete installation."""
    files = [root / "pyproject.toml", *sorted((root / "requirements").glob("*.*"))]
    content = hashlib.sha256()
    for path in files:
        content.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return {
        "variant": variant,
        "python": "{}.{}".format(*sys.version_info[:2]),
        "root": str(root),  # scripts and the editable install break when it moves
        "extras": extras,
        "inputs": content.hexdigest(),
        "phase": "ready",
    }


def chosen_variant(asked, stamp):
    """The build asked for, else the one that is there, else the default.

    So that `make lab` after `make run TORCH=cpu` does not fetch the big one after all.
    """
    held = stamp.get("variant")
    return asked or (held if held in TORCH_FILES else "default")


def is_current(stamp, wanted):
    """Whether nothing is to be done."""
    same = all(stamp.get(key) == wanted[key] for key in wanted if key != "extras")
    return same and wanted["extras"] in EXTRAS.get(stamp.get("extras"), ())


def must_start_anew(stamp, wanted):
    """Whether pip cannot be trusted to repair what is there.

    Another variant has the same version number, so pip would keep the wrong one; and
    a package that was cut off while it was unpacked looks installed to pip. A venv
    without a stamp is not ours: it is completed, never emptied.
    """
    if not stamp:
        return False
    fixed = ("variant", "python", "root")
    changed = any(stamp.get(key) != wanted[key] for key in fixed)
    return changed or stamp.get("phase") == "busy"


def read_stamp(path):
    """The stamp as a dict, empty when there is none."""
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(path, stamp, **changes):
    """Whole or not at all: it is renamed into place."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(dict(stamp, **changes)), encoding="utf-8")
    os.replace(str(part), str(path))


# --- the installation


def venv_python(venv):
    """The interpreter of a venv."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def venv_command(venv, anew):
    """The command that makes the venv, or completes the one that is there."""
    return [sys.executable, "-m", "venv", *(["--clear"] if anew else []), str(venv)]


def pip_commands(variant, extras, venv, quiet=False):
    """The two pip calls, by what they install."""
    pip = [str(venv_python(venv)), "-m", "pip", "--disable-pip-version-check"]
    pip += ["--quiet"] if quiet else []
    pip += ["install", "-c", "requirements/constraints.txt"]
    torch = "requirements/" + TORCH_FILES[variant]
    return [
        # alone and first, from the index that its file names: afterwards torch is
        # there, and no other package can bring in another build of it
        (torch, [*pip, "-r", torch]),
        ("gpu-lab", [*pip, "-e", ".[{}]".format(extras)]),
    ]


def install(wanted, venv, stamp_file, anew, quiet):
    """Make the venv and fill it; 0, or 2 after one line about what failed."""
    if subprocess.call(venv_command(venv, anew)) != 0:
        return complain("making {0} failed; try: delete {0}".format(venv.name))
    write_stamp(stamp_file, wanted, phase="busy")
    commands = pip_commands(wanted["variant"], wanted["extras"], venv, quiet)
    for name, command in commands:
        if subprocess.call(command, cwd=str(ROOT)) != 0:
            # pip takes back what it could not finish, so the venv may stay
            write_stamp(stamp_file, wanted, phase="failed")
            return complain(
                "installing {} failed, see above; try: check the network, then run "
                "the same command again".format(name)
            )
    write_stamp(stamp_file, wanted)
    return 0


def complain(line):
    print("install: " + line, file=sys.stderr)
    return FAILED


def arguments(argv):
    parser = argparse.ArgumentParser(
        description="Make a venv and install the course into it.",
        epilog="example: python3 requirements/install.py --variant cpu --extras dev",
    )
    parser.add_argument(
        "--variant",
        choices=sorted(TORCH_FILES),
        help="build of PyTorch; without it the one installed last time, else default",
    )
    parser.add_argument("--extras", choices=sorted(EXTRAS), default="notebooks")
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    return parser.parse_args(argv)


def main(argv):
    problem = python_problem(sys.version_info)
    if problem:
        return complain(problem)
    args = arguments(argv)
    venv = ROOT / args.venv
    stamp_file = venv / "gpu-lab-install.json"
    stamp = read_stamp(stamp_file)
    variant = chosen_variant(args.variant, stamp)
    wanted = wanted_stamp(variant, args.extras, ROOT)
    if is_current(stamp, wanted) and venv_python(venv).exists():
        return 0
    problem = first_problem(variant, venv)
    if problem:
        return complain(problem)
    anew = must_start_anew(stamp, wanted)
    if not anew and args.extras in EXTRAS.get(stamp.get("extras"), ()):
        wanted["extras"] = stamp["extras"]  # never take `dev` away again
    update = stamp.get("phase") == "ready" and not anew
    if update:  # pip would print a line for each of 150 packages it need not touch
        print("Bringing {} up to date.".format(args.venv), flush=True)
    else:
        announce(variant)
    return install(wanted, venv, stamp_file, anew, quiet=update)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninstall: stopped; the same command starts again", file=sys.stderr)
        sys.exit(INTERRUPTED)
