"""`gpu-lab …`: parse, call, print. Exit: 0 good, 1 finding, 2 could not, 130 Ctrl-C."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from gpu_lab import __version__, facts, records
from gpu_lab.records import GpuLabError

EXTRAS = "pip install 'gpu-lab[notebooks]'"
EXIT_FINDING, EXIT_CANNOT, EXIT_FAULT, EXIT_INTERRUPTED = 1, 2, 3, 130


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is, then exit with 2."""
        print(f"{self.prog}: {message}; try {self.prog} --help", file=sys.stderr)
        sys.exit(EXIT_CANNOT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows only ASCII
            stream.reconfigure(errors="backslashreplace")
    args = parser().parse_args(argv)
    try:
        return int(args.command(args))
    except BrokenPipeError:  # `| head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (GpuLabError, OSError) as error:
        text = " ".join(str(error).split())
        print(f"gpu-lab {args.name}: {text}", file=sys.stderr)
        return EXIT_CANNOT
    except ImportError as error:
        hint = "`gpu-lab doctor` names the torch to install; the rest: " + EXTRAS
        print(f"gpu-lab {args.name}: {error}; try: {hint}", file=sys.stderr)
        return EXIT_CANNOT
    except KeyboardInterrupt:
        print(f"gpu-lab {args.name}: stopped by Ctrl-C", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception:  # not 1, which would be a finding about the machine
        traceback.print_exc()
        print(f"gpu-lab {args.name}: a fault of ours, please report", file=sys.stderr)
        return EXIT_FAULT


def parser() -> Parser:
    """All commands with their help."""
    top = Parser(
        prog="gpu-lab", description="Measure, record and teach PyTorch on this machine."
    )
    top.add_argument("--version", action="version", version=f"gpu-lab {__version__}")
    commands = top.add_subparsers(
        dest="name", required=True, metavar="COMMAND", parser_class=Parser
    )
    _run_command(commands)
    _detect_command(commands)
    _snapshot_command(commands)
    _doctor_command(commands)
    _explain_command(commands)
    _bench_command(commands)
    _compare_command(commands)
    _monitor_command(commands)
    _fit_command(commands)
    return top


def _later(module: str) -> Callable[[argparse.Namespace], int]:
    """The function `run` of a module that is loaded only when its command is given."""
    return lambda args: int(importlib.import_module(module).run(args))


# argparse exports no public name for what add_subparsers returns.
Commands = argparse._SubParsersAction


def _add(commands: Commands[Parser], name: str, text: str, example: str) -> Parser:
    """A command whose --help ends with an example."""
    return commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"Example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _run_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "run",
        "Core suite and notebooks into one run folder, with a report.",
        "gpu-lab run 00 --device cpu --profile quick --out runs/first",
    )
    sub.add_argument("names", nargs="*", metavar="NN", help="00, 03 or a .ipynb file")
    sub.add_argument("--profile", default="quick", help="quick, class or full")
    sub.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, …")
    sub.add_argument("--seed", type=int, default=0, help="seed of all random inputs")
    sub.add_argument(
        "--sessions", type=int, default=5, help="fresh processes of the core suite"
    )
    sub.add_argument(
        "--out", type=Path, help="run folder, new or to be continued (runs/<time>)"
    )
    sub.add_argument("--skip", default="", help="experiments to leave out, as A,B")
    sub.add_argument("--edition", default="student", help="student or solutions")
    sub.set_defaults(command=_later("gpu_lab.course.run"))


def _detect_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "detect",
        "Which GPUs are there, and over what are they connected?",
        "gpu-lab detect --from snapshot.json --json",
    )
    sub.add_argument(
        "--from", dest="stored", type=Path, help="read a recorded machine instead"
    )
    sub.add_argument("--json", action="store_true", help="one JSON object")
    sub.set_defaults(command=_detect)


def _detect(args: argparse.Namespace) -> int:
    from gpu_lab import redact, show
    from gpu_lab.hardware import snapshot

    stored = snapshot.load(args.stored) if args.stored else None
    found = snapshot.here() if stored is None else snapshot.analyse(stored)
    if args.json:
        print(json.dumps(redact.tree(found), ensure_ascii=False))
    else:
        around = show.computer() if stored is None else []
        _print_pairs([*around, *show.detected(found)])
    return 0


def _snapshot_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "snapshot",
        "Record this machine, without anything personal, for `detect --from`.",
        "gpu-lab snapshot my-machine.json",
    )
    sub.add_argument("out", type=Path, metavar="OUT", help="file to write")
    sub.set_defaults(command=_snapshot)


def _snapshot(args: argparse.Namespace) -> int:
    from gpu_lab.hardware import snapshot

    texts = snapshot.record()
    text = json.dumps(texts, ensure_ascii=False, indent=1)
    args.out.write_text(f"{text}\n", encoding="utf-8")
    print(f"{args.out}: {len(texts)} texts; read it before you pass it on")
    return 0


