"""One question to `gpu-lab fit`, answered line by line, the answer first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_lab.bench import ceiling
from gpu_lab.fit import answer, cards, link, speed
from gpu_lab.fit.memory import Prediction, predict
from gpu_lab.fit.model import Case
from gpu_lab.fit.speed import Speed
from gpu_lab.fit.step import Setting
from gpu_lab.records import GpuLabError, Run


@dataclass(frozen=True, kw_only=True)
class Question:
    """A step, and where it is to run: memory, speed and link as far as they are known.

    Attributes:
        memory_bytes: what there is, 0 when nobody said.
        said: "fits", "on the edge", "does not fit"; "" without a memory.
    """

    case: Case
    setting: Setting
    found: Prediction
    memory_bytes: float = 0.0
    speed: Speed | None = None
    rate: link.Rate | None = None

    @property
    def said(self) -> str:
        """The verdict; empty when no memory was named."""
        there = self.memory_bytes
        return answer.verdict(self.found, there) if there else ""

    def lines(self) -> Iterator[str]:
        """The answer, the split of the peak, the largest batch, seconds, the link."""
        yield from answer.lines(self.found, self.memory_bytes)
        if self.memory_bytes:
            yield self._batch_line()
        step_s = self.speed.step_s(self.found.work) if self.speed else None
        if self.speed:
            yield speed.sentence(self.speed, step_s)
        if self.rate:
            yield from self._link_lines(step_s)

    def _batch_line(self) -> str:
        most = answer.largest_batch(
            self.case, self.setting, self.memory_bytes, known=self.found
        )
        text = "any that was tried" if most is None else most or "none"
        return f"largest batch that fits for sure: {text}"

    def _link_lines(self, step_s: float | None) -> list[str]:
        if not (self.speed and step_s and self.rate):
            return ["link: n/a without the seconds of a step"]
        size_bytes = link.crossing_bytes(
            self.found, task=self.setting.task, memory_bytes=self.memory_bytes
        )
        loss = link.slowdown(
            size_bytes,
            step_s=step_s,
            factor=self.speed.factor,
            rate=self.rate,
            slot=link.link_rate(link.SLOT),
        )
        return link.loss_lines(loss)

    def options(self) -> list[answer.Change]:
        """Changes worth trying, when it does not surely fit."""
        wanted = self.said in (answer.NOT, answer.EDGE)
        return list(answer.options(self.case, self.setting)) if wanted else []

    def option_line(self, change: answer.Change) -> str:
        """What one change leads to; empty when the module has no place for it."""
        return answer.option_line(
            self.case, change, self.memory_bytes, known=self.found
        )


def question(
    case: Case,
    setting: Setting,
    *,
    memory: str | None = None,
    card: str | None = None,
    run: Run | None = None,
    link_name: str | None = None,
) -> Question:
    """The question with its prediction made.

    Raises:
        GpuLabError: a memory, card, link or module that is none, in one line.
    """
    row = ceiling.card(card) if card else None
    there = answer.size_bytes(memory) if memory else cards.card_bytes(row) if row else 0
    rate = link.link_rate(link_name) if link_name else None
    known = _of_run(run) if run else speed.of_card(row) if row else None
    if rate and not known:
        raise GpuLabError("--link needs a speed to compare with; try --card or --run")
    return Question(
        case=case,
        setting=setting,
        found=predict(case, setting),
        memory_bytes=there,
        speed=known,
        rate=rate,
    )


def _of_run(run: Run) -> Speed:
    """Speed from all rows of a run's sessions that were taken on its device."""
    on = run.first.device
    rows = [m for s in run.sessions for m in s.measurements if m.device == on]
    return speed.of_rows(run.name, rows, queues=run.first.machine.device(on).is_gpu)
