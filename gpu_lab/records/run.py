"""A run folder as one noun: the sessions of one machine, dock or cable."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_lab.records.measurement import Measurement
from gpu_lab.records.session import Ladder, Session

CORE_SUITE = "core"


@dataclass(frozen=True, kw_only=True)
class Run:
    """Sessions made without changing anything in between; at least one.

    Attributes:
        name: of its folder, as shown.
        left_out: what of the folder is not used, and why.
    """

    name: str
    sessions: tuple[Session, ...]
    left_out: tuple[str, ...] = ()

    @property
    def core(self) -> tuple[Session, ...]:
        """Whole sessions of the core suite: what comparisons are made of."""
        return tuple(s for s in self.sessions if s.suite == CORE_SUITE and s.complete)

    @property
    def first(self) -> Session:
        """The session that speaks for the machine: one of the core suite if any."""
        return (self.core or self.sessions)[0]

    @property
    def ladder(self) -> Ladder | None:
        """The ladder that a notebook climbed; None when none did."""
        return next((s.ladder for s in self.sessions if s.ladder), None)

    @property
    def lessons(self) -> dict[tuple[str, str], Measurement]:
        """(notebook, row) -> what notebooks measured, once each."""
        return {
            (s.suite, row.name): row
            for s in self.sessions
            if s.suite != CORE_SUITE
            for row in s.measurements
        }

    def rows(self, name: str) -> list[tuple[Session, Measurement]]:
        """The row of that name in each session of the core suite that has it."""
        found: list[tuple[Session, Measurement]] = []
        for session in self.core:
            rows = [row for row in session.measurements if row.name == name]
            found += [(session, row) for row in rows[:1]]  # a session counts once
        return found
