"""`gpu-lab …`: parse, call, print. Exit: 0 good, 1 finding, 2 could not, 130 Ctrl-C."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpu_lab import __version__, records
from gpu_lab.records import GpuLabError

EXTRAS = "pip install 'gpu-lab[notebooks]'"
EXIT_FINDING, EXIT_CANNOT, EXIT_INTERRUPTED = 1, 2, 130


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
    _doctor_command(commands)
    _bench_command(commands)
    _compare_command(commands)
    _fit_command(commands)
    return top


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
    sub.set_defaults(command=_run)


def _run(args: argparse.Namespace) -> int:
    from gpu_lab.course import run

    return run.run(args)


def _detect_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands, "detect", "The passport of this machine.", "gpu-lab detect --json"
    )
    sub.add_argument("--json", action="store_true", help="one JSON object")
    sub.set_defaults(command=_detect)


def _detect(args: argparse.Namespace) -> int:
    from gpu_lab import hardware, redact, show

    machine = hardware.detect()
    if args.json:
        print(json.dumps(redact.tree(records.plain(machine)), ensure_ascii=False))
        return 0
    device = hardware.ladder_device(machine, hardware.choose(machine))
    _print_pairs(show.passport_rows(machine, device))
    return 0


def _doctor_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "doctor",
        "The ladder of this machine, the first failed rung and its remedy.",
        "gpu-lab doctor --from ladder.json",
    )
    sub.add_argument(
        "--from", dest="stored", type=Path, help="replay a stored ladder instead"
    )
    sub.set_defaults(command=_doctor)


def _doctor(args: argparse.Namespace) -> int:
    from gpu_lab import hardware

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
    print(f"  {hardware.install_command(machine)}")
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
    sub.set_defaults(command=_bench)


def _bench(args: argparse.Namespace) -> int:
    import tempfile

    from gpu_lab import redact, show, store
    from gpu_lab.course import fresh, report, session

    if args.sessions < 1:
        raise GpuLabError(f"{args.sessions} sessions; wanted 1 or more")
    given: dict[str, Any] = {
        "device": args.device,
        "profile": "quick",
        "seed": args.seed,
    }
    given["names"] = tuple(args.names)
    with tempfile.TemporaryDirectory(prefix="gpu-lab-") as empty:
        folder = args.out or Path(empty)
        found = session.measure_core(folder=folder, **given)  # this process is fresh
        for _ in show.progress(range(1, args.sessions), what="sessions"):
            if cause := fresh.session(out=folder, **given):
                raise GpuLabError(cause)
        sessions, _problems = store.readable(folder)
    if args.json:
        print(json.dumps(redact.tree(records.plain(found)), ensure_ascii=False))
    elif args.sessions > 1:
        print(show.Table(report.core_table(sessions), report.CORE_COLUMNS))
    else:
        print(show.measurements(found.measurements))
    return EXIT_FINDING if session.failed(found) else 0


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
    sub.add_argument("--by", default="matmul_fp32", help="row that sorts the table")
    sub.add_argument("--html", type=Path, metavar="FILE", help="write a page")
    sub.add_argument("--json", action="store_true", help="the verdicts as JSON")
    sub.set_defaults(command=_compare)


def _compare(args: argparse.Namespace) -> int:
    from gpu_lab import compare, store
    from gpu_lab.course import versus

    if len(args.runs) < 2:
        raise GpuLabError("one run; wanted a reference and a candidate, or more")
    runs = store.rename([store.load_run(address) for address in args.runs])
    if len(runs) > 2:
        return _fleet(args, runs)
    if args.margin is not None and not 0 < args.margin < 100:
        raise GpuLabError(f"margin {args.margin:g} %; wanted one above 0, below 100")
    again = store.load_run(args.again) if args.again else None
    reference, candidate = runs
    rows = compare.versus(
        reference,
        candidate,
        allow=[key for key in args.allow.split(",") if key],
        margin=None if args.margin is None else args.margin / 100,
        again=again,
    )
    if args.html:
        versus.write(args.html, reference, candidate, rows, again)
    if args.json:
        print(json.dumps(versus.tree(reference, candidate, rows), ensure_ascii=False))
    else:
        print("\n".join(versus.lines(reference, candidate, rows)))
    slower = any(r.comparison.verdict is records.Verdict.SLOWER for r in rows)
    return EXIT_FINDING if slower else 0


def _fleet(args: argparse.Namespace, runs: list[records.Run]) -> int:
    from gpu_lab import compare
    from gpu_lab.course import versus

    if args.again or args.allow or args.margin is not None:
        raise GpuLabError(
            f"{len(runs)} runs are a table without verdicts; --allow, --again and "
            "--margin need a reference and a candidate"
        )
    members = compare.fleet(runs, by=args.by)
    if args.html:
        versus.write_fleet(args.html, members, by=args.by)
    if args.json:
        print(json.dumps(versus.fleet_tree(members), ensure_ascii=False))
    else:
        print("\n".join(versus.fleet_lines(members)))
    return 0


def _fit_command(commands: Commands[Parser]) -> None:
    sub = _add(
        commands,
        "fit",
        "Will this model run in that memory, how fast? No GPU, no weights needed.",
        "gpu-lab fit torchvision:resnet50 --batch 64 --precision bf16 --memory 8GiB",
    )
    sub.add_argument("model", metavar="MODEL", help="torchvision:NAME or FILE.py:NAME")
    for name, default, text in (
        ("input", "", "sizes such as 8x3x224x224; tokens: 8x128:int"),
        ("task", "train", "train, infer or decode (one token)"),
        ("optimizer", "adamw", "sgd, momentum, adam, adamw, rmsprop, adafactor"),
        ("precision", "fp32", "fp32, bf16, fp16, bf16-true, fp16-true"),
        ("loss", "cross-entropy", "cross-entropy or mean"),
        ("memory", "", "what there is, such as 8GiB"),
        ("card", "", "name as in data/gpus.csv: its memory and its speed"),
        ("link", "", "such as thunderbolt4: how much slower than an x16 slot"),
        ("run", "", "run folder whose curves give the speed"),
    ):
        sub.add_argument(f"--{name}", default=default, help=text)
    sub.add_argument("--batch", type=int, help="replaces the first size of the inputs")
    sub.add_argument("--accumulate", type=int, default=1, help="micro-batches a step")
    sub.add_argument("--checkpoint", action="store_true", help="run blocks twice")
    sub.add_argument("--cards", action="store_true", help="a table of all cards")
    sub.add_argument("--prices", type=Path, help="yours: a CSV file, name and price")
    sub.set_defaults(command=_fit)


def _fit(args: argparse.Namespace) -> int:
    from gpu_lab import bench, facts, fit, show, store, units

    card = bench.ceiling.card(args.card) if args.card else None
    there = fit.of_card(card) if card else None
    there = fit.of_run(store.load_run(args.run)) if args.run else there
    limit = fit.card_bytes(card) if card else 0.0
    limit = units.parse_size(args.memory) if args.memory else limit
    link = facts.link(args.link) if args.link else None
    if link and not there:
        raise GpuLabError("--link needs the speed of a card: try --card or --run")
    words = ("task", "optimizer", "precision", "accumulate", "checkpoint", "loss")
    setting = fit.Setting(**{word: getattr(args, word) for word in words})
    case = fit.load(args.model, inputs=args.input, batch=args.batch)
    found = fit.predict(case, setting)
    if args.cards:
        print(*show.cards(found, prices=args.prices), sep="\n")
        return 0
    for line in fit.answer.lines(case, setting, found, memory_bytes=limit):
        print(line, flush=True)
    if there:
        speed_lines = fit.answer.speed_lines(found, setting, there, limit, link=link)
        print(*speed_lines, sep="\n")
    said = fit.verdict(found, limit) if limit else fit.FITS
    changes = fit.answer.changes(case, setting) if said != fit.FITS else []
    for change in show.progress(changes, what="changes"):
        print(fit.answer.change_line(case, change, limit, before=found), flush=True)
    return EXIT_FINDING if said == fit.NOT else 0


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
