"""A problem: a statement, its tests, how answers are compared, limits and reference programs.

Plain typed data, in the published JSON schema (``whetstone data schema``). Construction checks
the invariants that every later part relies on: a problem always has at least one test, limits
are positive, names that are called are identifiers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from msgspec import Meta, Struct

from whetstone.errors import UserError, did_you_mean

NonEmpty = Annotated[str, Meta(min_length=1)]

COMPLETES_STARTER = "completes_starter"
"""Key of ``Problem.meta``, true where replies continue the starter, or repeat it without its imports and
helpers. Importers set it; whoever takes the program out of a reply then joins starter and reply."""


class Program(Struct, frozen=True, forbid_unknown_fields=True):
    """Source text in a named language."""

    language: str
    source: str


MOST_CPU_S = 3600.0
MOST_MEMORY_MB = float(1 << 20)
MOST_OUTPUT_MB = 1024.0
MOST_TOLERANCE = 1e15
MOST_WEIGHT = 1e9


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one case may use. CPU seconds decide; memory is resident memory of the process tree.

    The upper bounds (an hour, 1 TiB, 1 GiB) keep every timeout and size that is computed from a problem
    within what the kernel's interfaces take.
    """

    cpu_s: Annotated[float, Meta(gt=0, le=MOST_CPU_S)] = 6.0
    memory_mb: Annotated[float, Meta(gt=0, le=MOST_MEMORY_MB)] = 1024.0
    output_mb: Annotated[float, Meta(gt=0, le=MOST_OUTPUT_MB)] = 16.0

    def __post_init__(self) -> None:
        # Python callers construct the class directly, which checks no Meta.
        _check_number("cpu_s", self.cpu_s, MOST_CPU_S)
        _check_number("memory_mb", self.memory_mb, MOST_MEMORY_MB)
        _check_number("output_mb", self.output_mb, MOST_OUTPUT_MB)


def _check_number(field: str, value: float, most: float, *, zero: bool = False) -> None:
    """Raise ValueError unless ``value`` is a number above 0 (or 0, if ``zero``) and at most ``most``."""
    if not (0 < value <= most or (zero and value == 0)):  # False for NaN
        least = "at least" if zero else "above"
        raise ValueError(f"`{field}` must be {least} 0 and at most {most:g}; got {value!r}")


CompareMode = Literal["tokens", "exact", "lines", "floats", "ignore_case", "unordered_lines", "kattis"]
_MODES: tuple[str, ...] = get_args(CompareMode)
GRADER_PREFIX = "grader:"
"""What the modes begin with that the maker of a judge adds."""
_MODE_SCHEMA = {"anyOf": [{"enum": [*_MODES]}, {"pattern": f"^{GRADER_PREFIX}"}]}


class Compare(Struct, frozen=True, forbid_unknown_fields=True):
    """How the output of a ``stdin`` case is held against the expected text; in two modes, ``call`` too.

    ``tokens`` (default): whitespace-separated tokens, case-sensitive; a token also matches as an
    equal decimal number, or within 1e-6 when the expected token has a ``.`` or an exponent.
    An expected token that is not written as programs print numbers (``007``, ``+1``, ``1e5``) is text.
    ``exact``: the same text. ``lines``: the same lines, trailing blanks aside.
    ``floats``: tokens, every numeric one within ``abs`` or ``rel`` (each 1e-6 unless given).
    ``ignore_case``: tokens without regard to case. ``unordered_lines``: lines in any order.

    ``kattis``: the default validator of Kattis, with its flags ``case_sensitive`` and
    ``space_change_sensitive``; ``abs`` and ``rel`` are its float tolerances, none unless given.

    ``grader:NAME`` is a comparison that the judge was given, for printed text or for values that were
    returned: those of published graders, with their faults, are in ``whetstone.graders``. ``oracle`` is
    the special rule that it has for a task.
    """

    mode: Annotated[str, Meta(extra_json_schema=_MODE_SCHEMA)] = "tokens"
    abs: Annotated[float, Meta(ge=0, le=MOST_TOLERANCE)] | None = None
    rel: Annotated[float, Meta(ge=0, le=MOST_TOLERANCE)] | None = None
    case_sensitive: bool = False
    space_change_sensitive: bool = False
    oracle: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in _MODES and not self.mode.startswith(GRADER_PREFIX):
            raise ValueError(
                f"there is no comparison `{self.mode}`{did_you_mean(self.mode, _MODES)} (known: "
                f"{', '.join(_MODES)}); that of another grader is written `{GRADER_PREFIX}{self.mode}`"
            )
        if self.oracle is not None and not self.mode.startswith(GRADER_PREFIX):
            raise ValueError(f"`oracle` belongs to comparisons of other graders (mode `{GRADER_PREFIX}NAME`)")
        if self.mode != "kattis" and (self.case_sensitive or self.space_change_sensitive):
            raise ValueError("`case_sensitive` and `space_change_sensitive` belong to the mode kattis")
        for field, tolerance in (("abs", self.abs), ("rel", self.rel)):
            if tolerance is not None:
                _check_number(field, tolerance, MOST_TOLERANCE, zero=True)


