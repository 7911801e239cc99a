"""Call references in the sandbox, to compute the expected values of problems that have inputs only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whetstone.core.closing import Closing
from whetstone.core.problem import CallCase, CallTests, Limits, Problem
from whetstone.judge.kinds.call import values_returned
from whetstone.judge.outcome import crashed, limit_exceeded
from whetstone.judge.sandboxes import SandboxSet
from whetstone.sandbox import Tier


class CallFailed(Exception):
    """A call raised, exceeded a limit or returned a value without a plain form.

    The message gives the reason.
    """


class Caller(Closing):
    """Calls functions of programs in a sandbox of its own. A context manager."""

    def __init__(self, minimum_tier: str = "restricted") -> None:
        """Raises SandboxUnavailable if this machine does not offer the tier."""
        self._sandboxes = SandboxSet(Tier[minimum_tier.upper()])

    def outcomes(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Any]],
        *,
        limits: Limits | None = None,
    ) -> list[Any]:
        """Call ``function`` for each of ``inputs``. Return a value or a CallFailed for each call, in order.

        Each call imports the program anew. Arguments and values are of builtin types, including tuples and
        sets. ``limits`` apply to one call. After a call that exceeds a limit, the others do not run and have
        the same outcome. Raises SandboxFault.
        """
        tests = CallTests([CallCase(expected=None, args=list(arguments)) for arguments in inputs], function)
        problem = Problem("calling", "", tests, limits=limits or Limits())
        results: list[Any] = []
        batch_size = len(inputs)
        while len(results) < len(inputs):
            cases = tests.cases[len(results) : len(results) + batch_size]
            result, answers = values_returned(self._sandboxes, problem, tests, cases, source)
            failed = limit_exceeded(result) or crashed(result)
            place = f"input {len(results) + 1} of `{function}`"
            if failed is None and answers:
                results += [
                    _outcome(answer, f"input {n} of `{function}`")
                    for n, answer in enumerate(answers, len(results) + 1)
                ]
            elif batch_size > 1:
                # The results of the batch may be too large together, so use a smaller one.
                batch_size = max(1, batch_size // 8)
            else:
                failure = CallFailed(f"{place}: {failed.reason if failed else 'no answer'}")
                results += [failure] * (len(inputs) - len(results))
        return results

    def close(self) -> None:
        """End the sandboxes."""
        self._sandboxes.close()


def _outcome(answer: object, place: str) -> Any:
    match answer:
        case ["value", value]:
            return value
        case [str() as what, str() as text]:
            return CallFailed(f"{place}: {what} {text}")
        case _:
            return CallFailed(f"{place}: no answer")
