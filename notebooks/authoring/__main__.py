"""Program form of the course's tools, for make and CI."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from authoring import size
from gpu_lab.records import GpuLabError

EXAMPLES = """examples:
  python -m authoring lint
  python -m authoring build 00 --force
  python -m authoring prepare --device cpu --out build/check/cpu
"""


def main(argv: list[str] | None = None) -> int:
    """0 = good, 1 = findings or a failed notebook, 2 = could not, 130 = Ctrl-C."""
    try:
        args = _parser().parse_args(argv)
        return int(args.call(args))
    except KeyboardInterrupt:
        return 130
    except (GpuLabError, OSError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2


def _lint(args: argparse.Namespace) -> int:
    from authoring import lint

    found = lint.lint(tuple(args.names))
    for finding in found:
        print(finding)
    return int(bool(found))


def _build(args: argparse.Namespace) -> int:
    from authoring import build

    if not build.build(tuple(args.names), force=args.force):
        print("all up to date; --force runs them again")
    return 0


def _prepare(args: argparse.Namespace) -> int:
    from authoring import prepare

    made = prepare.prepare(
        tuple(args.names),
        device=args.device,
        profile=args.profile,
        seed=args.seed,
        out=args.out,
    )
    print(f"{len(made)} notebooks in {args.out}")
    return 0


def _reference(args: argparse.Namespace) -> int:
    from gpu_lab import store

    made = store.keep_reference(args.run, args.folder)
    print(f"{len(made)} sessions kept in {args.folder}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m authoring",
        description="Lint, build and prepare the notebooks; count the code.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    _add(commands, "lint", "say what is wrong with the notebooks", _lint)
    one = _add(commands, "build", "build what is not up to date", _build)
    one.add_argument("--force", action="store_true", help="also what is up to date")
    one = _add(commands, "prepare", "copies with parameters, for nbval", _prepare)
    one.add_argument("--device", default="cpu")
    one.add_argument("--profile", default="quick")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--out", type=Path, required=True)
    one = commands.add_parser("reference", help="keep a run of this machine, to ship")
    one.add_argument("run", type=Path, help="run folder")
    one.add_argument("folder", type=Path, help="data/reference/MACHINE")
    one.set_defaults(call=_reference)
    one = commands.add_parser("size", help="lines of code by room")
    one.set_defaults(call=lambda _args: size.main())
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    what: str,
    call: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    one = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
    one.add_argument("names", nargs="*", metavar="NN", help="number or name; all")
    one.set_defaults(call=call)
    return one


if __name__ == "__main__":
    sys.exit(main())
