"""Programs for one small problem: a correct one, a wrong one and some that cheat, and their verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from whetstone.core.problem import Program
from whetstone.core.toml_files import read_toml
from whetstone.judge import Judge, Judgement


class Candidate(Struct, frozen=True):
    """A program for the problem. ``layer`` names the layer that stops it, if it cheats."""

    title: str
    source: str
    layer: str = ""
    layer_without_namespaces: str = ""
    """The layer that stops it at the tier ``restricted``, if it is another one."""

    def stopped_by(self, isolation: str) -> str:
        """Return the layer that stops it at an isolation tier."""
        return (isolation == "restricted" and self.layer_without_namespaces) or self.layer


class _TourFile(Struct, frozen=True):
    statement: str
    tests: dict[str, Any]
    programs: list[Candidate]


_TOUR = read_toml("whetstone.cli.assets", "tour.toml", _TourFile)
STATEMENT = _TOUR.statement
PROBLEM = {"id": "tour/largest-gap", "statement": STATEMENT, "tests": _TOUR.tests}
CORRECT, WRONG, *CHEATS = _TOUR.programs


class JudgedProgram(Struct, frozen=True):
    """A program and its judgement."""

    candidate: Candidate
    judgement: Judgement

    @property
    def as_expected(self) -> bool:
        """Whether the correct program was accepted, or any other program rejected with a verdict."""
        if self.candidate is CORRECT:
            return self.judgement.accepted
        return self.judgement.score is not None and not self.judgement.accepted

    @property
    def reason(self) -> str:
        """The reason of the first case that was not accepted, in one line."""
        failed = (case for case in self.judgement.cases if case.reason)
        found = next(failed, None)
        return " ".join((found.reason if found else self.judgement.reason).split())


def judge_programs() -> Iterator[JudgedProgram]:
    """Judge every program and yield the results. Raises SandboxUnavailable."""
    with Judge(1) as judge:
        pairs = ((PROBLEM, Program("python", candidate.source)) for candidate in _TOUR.programs)
        for candidate, judgement in zip(_TOUR.programs, judge.judge_many(pairs), strict=True):
            yield JudgedProgram(candidate, judgement)
