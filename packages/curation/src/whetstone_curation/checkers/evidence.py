"""The evidence of a checker's trial, and its place in a problem."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import Problem, PythonChecker
from whetstone.data.card import CheckerRecord

# Key of `Problem.meta`: the model that wrote the checker, and its evidence.
KEY = "checker_evidence"


class CheckerEvidence(Struct, frozen=True):
    """The evidence of a checker: counts of accepted and rejected answers; ``freer`` is an answer that it
    accepts and the comparison does not."""

    references: int = 0
    cases: int = 0
    layouts: int = 0
    trivial: int = 0
    wrong: int = 0
    mutants: tuple[int, int] = (0, 0)
    spoiled: tuple[int, int] = (0, 0)
    freer: str = ""

    def summary(self) -> str:
        """Return the evidence as one line."""
        return (
            f"accepts {self.references} references on {self.cases} cases and {self.layouts} layouts; refuses "
            f"{self.trivial} trivial programs, {self.wrong} known wrong ones, {self.mutants[0]} of "
            f"{self.mutants[1]} mutants, {self.spoiled[0]} of {self.spoiled[1]} spoiled answers; freer than "
            f"the comparison: {self.freer}"
        )


class _WrittenBy(CheckerEvidence, frozen=True):
    """The evidence of a checker that ``model`` wrote; ``attempt`` is the number of attempts before it."""

    model: str = ""
    attempt: int = 0


def written_checker(problem: Problem) -> _WrittenBy | None:
    """Return the evidence of the problem's checker; None if no model wrote it."""
    if not isinstance(problem.checker, PythonChecker) or KEY not in problem.meta:
        return None
    try:
        return msgspec.convert(problem.meta[KEY], _WrittenBy)
    except msgspec.ValidationError:
        return None


def with_checker(
    problem: Problem, source: str, evidence: CheckerEvidence, model: str, attempt: int
) -> Problem:
    """Return the problem with a checker that a model wrote, and its evidence."""
    facts: dict[str, Any] = {"model": model, "attempt": attempt, **msgspec.to_builtins(evidence)}
    meta = {**problem.meta, KEY: facts}
    return msgspec.structs.replace(problem, checker=PythonChecker(source), meta=meta)


def card_record(problem: Problem) -> CheckerRecord | None:
    """Return what the data card says about the problem's checker; None if no model wrote it."""
    evidence = written_checker(problem)
    return None if evidence is None else CheckerRecord(problem.id, evidence.model, evidence.summary())