def _doctor_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "doctor",
        "Live check of this machine: ladder, versions, limits, link, GPU memory.",
        "gpu-lab doctor --report for-an-issue.json",
    )
    sub.add_argument(
        "--report", type=Path, metavar="FILE", help="write all of it, redacted, as JSON"
    )
    sub.add_argument(
        "--from", dest="stored", type=Path, help="replay a stored ladder instead"
    )
    sub.set_defaults(command=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    from gpu_lab import doctor, hardware, redact

    if args.stored and args.report:
        raise GpuLabError("--report is about this machine; leave out --from")
    if args.stored:
        findings, about = hardware.load_findings(args.stored)
        print(f"{about['kind']}: {about['source']}")
        return _print_ladder(hardware.climb(findings, device=about["title"]))
    machine = hardware.detect()
    devices = machine.gpus or machine.devices[:1]
    ladders = [hardware.live_ladder(machine, device) for device in devices]
    codes = [_print_ladder(ladder) for ladder in ladders]
    if all(ladder.first_failed is None for ladder in ladders):
        print("Nothing to install: this torch works. For a fresh environment:")
    else:
        print("Install command for this machine:")
    print(f"  {hardware.install_command(machine)}\n")
    lines = doctor.check(machine, ladders)
    _print_pairs([(line.what, redact.text(line.found)) for line in lines])
    found = doctor.findings(lines)
    print(f"\n{doctor.Explanation(found, '' if found else 'No findings.')}")
    if args.report:
        tree = doctor.report(machine, ladders, lines)
        text = json.dumps(tree, ensure_ascii=False, indent=1)
        args.report.write_text(f"{text}\n", encoding="utf-8")
        print(f"\n{args.report}: read it before you pass it on")
    grave = any(diagnosis.severity in doctor.SERIOUS for diagnosis in found)
    return max(*codes, EXIT_FINDING if grave else 0)


def _explain_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "explain",
        "What is wrong: diagnoses of an error text, a log or a snapshot.",
        "gpu-lab explain train.log    dmesg | gpu-lab explain -",
    )
    sub.add_argument("files", nargs="+", metavar="FILE", help="file; - is stdin")
    sub.add_argument("--json", action="store_true", help="one JSON object a file")
    sub.set_defaults(command=_explain)


def _explain(args: argparse.Namespace) -> int:
    from gpu_lab import doctor

    codes = [0]
    for name in args.files:
        try:
            found = doctor.examine_file(name)
        except GpuLabError as error:
            print(f"gpu-lab explain: {error}", file=sys.stderr)
            codes.append(EXIT_CANNOT)
            continue
        tree = {"file": name, **records.plain(found)}
        print(json.dumps(tree, ensure_ascii=False) if args.json else f"{name}\n{found}")
        grave = any(d.severity in doctor.SERIOUS for d in found.diagnoses)
        codes.append(EXIT_FINDING if grave else 0)
    return max(codes)


def _bench_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "bench",
        "Measurements without notebooks: rows of the core suite.",
        "gpu-lab bench matmul_fp32 --sessions 5 --out runs/new-dock",
    )
    sub.add_argument("names", nargs="*", metavar="NAME", help="rows (default: all)")
    sub.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, …")
    sub.add_argument("--seed", type=int, default=0, help="seed of all random inputs")
    sub.add_argument(
        "--sessions", type=int, default=1, help="fresh processes, one after the other"
    )
    sub.add_argument("--out", type=Path, help="keep the sessions in this run folder")
    sub.add_argument("--json", action="store_true", help="the first session as JSON")
    sub.set_defaults(command=_later("gpu_lab.course.benching"))


def _compare_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "compare",
        "Is the candidate faster than the reference? Three runs or more: a table.",
        "gpu-lab compare runs/old-dock runs/new-dock --html compare.html",
    )
    sub.add_argument("runs", nargs="+", metavar="RUN", help="folder or fsspec address")
    sub.add_argument(
        "--allow", default="", help="conditions that may differ, as torch,driver"
    )
    sub.add_argument(
        "--again", metavar="RUN", help="the reference once more, after the candidate"
    )
    sub.add_argument("--margin", type=float, help="%% below which nothing matters")
    sub.add_argument("--by", help="row that sorts the table (matmul_fp32)")
    sub.add_argument("--html", type=Path, metavar="FILE", help="write a page")
    sub.add_argument("--json", action="store_true", help="the verdicts as JSON")
    sub.set_defaults(command=_later("gpu_lab.course.comparing"))


def _monitor_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "monitor",
        "What host and GPUs do now, a sample a second, until Ctrl-C.",
        "gpu-lab monitor --log train-monitor.jsonl --seconds 60",
    )
    sub.add_argument("--log", type=Path, metavar="FILE", help="append JSON lines")
    sub.add_argument("--seconds", type=float, help="stop by itself after that long")
    sub.set_defaults(command=_monitor)


def _monitor(args: argparse.Namespace) -> int:
    from gpu_lab import monitor

    monitor.run(log=args.log, seconds=args.seconds)
    return 0


def _fit_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "fit",
        "Will this model run in that memory, how fast? No GPU, no weights needed.",
        "gpu-lab fit torchvision:resnet50 --batch 64 --precision bf16 --memory 8GiB",
    )
    sub.add_argument("model", metavar="MODEL", help="torchvision:NAME or FILE.py:NAME")
    for name, (default, text) in facts.settings("fit")["options"].items():
        sub.add_argument(f"--{name}", default=default, help=text)
    sub.add_argument("--batch", type=int, help="replaces the first size of the inputs")
    sub.add_argument("--accumulate", type=int, default=1, help="micro-batches a step")
    sub.add_argument("--checkpoint", action="store_true", help="run blocks twice")
    sub.add_argument("--cards", action="store_true", help="a table of all cards")
    sub.add_argument("--prices", type=Path, help="yours: a CSV file, name and price")
    sub.set_defaults(command=_later("gpu_lab.course.fitting"))


def _print_pairs(rows: Sequence[tuple[str, str]]) -> None:
    for what, text in rows:
        print(f"{what:15s} {text}")


def _print_ladder(ladder: records.Ladder) -> int:
    from gpu_lab import hardware, show

    for number, rung in enumerate(ladder.rungs, 1):
        print(f"{number}  {rung.answer:11s}  {rung.name:28s}  {rung.evidence}")
    print(f"\n{show.ladder_sentence(ladder)}\n")
    return EXIT_FINDING if hardware.broken(ladder) else 0


if __name__ == "__main__":
    sys.exit(main())
