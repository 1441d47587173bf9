"""Small views for notebooks and terminals: passport, tables, verdicts, progress."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_lab import facts, fit, units
from gpu_lab.bench import ceiling
from gpu_lab.compare import Row, paired
from gpu_lab.compare.pairs import FEWEST_SESSIONS
from gpu_lab.hardware import host, torch_view
from gpu_lab.records import (
    Comparison,
    Device,
    Ladder,
    Link,
    Machine,
    Measurement,
    Verdict,
)
from gpu_lab.store import SKIP_VARIABLE

if TYPE_CHECKING:
    from pandas import DataFrame

PROGRESS_VARIABLE = "GPU_LAB_PROGRESS"
HOT = "the data lay in a cache: this is not the memory's rate"
T = TypeVar("T")


class Table:
    """A pandas DataFrame that shows its texts whole: HTML in Jupyter, else text."""

    def __init__(
        self, rows: Iterable[Sequence[str]], columns: Sequence[str], legend: str = ""
    ) -> None:
        """A table of texts; the legend stands once below it."""
        import pandas

        self.frame: DataFrame = pandas.DataFrame(list(rows), columns=list(columns))
        self.legend = legend

    def _repr_html_(self) -> str:
        import pandas

        with pandas.option_context("display.max_colwidth", None):
            table = self.frame.to_html(index=False, border=0, justify="left")
        # Jupyter sets cells flush right, which texts are hard to read in.
        table = table.replace("<td>", '<td style="text-align: left">')
        return f"{table}<p><small>{self.legend}</small></p>" if self.legend else table

    def __repr__(self) -> str:
        """Aligned text: what a terminal, a test and a screen reader get."""
        text = self.frame.to_string(index=False, justify="left", max_colwidth=None)
        return f"{text}\n{self.legend}" if self.legend else text


def passport(machine: Machine, device: Device, *, crashed: Sequence[str] = ()) -> Table:
    """Which machine this is: the same rows everywhere, n/a where nobody can tell.

    Args:
        crashed: experiments inside which the machine stopped before.
    """
    skip = f"{SKIP_VARIABLE}={','.join(crashed)} leaves it out"
    stopped = f"{', '.join(crashed)}; {skip}" if crashed else "none"
    rows = [*passport_rows(machine, device), ("stopped inside before", stopped)]
    return Table(rows, ("passport", "this machine"))


def passport_rows(machine: Machine, device: Device) -> list[tuple[str, str]]:
    """Rows of the passport as (what, text)."""
    versions = machine.versions
    build = next(
        (f"{k} {versions[k]}" for k in ("cuda", "hip") if k in versions), "CPU"
    )
    state = device.state
    return [
        ("device", f"{device.label} {device.name}{_marks(device)}"),
        ("device memory", units.memory(device.memory_bytes)),
        ("link", link(device.link) if device.is_gpu else units.NOT_AVAILABLE),
        ("device power", units.power(state.power_w if state else None)),
        ("device heat", units.temperature(state.temperature_c if state else None)),
        ("processor", f"{machine.cpu_name}, {machine.cpu_threads} threads"),
        ("memory", units.memory(machine.memory_bytes)),
        ("system", f"{machine.system} {machine.environment}".strip()),
        ("power source", machine.power_source or units.NOT_AVAILABLE),
        ("driver", machine.driver_version or units.NOT_AVAILABLE),
        ("torch", f"{versions.get('torch', units.NOT_AVAILABLE)} ({build} build)"),
        ("other devices", _others(machine, device)),
    ]


def link(found: Link | None) -> str:
    """The link, such as "thunderbolt3, external: PCIe 3 x4 (max 4 x16)"."""
    if found is None:
        return "not told"
    now = _lanes(found.pcie_gen_current, found.pcie_width_current)
    most = _lanes(found.pcie_gen_max, found.pcie_width_max)
    lanes = f"PCIe {now} (max {most})" if found.pcie_width_current else "not told"
    if found.kind == "unknown" and found.external is None:
        return lanes
    where = {True: "external", False: "internal", None: "place not told"}
    return f"{found.kind}, {where[found.external]}: {lanes}"


def _lanes(gen: int | None, width: int | None) -> str:
    return f"{gen or '?'} x{width or '?'}"


def detected(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of `gpu-lab detect`: driver, each GPU with its link and why, remarks."""
    cuda = f" (CUDA {found['cuda_version']})" if found["cuda_version"] else ""
    rows = [("driver", f"{found['driver_version'] or units.NOT_AVAILABLE}{cuda}")]
    for number, gpu in enumerate(found["gpus"]):
        place = {k: v for k, v in gpu.items() if k.startswith("pcie_")}
        path = Link(kind=gpu["link"], external=gpu["external"], **place)
        rows.append((f"gpu {number}", f"{gpu['name']} {gpu['bus_id'] or ''}".strip()))
        rows += [("  link", link(path)), ("  why", "; ".join(gpu["evidence"]))]
        rows += [("  note", gpu["note"])] if gpu["note"] else []
    for key in ("interconnect", "mig_devices"):
        rows += [(key.replace("_", " "), str(found[key]))] if found[key] else []
    return rows + [("note", text) for text in found["notes"]]


