"""Read what tests observed, and compare it with what the reference gave. The reports may be hostile."""

from __future__ import annotations

import cmath
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from whetstone.judge.answers.inert import by_key, longest_key, pairs_of, read_one
from whetstone.judge.repository.assertions import Tolerance
from whetstone.judge.repository.telling import ShownValues
from whetstone.judge.values import WireError, decode

_LENGTH = struct.Struct("<I")
PASSED = "passed"
_NUMBERS = (int, float, complex)


class Observation(Struct, frozen=True):
    """One observed value of a test. ``data``: the encoded value, a truth value, or nothing for a value
    without a plain form. ``expected``: in a recording, the encoded expected value."""

    hole: int
    data: bytes | bool | None
    expected: bytes | None = None


class TestRun(Struct):
    """One run of one test: its outcome (empty if it did not end) and its observations in order."""

    outcome: str = ""
    observations: list[Observation] = field(default_factory=list[Observation])


class TestReport(Struct):
    """What a process of tests reported. A test may have several runs.

    ``ready``: pytest was loaded; before that, no code under test has run. ``complete``: all tests were run.
    """

    runs: dict[str, list[TestRun]] = field(default_factory=dict[str, list[TestRun]])
    errors: list[str] = field(default_factory=list[str])
    ready: bool = False
    complete: bool = False


def read_report(data: bytes) -> TestReport:
    """Read the records of ``run_tests``. Records after a malformed one are ignored. Linear in the size."""
    report = TestReport()
    current = TestRun()
    for record in _records(data):
        match record:
            case ["test", str() as name]:
                current = TestRun()
                report.runs.setdefault(name, []).append(current)
            case ["end", str(), str() as outcome]:
                current.outcome = outcome
            case ["error", str() as text]:
                report.errors.append(text)
            case ["ready"]:
                report.ready = True
            case ["done"]:
                report.complete = True
            case ["expected", int(), bytes() as value] if current.observations:
                last = current.observations[-1]
                current.observations[-1] = Observation(last.hole, last.data, value)
            case ["value", int() as hole, bytes() as value] if type(hole) is int:
                current.observations.append(Observation(hole, value))
            case ["truth", int() as hole, bool() as value] if type(hole) is int:
                current.observations.append(Observation(hole, value))
            case ["unplain", int() as hole, str()] if type(hole) is int:
                current.observations.append(Observation(hole, None))
            case _:
                break
    return report


def _records(data: bytes) -> Iterator[Any]:
    position = 0
    while position + _LENGTH.size <= len(data):
        end = position + _LENGTH.size + _LENGTH.unpack_from(data, position)[0]
        if end > len(data):
            return
        try:
            yield decode(data[position + _LENGTH.size : end], max_items=8)
        except WireError:
            return
        position = end


class ExpectedObservation(Struct, frozen=True, omit_defaults=True):
    """What a right program lets a test observe.

    ``value``: the encoded value in base64; None if only the truth of an assertion is reported, which is then
    ``truth``. ``tolerance``: the relative and the absolute tolerance of numbers. ``is_telling``: the value
    can neither be guessed nor read in the sealed modules.
    """

    hole: int
    value: str | None = None
    truth: bool = True
    tolerance: Tolerance | None = None
    is_telling: bool = False

    @classmethod
    def recorded(cls, seen: Observation, tolerances: Mapping[int, Tolerance]) -> ExpectedObservation | None:
        """Return what a recording says; None if its value and its expected value differ.

        None also means that the expected one could not be recorded.
        """
        if seen.expected is None:
            return None
        if isinstance(seen.data, bool):
            wanted = decode(seen.expected)
            return cls(seen.hole, truth=wanted) if seen.data is wanted else None
        value = b64encode(seen.expected).decode()
        made = cls(seen.hole, value, tolerance=tolerances.get(seen.hole))
        return made if made.matches(seen) else None

    def matches(self, seen: Observation) -> bool:
        """Return whether an observation is the expected one."""
        if seen.hole != self.hole:
            return False
        if self.value is None:
            return seen.data is self.truth
        if not isinstance(seen.data, bytes):
            return False
        expected = _decoded(self.value)
        try:
            found = read_one(seen.data, expected)
            return found == expected if self.tolerance is None else _close(found, expected, self.tolerance)
        except (WireError, TypeError, ValueError, ArithmeticError, RecursionError):
            return False

    def is_hidden(self, shown: ShownValues) -> bool:
        """Return whether those who know what is ``shown`` can neither guess nor read the value."""
        return self.value is not None and shown.leaves_hidden(_decoded(self.value), self.tolerance)


@lru_cache(maxsize=10_000)
def _decoded(value: str) -> Any:
    """Return an expected value, which nothing changes."""
    return decode(b64decode(value))


def _close(found: Any, expected: Any, tolerance: Tolerance) -> bool:
    """Return whether numbers, or numbers in sequences and mappings, are within the tolerance."""
    if isinstance(expected, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(expected)
            and all(_close(one, other, tolerance) for one, other in zip(found, expected, strict=True))
        )
    if isinstance(expected, dict):
        wanted, given = by_key(expected.items()), pairs_of(found)
        named = None if given is None else by_key(given, longest_key(wanted))
        return (
            wanted is not None
            and named is not None
            and named.keys() == wanted.keys()
            and all(_close(named[key], value, tolerance) for key, value in wanted.items())
        )
    if isinstance(found, _NUMBERS) and isinstance(expected, _NUMBERS):
        if cmath.isnan(expected) or cmath.isinf(expected):
            return found == expected
        relative, absolute = tolerance
        return abs(found - expected) <= max(relative * abs(expected), absolute)
    return found == expected


class ExpectedTest(Struct, frozen=True):
    """A hidden test: its id in the sealed module, and what it observes of a right program, in order."""

    id: str
    observations: list[ExpectedObservation]

    def failure(self, runs: Sequence[TestRun]) -> str:
        """Return why the runs of the test do not show that it passed; empty if they do.

        The text names no value. Every run must be right: a program cannot add a better one.
        """
        if not runs:
            return "the test did not run"
        for run in runs:
            if run.outcome != PASSED:
                return f"the test {run.outcome or 'did not end'}"[:100]
            if len(run.observations) != len(self.observations):
                return "the test ended with another number of assertions"
            for number, (wanted, seen) in enumerate(zip(self.observations, run.observations, strict=True)):
                if not wanted.matches(seen):
                    return f"assertion {number + 1} failed"
        return ""

    def is_refuted(self, runs: Sequence[TestRun]) -> bool:
        """Return whether a run shows a wrong observation, so that the test failed however it ended."""
        return any(
            not wanted.matches(seen)
            for run in runs
            for wanted, seen in zip(self.observations, run.observations, strict=False)
        )

    def is_sealed(self, base: Sequence[TestRun]) -> bool:
        """Return whether passing needs a telling value that code without a solution does not give.

        ``base``: the runs of the test with the base, and maybe with other such code. Without such a value,
        code can pass by forged reports.
        """
        return any(
            wanted.is_telling
            and not any(
                wanted.matches(seen) for run in base for seen in run.observations[number : number + 1]
            )
            for number, wanted in enumerate(self.observations)
        )
