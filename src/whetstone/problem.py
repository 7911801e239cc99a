"""A problem: a statement, its tests, how answers are compared, limits and reference programs.

Plain typed data, in the published JSON schema (``whetstone data schema``). Construction checks
the invariants that every later part relies on: a problem always has at least one test, limits
are positive, names that are called are identifiers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from whetstone.errors import UserError

Positive = Annotated[float, Meta(gt=0)]
NonEmpty = Annotated[str, Meta(min_length=1)]


class Program(Struct, frozen=True, forbid_unknown_fields=True):
    """Source text in a named language."""

    language: str
    source: str


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one case may use. CPU seconds decide; memory is resident memory of the process tree."""

    cpu_s: Positive = 6.0
    memory_mb: Positive = 1024.0
    output_mb: Positive = 16.0


class Compare(Struct, frozen=True, forbid_unknown_fields=True):
    """How the output of a ``stdin`` case is held against the expected text.

    ``tokens`` (default): whitespace-separated tokens, case-sensitive; a token also matches as an
    equal decimal number, or within 1e-6 when the expected token has a ``.`` or an exponent.
    An expected integer padded with zeros is no number but text: its width counts.
    ``exact``: the same text. ``lines``: the same lines, trailing blanks aside.
    ``floats``: tokens, every numeric one within ``abs`` or ``rel``.
    ``ignore_case``: tokens without regard to case. ``unordered_lines``: lines in any order.
    """

    mode: Literal["tokens", "exact", "lines", "floats", "ignore_case", "unordered_lines"] = "tokens"
    abs: Annotated[float, Meta(ge=0)] = 1e-6
    rel: Annotated[float, Meta(ge=0)] = 1e-6


class PythonChecker(Struct, frozen=True, forbid_unknown_fields=True, tag="python", tag_field="type"):
    """``def check(input, output, expected) -> bool``, run in a sandbox of its own. It decides alone."""

    source: NonEmpty


class StdinCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Text in, text expected."""

    input: str
    output: str


class StdinTests(Struct, frozen=True, forbid_unknown_fields=True, tag="stdin", tag_field="kind"):
    """The program reads standard input and writes standard output."""

    cases: Annotated[list[StdinCase], Meta(min_length=1)]


class CallCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments as JSON values, and the expected return value."""

    expected: Any
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class CallTests(Struct, frozen=True, forbid_unknown_fields=True, tag="call", tag_field="kind"):
    """A function is called, or a method of a class constructed without arguments (LeetCode's form)."""

    function: NonEmpty
    cases: Annotated[list[CallCase], Meta(min_length=1)]
    class_: str | None = msgspec.field(default=None, name="class")

    def __post_init__(self) -> None:
        for name in (self.function, self.class_):
            if name is not None and not name.isidentifier():
                raise ValueError(f"`{name}` is not a Python name")


class AssertTests(Struct, frozen=True, forbid_unknown_fields=True, tag="assert", tag_field="kind"):
    """Test code that calls the program's functions: ``check(candidate)``, asserts, or ``unittest``.

    Exactly one of ``check``, ``asserts`` and ``unittest`` is given; ``check`` needs ``entry_point``.
    """

    setup: str = ""
    check: str | None = None
    asserts: list[str] | None = None
    unittest: str | None = None
    entry_point: str | None = None

    def __post_init__(self) -> None:
        given = [n for n in ("check", "asserts", "unittest") if getattr(self, n)]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of `check`, `asserts`, `unittest`; has {given or 'none'}")
        if self.check and not self.entry_point:
            raise ValueError("`check` needs `entry_point`, the function handed to check()")
        if self.entry_point is not None and not self.entry_point.isidentifier():
            raise ValueError(f"`{self.entry_point}` is not a Python name")


Tests = StdinTests | CallTests | AssertTests


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """One programming problem. See the module's text for what is guaranteed."""

    id: NonEmpty
    statement: str
    tests: Tests
    language: str = "python"
    starter: str | None = None
    compare: Compare = Compare()
    checker: PythonChecker | None = None
    limits: Limits = Limits()
    references: list[Program] = []
    wrong: list[Program] = []
    source: str = ""
    meta: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.checker is not None and not isinstance(self.tests, StdinTests):
            raise ValueError("`checker` decides `stdin` tests only")


def problem_from(value: Problem | dict[str, Any]) -> Problem:
    """Return ``value`` as a Problem; a dict is read in the published schema.

    Raises UserError naming the field that does not fit.
    """
    if isinstance(value, Problem):
        return value
    try:
        return msgspec.convert(value, Problem)
    except msgspec.ValidationError as error:
        raise UserError(f"problem {value.get('id', '?')!r}: {error}") from None


def case_count(problem: Problem) -> int:
    """The number of separately judged cases of a problem."""
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return len(tests.asserts) if tests.asserts else 1
    return len(tests.cases)


def problem_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a problem."""
    return msgspec.json.schema(Problem)
