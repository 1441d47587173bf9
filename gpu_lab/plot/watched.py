"""What the machine did meanwhile: host and GPUs, in percent over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_lab.plot.picture import Picture, finish, new_axes


def watched(samples: Sequence[dict[str, Any]]) -> Picture:
    """How busy host and GPUs were, from samples of the monitor; a lost GPU is named."""
    figure, axes = new_axes()
    at_s = [sample["elapsed_s"] for sample in samples]
    lines = {"host CPU": [s["cpu_percent"] for s in samples]}
    lines["host memory"] = [s["memory_percent"] for s in samples]
    title = f"{len(samples)} samples"
    for number, last in enumerate(samples[-1]["gpus"] if samples else ()):
        name = f"GPU {last['index']}"
        lines[name] = [s["gpus"][number].get("busy_percent") for s in samples]
        title += f"; {name} was lost" if last["lost"] else ""
    for (name, values), marker in zip(lines.items(), "osD^v<>", strict=False):
        kept = [float("nan") if value is None else value for value in values]
        axes.plot(at_s, kept, marker=marker, label=name)
    axes.set(xlabel="time (s)", ylabel="busy or used (%)", ylim=(0, 105), title=title)
    axes.legend(loc="upper left", framealpha=1.0)
    source = samples[0]["source"] if samples else "nothing was watched"
    alt = f"Lines over time: {', '.join(lines)}, in percent. {title}. {source}."
    return finish(figure, alt=alt, caption=f"{title}. {source}.")
