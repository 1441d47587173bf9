"""What torchrun starts on each rank: named experiments, one JSON line each.

    torchrun --nproc-per-node 2 -m gpu_lab.bench.ddp all_reduce='{"sizes": [4096]}' ring

An experiment may bear another name: slow='{"run": "scaling", "slow": 3}'. "run" may
also be "module:function" of your own; it gets the World and the settings. Rank 0
prints the lines; a rank that fails prints why, and torchrun ends the others.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import pkgutil
import re

from gpu_lab.bench.ddp import EXPERIMENTS, join

# What ranks say that were left alone: a consequence, whoever says it first.
LEFT_ALONE = re.compile(r"closed by|timed? ?out|reset by|broken pipe|remote proc", re.I)


def main() -> None:
    """Join, do what was asked for, leave."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("experiments", nargs="+", help=", ".join(EXPERIMENTS))
    parser.add_argument("--device", default="auto", help="cpu: also where GPUs are")
    parser.add_argument("--limit", type=float, default=3600, help="s; then it ends")
    args = parser.parse_args()
    # Ends this process also when its launcher is gone and it hangs inside a library.
    faulthandler.dump_traceback_later(args.limit, exit=True)
    # Whatever else is printed goes to stderr, and no line is torn apart by another.
    name, lines = "the start", os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**line: object) -> None:
        print(json.dumps(line), file=lines, flush=True)

    try:
        world = join(device=args.device, patience_s=args.limit / 3)
        for text in args.experiments:
            name, _, settings = text.partition("=")
            given = json.loads(settings or "{}")
            run = given.pop("run", name)
            values = (EXPERIMENTS.get(run) or pkgutil.resolve_name(run))(world, **given)
            if world.rank == 0:
                kind = world.device.type
                say(experiment=name, device=kind, ranks=world.ranks, **values)
        world.leave()
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        alone = isinstance(error, RuntimeError) and bool(LEFT_ALONE.search(text))
        say(failed=name, rank=int(os.environ["RANK"]), error=text, alone=alone)
        os._exit(1)  # at a normal end this rank would wait for the others


if __name__ == "__main__":
    main()