def computer() -> list[tuple[str, str]]:
    """Rows about the computer around the GPUs; torch is not imported for it."""
    return [
        ("processor", f"{host.cpu_name()}, {host.threads()} threads"),
        ("memory", units.memory(host.memory_bytes())),
        ("system", f"{host.system()} {host.environment()}".strip()),
        ("torch", torch_view.versions().get("torch", units.NOT_AVAILABLE)),
    ]


def measurements(rows: Iterable[Measurement]) -> Table:
    """Rows with source, median time, rate and spread; reasons where there is none."""
    return Table(
        [_measurement_row(m) for m in rows],
        ("experiment", "source", "time (ms)", "rate", "spread", "remark"),
        units.LEGEND,
    )


def what(row: Measurement) -> str:
    """Name of a row with its size: rows of other sizes are other experiments."""
    n, size_bytes = row.settings.get("n"), row.settings.get("size_bytes")
    if isinstance(n, int):
        return f"{row.name} (n = {n})"
    if isinstance(size_bytes, int):
        return f"{row.name} ({units.size(size_bytes)})"
    return row.name


def rate(row: Measurement) -> str:
    """Rate of a row in its own unit; n/a where there is none."""
    if row.work_unit == "FLOP":
        return units.flops(row.rate)
    if row.work_unit in ("sample", "token"):
        return units.pace(row.rate, row.work_unit)
    return units.bandwidth(row.rate if row.work_unit == "byte" else None)


def ladder(found: Ladder) -> Table:
    """The six rungs, bottom first, numbered from 1."""
    rows = [
        (str(i), r.name, r.answer, r.evidence) for i, r in enumerate(found.rungs, 1)
    ]
    return Table(rows, ("rung", "name", "answer", "evidence"), found.note)


def ladder_sentence(found: Ladder) -> str:
    """How high this machine stands, and what to do about the first failed rung."""
    where = f"{found.owner} stands on rung {found.height} of {len(found.rungs)}."
    if found.first_failed is None:
        return where
    return f"{where} First failed: {found.first_failed.name}. {found.remedy}"


def paired_sentence(
    reference: Measurement, candidate: Measurement, *, margin: float | None = None
) -> str:
    """What the same rounds say about two rows: who is faster, by how much, how surely.

    The verdict of `compare.paired` in words, with its 95 % interval and its doubts.
    """
    found = paired(reference, candidate, margin=margin)
    pair = f"{candidate.name} against {reference.name}: {verdict_words(found)}"
    if found.speedup is None:
        return pair
    flags = sorted({*reference.flags, *candidate.flags})
    doubt = f"; flags: {', '.join(flags)}" if flags else ""
    return f"{pair}, {reference.source}{doubt}"


def verdict_words(found: Comparison) -> str:
    """A comparison in words: verdict, speedup with its interval, doubts and notes."""
    if found.speedup is None:
        return f"{found.verdict} ({found.reason})"
    text = f"{found.verdict}, speedup {units.ratio(found.speedup, 3)}"
    if found.low and found.high and math.isfinite(found.high):
        text += f" ({units.ratio(found.low, 3)} to {units.ratio(found.high, 3)})"
    if found.verdict is Verdict.NO_DIFFERENCE:
        text += f"; {_could_have_shown(found)}"
    return f"{text}; {found.note}" if found.note else text


def _could_have_shown(found: Comparison) -> str:
    smallest = units.percent(found.smallest)
    k, other = found.sessions
    if not k or min(k, other) >= FEWEST_SESSIONS:
        return f"these data could have shown {smallest}"
    few = f"{k} against {other} sessions cannot show one"
    return f"{few}; 5 against 5 could show {smallest}" if found.smallest else few


