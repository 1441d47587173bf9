#!/usr/bin/env python3
"""The prepared run on a GPU machine: no network, its own torch, under six minutes.

    python3 requirements/gpu_check.py --wheels wheels --out build/gpu-check

Makes a venv that sees the torch of this Python, adds wheels from a folder, runs the
core suite and every notebook in quick, then the tests that need a GPU, and keeps the
five sessions as data/reference/NAME. Standard library only.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 360
TESTS_S = 60  # kept for the tests at the end
LIMIT_MIB = 60
FAILED, CANNOT = 1, 2


def main():
    """Exit code: 0 all good, 1 something failed (the rest is kept), 2 could not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, default=ROOT / "wheels")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-check")
    parser.add_argument(
        "--packages", type=Path, default=ROOT / "requirements" / "gpu-check.txt"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--notebooks", nargs="*", default=[], metavar="NN")
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for all")
    args = parser.parse_args()
    deadline = time.monotonic() + args.limit
    problem = torch_problem(sys.executable) or wheels_problem(args.wheels)
    if problem:
        print("gpu-check: " + problem, file=sys.stderr)
        return CANNOT
    python = make_venv(args.out / "venv", args)
    codes = [run_course(python, args, deadline)]
    codes.append(run_tests(python, args, deadline))
    codes.append(keep(python, args))
    print(f"gpu-check: {deadline - time.monotonic():.0f} s left")
    return FAILED if any(codes) else 0


def torch_problem(python):
    """Why the torch of this Python will not do; None when it will."""
    code = "import torch; print(torch.__version__)"
    run = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=False
    )
    if run.returncode == 0:
        print("gpu-check: torch " + run.stdout.strip())
        return None
    last = (run.stderr.strip() or "no text").splitlines()[-1]
    return (
        f"wanted: a Python that has torch; found: {last}; try: name it, as in "
        "`make gpu-check PYTHON=/path/to/python3`"
    )


def wheels_problem(folder):
    """Why this folder of wheels will not do; None when it will."""
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if not wheels:
        return (
            f"wanted: wheels in {folder.name}; found: none; try: `make gpu-wheels` on "
            "a machine with a network, and carry the folder here"
        )
    mib = sum(w.stat().st_size for w in wheels) / 2**20
    if mib > LIMIT_MIB:
        return f"wanted: at most {LIMIT_MIB} MiB of wheels; found: {mib:.0f}"
    return None


def make_venv(folder, args):
    """Python of a venv that sees the system's packages, with what they lack added."""
    venv.create(str(folder), system_site_packages=True, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    # A venv made from a venv sees the outermost packages only: name the inner ones.
    paths = [p for p in sys.path if p.endswith("-packages")]
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(site, "outer.pth").write_text("\n".join([str(ROOT), *paths]) + "\n")
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    command += ["--find-links", str(args.wheels), "-r", str(args.packages)]
    subprocess.run(command, check=True)
    return str(python)


def environment(args):
    """Variables of the children: this checkout, and runs below the output folder."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GPU_LAB_RUNS": str(args.out / "runs"),
    }


def call(words, args, seconds):
    """Exit code of a child that may take so long; 124 when it took longer."""
    try:
        return subprocess.run(
            words,
            cwd=str(ROOT),
            env=environment(args),
            timeout=max(1, seconds),
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"gpu-check: stopped after {seconds:.0f} s: {words[1:4]}")
        return 124


def run_course(python, args, deadline):
    """Core suite and notebooks, in the time that is left before the tests."""
    words = [python, "-m", "gpu_lab.cli", "run", *args.notebooks]
    words += [
        "--device",
        args.device,
        "--profile",
        "quick",
        "--out",
        str(args.out / "run"),
    ]
    words += ["--sessions", str(args.sessions)]
    return call(words, args, deadline - time.monotonic() - TESTS_S)


def run_tests(python, args, deadline):
    """Tests that only a GPU can pass; the stand-in has none of its own."""
    if os.environ.get("GPU_LAB_REPLAY"):
        print("gpu-check: replayed driver, the tests that need a GPU do not run")
        return 0
    words = [python, "-m", "pytest", "-m", "gpu", "tests/test_gpu.py", "-q"]
    return call(words, args, deadline - time.monotonic())


def keep(python, args):
    """Keep the sessions as the record of this machine, unless it was simulated."""
    sessions = sorted((args.out / "run" / "sessions").glob("core*.json"))
    if not sessions:
        print("gpu-check: no session, so no record", file=sys.stderr)
        return FAILED
    session = json.loads(sessions[0].read_text(encoding="utf-8"))
    devices = {
        d["name"]: d for d in session["machine"]["devices"] if d["backend"] != "cpu"
    }
    name = re.sub("[^a-z0-9]+", "-", " ".join(["one", *devices]).lower()).strip("-")
    folder = args.out / "record" / name
    words = [
        python,
        "-m",
        "gpu_lab.course",
        "reference",
        str(args.out / "run"),
        str(folder),
    ]
    if any(d["simulated"] for d in devices.values()):
        print("gpu-check: simulated device, so no record")
        return 0
    code = call(words, args, 60)
    print(f"gpu-check: to ship it, copy {folder.name} to data/reference/")
    return code


if __name__ == "__main__":
    sys.exit(main())