class PythonChecker(Struct, frozen=True, forbid_unknown_fields=True, tag="python", tag_field="type"):
    """``def check(input, output, expected) -> bool``, run in a sandbox of its own. It decides alone.

    An exception that it raises on this output, but not on the expected one, says that it cannot read
    the output: WRONG_ANSWER. A checker that crashes or exceeds its limits is JUDGE_ERROR.
    """

    source: NonEmpty


class ProgramChecker(Struct, frozen=True, forbid_unknown_fields=True, tag="program", tag_field="type"):
    """A program in any supported language that decides by its exit code, in one of three protocols.

    ``testlib``: arguments are the files of the input, the program's output and the expected output; exit
    code 0 accepts; 1 (wrong), 2 (presentation), 4 (dirt), 7 (points, which are not acceptance) and 8
    (unexpected end) refuse. ``kattis``: arguments are the files of the input and of the expected output
    and a directory for feedback, then ``arguments``; the program's output is on standard input; 42
    accepts, 43 refuses. ``scalebox``: the files ``stdin.txt``, ``stdout.txt`` (expected) and
    ``answer.txt`` (the program's output) lie in the working directory; 0 accepts, any other exit code
    refuses. Everything else (a signal, a limit, another exit code) is JUDGE_ERROR.
    """

    language: NonEmpty
    source: NonEmpty
    protocol: Literal["testlib", "kattis", "scalebox"]
    arguments: list[str] = []

    def __post_init__(self) -> None:
        if self.arguments and self.protocol != "kattis":
            raise ValueError("`arguments` are the validator flags of the kattis protocol")


StandardCheckerName = Literal[
    "acmp", "caseicmp", "casencmp", "casewcmp", "dcmp", "fcmp", "hcmp", "icmp", "lcmp", "ncmp",
    "nyesno", "rcmp", "rcmp4", "rcmp6", "rcmp9", "rncmp", "uncmp", "wcmp", "yesno",
]  # fmt: skip


class StandardChecker(Struct, frozen=True, forbid_unknown_fields=True, tag="standard", tag_field="type"):
    """One of the checkers that come with testlib, by name: ours, with the same rules.

    See ``whetstone.judge.answers.standard_checkers`` for what each accepts.
    """

    name: StandardCheckerName


Checker = PythonChecker | ProgramChecker | StandardChecker


class StdinCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Text in, text expected."""

    input: str
    output: str


class StdinTests(Struct, frozen=True, forbid_unknown_fields=True, tag="stdin", tag_field="kind"):
    """The program reads standard input and writes standard output."""

    cases: Annotated[list[StdinCase], Meta(min_length=1)]


class CallCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments as JSON values, and the expected return value.

    With ``operations`` (class design problems): names of methods, called in order on one object. The
    first is the class itself, which constructs the object. ``args`` and ``expected`` then hold one entry
    for each operation: a list of arguments, and the value returned (null for the constructor).
    """

    expected: Any
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    operations: Annotated[list[str], Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        if self.operations is None:
            return
        _check_names(*self.operations)
        expected = cast("list[Any] | None", self.expected if isinstance(self.expected, list) else None)
        if expected is None or not len(self.operations) == len(self.args) == len(expected):
            raise ValueError("`operations`, `args` and `expected` need one entry for each operation")
        if not all(isinstance(arguments, list) for arguments in self.args):
            raise ValueError("with `operations`, each entry of `args` is a list of arguments")
        if self.kwargs or expected[0] is not None:
            raise ValueError("`operations` take no `kwargs`, and the constructor's `expected` is null")


class CallTests(Struct, frozen=True, forbid_unknown_fields=True, tag="call", tag_field="kind"):
    """Something of the program's is called, and what it returns is compared by value.

    With ``literals``, every argument and every expected value (with ``operations``: of each) is text, a
    Python literal, for what JSON does not have: tuples, sets, complex numbers. See ``whetstone.literal``.

    ``function`` alone: a function. ``function`` and ``class``: a method of an object constructed without
    arguments (LeetCode's form). ``class`` alone: every case lists ``operations`` on an object of it.
    """

    cases: Annotated[list[CallCase], Meta(min_length=1)]
    function: NonEmpty | None = None
    class_: NonEmpty | None = msgspec.field(default=None, name="class")
    literals: bool = False

    def __post_init__(self) -> None:
        _check_names(*[name for name in (self.function, self.class_) if name is not None])
        if self.function is None and self.class_ is None:
            raise ValueError("needs a `function`, or a `class` whose cases list `operations`")
        for case in self.cases:
            if (case.operations is None) != (self.function is not None):
                raise ValueError("cases list `operations` exactly when there is a `class` and no `function`")
            if case.operations is not None and case.operations[0] != self.class_:
                raise ValueError(f"the first of `operations` constructs: it is `{self.class_}`")
            if self.literals and not all(isinstance(value, str) for value in _values_of(case)):
                raise ValueError("with `literals`, arguments and expected values are text: Python literals")


def _values_of(case: CallCase) -> Iterator[object]:
    """The arguments of a case, and the values it expects (of operations: without the constructor's)."""
    if case.operations is None:
        yield from (*case.args, *case.kwargs.values(), case.expected)
    else:
        yield from (argument for arguments in case.args for argument in arguments)
        yield from case.expected[1:]


def _check_names(*names: str) -> None:
    for name in names:
        if not name.isidentifier():
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


class InteractiveCase(Struct, frozen=True, forbid_unknown_fields=True):
    """What the interactor knows: its input, and an answer where it needs one. The program sees neither."""

    input: str
    answer: str = ""


class PythonInteractor(Struct, frozen=True, forbid_unknown_fields=True, tag="python", tag_field="type"):
    """``def interact(input, read, write) -> bool``: the other side of the conversation, and its verdict.

    ``read()`` is the program's next line without its newline; it raises EOFError when the program has
    closed its output, and that exception, uncaught, refuses the program. ``write(text)`` sends text as it
    is, at once. With four parameters, ``interact(input, answer, read, write)``, it gets the case's answer.
    """

    source: NonEmpty


class ProgramInteractor(Struct, frozen=True, forbid_unknown_fields=True, tag="program", tag_field="type"):
    """A program in any supported language that reads what the tested program prints, and the reverse.

    ``testlib``: arguments are the files of the case's input, of a log it may write, and of the answer;
    exit codes are those of ``ProgramChecker``. ``kattis``: arguments are the files of input and answer and
    a directory for feedback; 42 accepts, 43 refuses. Everything else is JUDGE_ERROR.
    """

    language: NonEmpty
    source: NonEmpty
    protocol: Literal["testlib", "kattis"]


Interactor = PythonInteractor | ProgramInteractor


class InteractiveTests(Struct, frozen=True, forbid_unknown_fields=True, tag="interactive", tag_field="kind"):
    """Program and interactor talk through pipes; the interactor decides."""

    cases: Annotated[list[InteractiveCase], Meta(min_length=1)]
    interactor: Interactor


Tests = StdinTests | CallTests | AssertTests | InteractiveTests


class CaseGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """Cases by index, which count together: the weight is earned when all of them are accepted."""

    cases: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]
    weight: Annotated[float, Meta(gt=0, le=MOST_WEIGHT)] = 1.0

    def __post_init__(self) -> None:
        _check_number("weight", self.weight, MOST_WEIGHT)