def in_short(rows: Sequence[Row], *, reference: str, candidate: str) -> list[str]:
    """What a comparison of two runs says, in at most four sentences."""
    by: dict[Verdict, list[str]] = {}
    for row in rows:
        ratio = units.ratio(row.comparison.speedup, 3)
        sure = row.comparison.verdict in (Verdict.FASTER, Verdict.SLOWER)
        text = f"{row.name} ({ratio})" if sure else row.name
        by.setdefault(row.comparison.verdict, []).append(text)
    says_nothing = by.get(Verdict.NO_DIFFERENCE, []) + by.get(
        Verdict.NOT_COMPARABLE, []
    )
    parts = (
        (f"{candidate} is faster than {reference} at", by.get(Verdict.FASTER)),
        (f"{candidate} is slower than {reference} at", by.get(Verdict.SLOWER)),
        ("Both are equally fast, within the margin, at", by.get(Verdict.EQUIVALENT)),
        ("Nothing can be said about", says_nothing),
    )
    return [f"{words} {', '.join(names)}." for words, names in parts if names]


def link_sentence(bytes_per_s: float | None, told: Link | None) -> str:
    """What large copies reach, against the bound of the link, and what it looks like.

    Args:
        bytes_per_s: asymptote of the fit (`bench.fit_link`); None where not measured.
        told: the link as the driver tells it, best under load.
    """
    if not bytes_per_s:
        return f"Large copies: {units.NOT_AVAILABLE}; no link was measured"
    text = f"Large copies: {units.bandwidth(bytes_per_s)}"
    if told and told.pcie_gen_max and told.pcie_width_current:
        bound = ceiling.pcie(told.pcie_gen_max, told.pcie_width_current)
        text += f", {ceiling.share(bytes_per_s, bound)} of {bound.how}"
    alike = ", ".join(fit.links_like(bytes_per_s)) or "no published one"
    return f"{text}; like {alike} (CITED)"


def claims(*ids: str) -> Table:
    """Claims of popular articles by id, with verdict, correction and source."""
    columns = ("id", "claim", "verdict", "correction", "source")
    found = [facts.claim(claim_id) for claim_id in ids]
    return Table([[row[name] for name in columns] for row in found], columns)


def flags(rows: Iterable[Measurement]) -> str:
    """What was wrong during the run, by row; or that nothing was seen."""
    raised = [f"{row.name}: {', '.join(row.flags)}" for row in rows if row.flags]
    return f"Flags: {'; '.join(raised)}" if raised else "Flags: none"


def verdict(title: str, checks: dict[str, bool]) -> None:
    """Print a count and one fixed line per check.

    Raises:
        AssertionError: a check is false; the message names all that are.
    """
    print(f"{title}: {len(checks)} checks")
    for text, good in checks.items():
        print(f"{'ok' if good else 'NOT OK'}  {text}")
    failed = [text for text, good in checks.items() if not good]
    assert not failed, f"not true: {'; '.join(failed)}"


def progress(items: Iterable[T], *, what: str) -> Iterable[T]:
    """The same items with a progress bar; silent when nobody watches."""
    if quiet():
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=what, leave=False)


def quiet() -> bool:
    """True when no bar may be shown: switched off, or not a terminal or notebook."""
    if os.environ.get(PROGRESS_VARIABLE) == "0":
        return True
    return not _in_notebook() and not sys.stderr.isatty()


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


def _marks(device: Device) -> str:
    simulated = " [SIMULATED]" if device.simulated else ""
    return f"{simulated} [not usable: {device.lost}]" if device.lost else simulated


def _others(machine: Machine, device: Device) -> str:
    others = [d for d in machine.gpus if d.label != device.label]
    names = (f"{d.label} {d.name}{_marks(d)}" for d in others)
    return "; ".join(names) or "none"


def _measurement_row(row: Measurement) -> tuple[str, ...]:
    spread: Any = None
    if row.median_s and row.iqr_s is not None:
        spread = row.iqr_s / row.median_s
    return (
        row.name,
        str(row.source),
        units.milliseconds(row.median_s),
        rate(row),
        units.percent(spread),
        row.reason or (HOT if "hot-cache" in row.flags else ""),
    )
