"""`gpu-lab fit`: will a model run in that memory, and how fast."""

from __future__ import annotations

import argparse

from gpu_lab import bench, facts, fit, show, store, units
from gpu_lab.records import GpuLabError

EXIT_FINDING = 1


def run(args: argparse.Namespace) -> int:
    """Print the answer, its reasons and what would change it; the exit code.

    Raises:
        GpuLabError: a model, setting, card, link or run that is none.
    """
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
