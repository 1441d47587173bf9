"""Pictures of rates: matmul over size, and how sessions scatter."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gpu_lab import units
from gpu_lab.plot.picture import HATCH, Picture, finish, new_axes
from gpu_lab.records import Measurement, Session


def matmul_rates(rows: Sequence[Measurement]) -> Picture:
    """Bars of TFLOPS over matrix size; rows without a rate leave a gap."""
    figure, axes = new_axes()
    sizes = [str(row.settings.get("n", row.name)) for row in rows]
    axes.bar(
        sizes,
        [row.tflops or 0.0 for row in rows],
        hatch=[HATCH.get(row.source, "") for row in rows],
        edgecolor="white",
    )
    title = matmul_title(rows)
    axes.set(xlabel="rows and columns", ylabel="rate (TFLOPS)", title=title)
    source = ", ".join(sorted({str(row.source) for row in rows}))
    return finish(figure, alt=_matmul_alt(rows), caption=f"{title}. {source}.")


def matmul_title(rows: Sequence[Measurement]) -> str:
    """The finding: which size reached the highest rate."""
    known = [row for row in rows if row.tflops]
    if not known:
        return "no matrix product could be timed"
    best = max(known, key=lambda row: row.tflops or 0.0)
    noisy = ", ".join(str(row.settings["n"]) for row in known if row.noisy)
    doubt = f" (noisy: {noisy})" if noisy else ""
    return f"size {best.settings['n']} is fastest: {units.flops(best.rate)}{doubt}"


def _matmul_alt(rows: Sequence[Measurement]) -> str:
    points = (f"{row.settings.get('n')}: {units.flops(row.rate)}" for row in rows)
    return f"Bar chart of matrix product rate by size. {'; '.join(points)}."


def session_spread(sessions: Sequence[Session]) -> Picture:
    """Each session's time of each row, as a multiple of the row's own median."""
    figure, axes = new_axes()
    rows = _ratios(sessions)
    names = list(rows)
    for height, ratios in enumerate(rows.values()):
        axes.scatter(ratios, [height] * len(ratios), marker="o", alpha=0.8)
    axes.axvline(1.0, color="#717581", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    title = spread_title(len(sessions), rows)
    axes.set(xlabel="time / median time of all sessions (ratio)", title=title)
    alt = f"Dot chart, one dot a session, rows {', '.join(names) or 'none'}. {title}."
    kinds = {str(m.source) for s in sessions for m in s.measurements if m.available}
    caption = f"{title}. {', '.join(sorted(kinds))}."
    return finish(figure, alt=alt, caption=caption)


def spread_title(sessions: int, rows: dict[str, list[float]]) -> str:
    """The finding: how far fresh processes lie apart on an unchanged machine."""
    widths = {name: max(ratios) / min(ratios) for name, ratios in rows.items()}
    if not widths:
        return "nothing was timed"
    name = max(widths, key=lambda row: widths[row])
    apart = units.ratio(widths[name])
    return f"{sessions} fresh processes differ by up to {apart} ({name})"


def _ratios(sessions: Sequence[Session]) -> dict[str, list[float]]:
    """Row -> times over their median, for rows that were timed."""
    times: dict[str, list[float]] = {}
    for session in sessions:
        for row in session.measurements:
            if row.median_s:
                times.setdefault(row.name, []).append(row.median_s)
    return {
        name: [t / statistics.median(all_s) for t in all_s]
        for name, all_s in times.items()
    }
