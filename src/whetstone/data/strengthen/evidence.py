"""What new tests of a problem are there for, and where that stands in it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import Problem

# In `Problem.meta`: how many tests are ours, and what they showed.
KEY = "strengthened"


class StrengthenEvidence(Struct, frozen=True):
    """What was tried and what it gave.

    first, added: the new tests are ``added``, from number ``first`` on (of ``check`` code: asserts at its
    end). inputs: those that were made; invalid: on which a reference failed, or which the validator refused;
    unlabelled: which have no answer that can be a test, or on which references or their runs disagree.
    references: those that label them. samples: the unlabelled programs that the tests accept; disputed:
    inputs that were dropped because more than half of these contradict the references. mutants, wrong: how
    many were tried, how many the tests refused before and refuse now. cpu_s: what the new tests take
    together, of the slowest reference. written: inputs of generators that a model wrote.
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
    written: int = 0
    why: list[str] = []
    """For each new test, what it is kept for."""

    def said(self) -> str:
        """In one line."""
        tried, before, after = self.mutants
        words = [f"{self.added} tests of {self.inputs} inputs, labelled by {self.references} references"]
        if tried:
            words.append(f"mutants refused {before} before and {after} now, of {tried}")
        if self.wrong[0]:
            words.append(
                f"wrong programs refused {self.wrong[1]} before and {self.wrong[2]} now, of {self.wrong[0]}"
            )
        if self.samples:
            words.append(f"{self.disputed} inputs dropped, on which most of {self.samples} samples disagree")
        words.append(f"up to {self.cpu_s:g} s of CPU time")
        return "; ".join(words)


def evidence_of(problem: Problem) -> StrengthenEvidence | None:
    """The evidence of the problem's new tests; None where none are ours."""
    if KEY not in problem.meta:
        return None
    try:
        return msgspec.convert(problem.meta[KEY], StrengthenEvidence)
    except msgspec.ValidationError:
        return None


def with_evidence(problem: Problem, evidence: StrengthenEvidence) -> Problem:
    """The problem, whose new tests are marked as ours."""
    facts: dict[str, Any] = msgspec.to_builtins(evidence)
    return msgspec.structs.replace(problem, meta={**problem.meta, KEY: facts})