class Scoring(Struct, frozen=True, forbid_unknown_fields=True):
    """How accepted cases become a score in [0, 1]. The verdict does not depend on it.

    ``fraction`` (default): the share of cases accepted. ``all``: 1 or 0. ``groups``: the weights of the
    groups whose cases are all accepted, of the weights of all; a case may be in several groups.
    """

    mode: Literal["fraction", "all", "groups"] = "fraction"
    groups: list[CaseGroup] = []

    def __post_init__(self) -> None:
        if (self.mode == "groups") != bool(self.groups):
            raise ValueError("`groups` are given exactly with the mode `groups`")


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """One programming problem. See the module's text for what is guaranteed."""

    id: NonEmpty
    statement: str
    tests: Tests
    language: str = "python"
    starter: str | None = None
    compare: Compare = Compare()
    checker: Checker | None = None
    scoring: Scoring = Scoring()
    limits: Limits = Limits()
    references: list[Program] = []
    wrong: list[Program] = []
    source: str = ""
    meta: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.checker is not None and not isinstance(self.tests, StdinTests):
            raise ValueError("`checker` decides `stdin` tests only")
        grouped = {number for group in self.scoring.groups for number in group.cases}
        if grouped and grouped != set(range(case_count(self))):
            raise ValueError(
                f"`scoring.groups` must hold every case, 0 to {case_count(self) - 1}, and no other"
            )


def problem_from(value: Problem | dict[str, Any]) -> Problem:
    """Return ``value`` as a Problem; a dict is read in the published schema.

    Raises UserError naming the field that does not fit, TypeError for what is neither.
    """
    if isinstance(value, Problem):
        return value
    if not isinstance(value, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the problem is a {type(value).__name__}; give a Problem, or a dict in its schema")
    try:
        return msgspec.convert(value, Problem)
    except msgspec.ValidationError as error:
        raise UserError(f"problem {value.get('id', '?')!r}: {error}") from None


def shown(problem: Problem) -> str:
    """The statement, and the code that the program has to start from below it, unless it stands in it."""
    starter = (problem.starter or "").rstrip()
    if not starter or starter in problem.statement:
        return problem.statement
    return f"{problem.statement.rstrip()}\n\nStart from this code:\n\n```{problem.language}\n{starter}\n```"


def case_count(problem: Problem) -> int:
    """The number of separately judged cases of a problem."""
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return len(tests.asserts) if tests.asserts else 1
    return len(tests.cases)


def problem_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a problem."""
    return msgspec.json.schema(Problem)
