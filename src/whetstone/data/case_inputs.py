"""The inputs of the cases of problems as text, for people who read verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from whetstone.core.call_tests import CallCase, CallTests
from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, NoTests, Problem
from whetstone.data.builtin import SET_NAMES
from whetstone.data.dataset import open_problems, place_of

# The most characters of an input, and of all inputs of the sets of a run.
_MOST_INPUT, _MOST_TEXT = 400, 64_000_000


def input_texts(problem: Problem) -> list[str]:
    """Return the input of each case: standard input, a call, or an assertion. Empty if the tests have no
    separate cases."""
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return list(tests.asserts or [])
    if isinstance(tests, NoTests):
        return []
    if isinstance(tests, CallTests):
        return [call_text(tests, case) for case in tests.cases]
    return [case.input for case in tests.cases]


def call_text(tests: CallTests, case: CallCase) -> str:
    """Return the call of a case, or a line for each of its operations."""
    if case.operations is not None:
        return "\n".join(
            f"{name}{_json(args)}" for name, args in zip(case.operations, case.args, strict=True)
        )
    name = f"{tests.class_}().{tests.function}" if tests.class_ else tests.function
    values = [_json(value) for value in case.args] + [f"{k}={_json(v)}" for k, v in case.kwargs.items()]
    return f"{name}({', '.join(values)})"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class CaseInputs:
    """The inputs of the cases in some problem sets, read when the first one is asked for. Thread-safe.

    sets: names or paths of problem sets. A set that cannot be read has no inputs.
    may_read: whether a path may be read. Sets that ship always are.
    """

    def __init__(self, sets: Iterable[str], may_read: Callable[[Path], bool] = lambda path: True) -> None:
        self._sets, self._may_read = list(dict.fromkeys(sets)), may_read
        self._texts: dict[str, list[str]] | None = None
        self._lock = Lock()

    def of(self, problem_id: str) -> list[str]:
        """Return the inputs of a problem's cases, each cut after 400 characters; empty if unknown."""
        with self._lock:
            if self._texts is None:
                self._texts = self._read()
            return self._texts.get(problem_id, [])

    def _read(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        left = _MOST_TEXT
        for name in self._sets:
            try:
                if name not in SET_NAMES and not self._may_read(place_of(name)):
                    continue
                for problem in open_problems(name):
                    texts = [_cut(text) for text in input_texts(problem)]
                    left -= sum(map(len, texts))
                    if left < 0:
                        return found
                    found.setdefault(problem.id, texts)
            # A page must not fail because a data set was moved or replaced.
            except UserError:
                continue
        return found


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_INPUT else f"{text[:_MOST_INPUT]} …"
