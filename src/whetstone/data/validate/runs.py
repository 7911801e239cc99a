"""Run a program of a problem through the judge. It is retried if the judge fails, and raises nothing."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import Any, Protocol

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program
from whetstone.judge import Judgement, Verdict
from whetstone.judge.languages.table import language_named


class JudgesPrograms(Protocol):
    """The interface of validation to a judge. It is called from several threads."""

    def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        """Judge one program and wait for the judgement."""
        ...


class Runs:
    """Judges programs for all threads of a validation. After ``stop`` every run raises CancelledError."""

    def __init__(self, judge: JudgesPrograms, attempts: int) -> None:
        self._judge = judge
        self._attempts = attempts
        self._stopped = threading.Event()

    def run(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        """Return the judgement. It is JUDGE_ERROR if every attempt failed, or the language is missing."""
        for attempt in range(1, self._attempts + 1):
            if self._stopped.is_set():
                raise CancelledError
            try:
                judgement = self._judge.judge(problem, program, **options)
            except UserError as error:
                # A missing language would fail again.
                return Judgement(Verdict.JUDGE_ERROR, [], None, "", str(error))
            if judgement.verdict is not Verdict.JUDGE_ERROR or attempt == self._attempts:
                return judgement
        raise AssertionError("there is at least one attempt")

    def stop(self) -> None:
        """Start no further runs."""
        self._stopped.set()


def is_python(program: Program) -> bool:
    """Return whether a program's language is Python 3, under any of its names; False for
    unknown languages."""
    try:
        return not language_named(program.language, "the program").run
    except UserError:
        return False
