"""The monitor's two faces.

In a notebook a thread samples and sets one trait of a widget; in a terminal there are
lines, or a log of one a second.
"""

from __future__ import annotations

import functools
import html
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from gpu_lab import plot, show
from gpu_lab.monitor.reading import Reader, Sample, lines

SHORTEST_S = 0.25  # a browser is told at most 4 times a second
LINK_S = 5.0  # between two looks at the traffic of the link, which take 40 ms
MOST = 7200  # samples that are kept


class Monitor:
    """Samples in a thread of its own, from start to stop; never prints.

    The thread ends with the process. `tell` gets each sample, in that thread.
    """

    def __init__(
        self, period_s: float = 0.5, *, tell: Callable[[Sample], None] | None = None
    ) -> None:
        """A monitor that does not run yet."""
        self.samples: deque[Sample] = deque(maxlen=MOST)
        self.period_s = max(period_s, SHORTEST_S) if tell else period_s
        self._tell, self._ended = tell, Event()
        self._thread = Thread(target=self._run, daemon=True, name="monitor")

    def start(self) -> Monitor:
        """Begin to sample."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End within a period; what hangs in a driver is left behind."""
        self._ended.set()
        self._thread.join(self.period_s)

    def _run(self) -> None:
        reader, number = Reader(), 0
        often = max(1, round(LINK_S / self.period_s))
        while not self._ended.wait(self.period_s):
            self.samples.append(reader.read(link=number % often == 0))
            number += 1
            if self._tell and not self._ended.is_set():
                self._tell(self.samples[-1])


@contextmanager
def watch(period_s: float = 0.5) -> Iterator[Monitor]:
    """Watch what runs inside the block: live in a notebook, afterwards as a picture.

    Where nobody looks (a test, papermill) it records, and prints one line at the end.
    """
    view = None if show.quiet() else _view()
    monitor = Monitor(period_s, tell=view and functools.partial(_tell, view)).start()
    try:
        yield monitor
    finally:
        monitor.stop()
        if view:
            view.value = plot.watched(monitor.samples)._repr_html_()
        else:
            print(f"watched: {len(monitor.samples)} samples")


def _tell(view: Any, sample: Sample) -> None:
    view.value = "<br>".join(html.escape(line) for line in lines(sample))


def _view() -> Any:
    """A text in the notebook, which a thread may change."""
    from IPython.display import display
    from ipywidgets import HTML

    view = HTML("…")
    display(view)  # type: ignore[no-untyped-call]  # IPython has none
    return view


def run(*, log: Path | None = None, seconds: float | None = None) -> None:
    """Print a sample a second, or append it to a log as a line of JSON, until Ctrl-C.

    Raises:
        OSError: the log cannot be written.
    """
    reader, end = Reader(), time.monotonic() + (seconds or math.inf)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        sample = reader.read(link=True)
        if log:
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(sample)}\n")
        else:
            print("\n".join(lines(sample)), flush=True)
