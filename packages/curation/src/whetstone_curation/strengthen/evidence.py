"""The evidence for the new tests of a problem, and its place in the problem."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import Problem
from whetstone.data.card import StrengthRecord

# The key in `Problem.meta`.
KEY = "strengthened"


class StrengthenEvidence(Struct, frozen=True):
    """Counts of what was tried and found.

    first, added: there are ``added`` new tests, from number ``first`` on (in ``check`` code: asserts at its
    end). inputs: number made; invalid: number on which a reference failed or that the validator rejected;
    unlabelled: number without an answer that can be a test, on which references or their runs disagree, or
    with a tie.
    references: number of programs that label inputs. samples: number of unlabelled programs that the tests
    accept; disputed: number of inputs dropped because too many of these contradict the references.
    mutants, wrong: number tried, rejected by the tests before, and rejected now. cpu_s: CPU seconds of the
    new tests together, of the slowest reference. why: the reason for each new test.
    """

    first: int = 0
    added: int = 0
    inputs: int = 0
    invalid: int = 0
    unlabelled: int = 0
    references: int = 0
    samples: int = 0
    disputed: int = 0
    mutants: tuple[int, int, int] = (0, 0, 0)
    wrong: tuple[int, int, int] = (0, 0, 0)
    cpu_s: float = 0.0
    why: list[str] = []

    def summary(self) -> str:
        """Return the counts as one line."""
        tried, before, after = self.mutants
        words = [f"{self.added} tests of {self.inputs} inputs, labelled by {self.references} references"]
        if tried:
            words.append(f"mutants rejected {before} before and {after} now, of {tried}")
        if self.wrong[0]:
            words.append(
                f"wrong programs rejected {self.wrong[1]} before and {self.wrong[2]} now, of {self.wrong[0]}"
            )
        if self.samples:
            words.append(
                f"{self.disputed} inputs dropped, because too many of {self.samples} samples disagree"
            )
        words.append(f"up to {self.cpu_s:g} s of CPU time")
        return "; ".join(words)


def evidence_of(problem: Problem) -> StrengthenEvidence | None:
    """Return the evidence of a problem's new tests; None if it has none."""
    if KEY not in problem.meta:
        return None
    try:
        return msgspec.convert(problem.meta[KEY], StrengthenEvidence)
    except msgspec.ValidationError:
        return None


def with_evidence(problem: Problem, evidence: StrengthenEvidence) -> Problem:
    """Return the problem with the evidence of its new tests."""
    facts: dict[str, Any] = msgspec.to_builtins(evidence)
    return msgspec.structs.replace(problem, meta={**problem.meta, KEY: facts})


def card_record(problem: Problem) -> StrengthRecord | None:
    """Return what the data card says about a problem's new tests; None if it has none."""
    evidence = evidence_of(problem)
    if evidence is None:
        return None
    return StrengthRecord(problem.id, evidence.first, evidence.added, evidence.summary())
