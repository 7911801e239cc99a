"""What a program's function returns for given arguments, computed in the sandbox: how expectations are made.

For importers whose rows hold inputs and a reference, but no outputs. Judging is elsewhere; nothing here
decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from whetstone.judge.boxes import Boxes
from whetstone.judge.kinds.call import values_returned
from whetstone.judge.outcome import crashed, limit_exceeded
from whetstone.problem import CallCase, CallTests, Limits, Problem
from whetstone.sandbox import Tier


class CallFailed(Exception):
    """A call raised, exceeded a limit or returned what has no plain form. The message says which one."""


class Caller:
    """Calls functions of programs in a sandbox of its own. A context manager."""

    def __init__(self, minimum_tier: str = "restricted") -> None:
        """Raises SandboxUnavailable when this machine cannot isolate that strictly."""
        self._boxes = Boxes(Tier[minimum_tier.upper()])

    def returned(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Any]],
        *,
        limits: Limits | None = None,
    ) -> list[Any]:
        """The value of ``function(*arguments)`` for each of ``inputs``, in order, the program imported anew.

        Arguments and values are of builtin types, tuples and sets included. ``limits`` are those of one
        call. Raises CallFailed, and SandboxFault where the sandbox fails.
        """
        tests = CallTests([CallCase(expected=None, args=list(arguments)) for arguments in inputs], function)
        problem = Problem("calling", "", tests, limits=limits or Limits())
        values: list[Any] = []
        together = len(inputs)
        while len(values) < len(inputs):
            cases = tests.cases[len(values) : len(values) + together]
            result, answers = values_returned(self._boxes, problem, tests, cases, source)
            failed = limit_exceeded(result) or crashed(result)
            if (failed is not None or not answers) and together > 1:
                together = 1  # each within limits of its own
                continue
            if failed is not None or not answers:
                reason = failed.reason if failed else "no answer"
                raise CallFailed(f"input {len(values) + 1} of `{function}`: {reason}")
            for answer in answers:
                values.append(_value(answer, f"input {len(values) + 1} of `{function}`"))
        return values

    def close(self) -> None:
        """End the sandboxes."""
        self._boxes.close()

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _value(answer: object, place: str) -> Any:
    match answer:
        case ["value", value]:
            return value
        case [str() as what, str() as text]:
            raise CallFailed(f"{place}: {what} {text}")
        case _:
            raise CallFailed(f"{place}: no answer")
