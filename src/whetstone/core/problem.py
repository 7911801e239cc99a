"""A problem: a statement, its tests, the comparison of answers, limits and reference programs.

These are typed data in the published JSON schema (``whetstone data show schema``). Construction checks the
invariants that all other parts rely on: a problem has at least one test, or says that it has none; limits
are positive, and called names are identifiers.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from whetstone.core.call_tests import CallCase, CallTests, NonEmpty
from whetstone.core.errors import UserError, did_you_mean

__all__ = ["CallCase", "CallTests", "NonEmpty"]

# A key of `Problem.meta`. It is true if replies continue the starter, or repeat it without its imports and
# helpers. Importers set it. The extraction of the program then joins starter and reply.
COMPLETES_STARTER = "completes_starter"
# The names of environments of packages. No other character, so that a problem cannot name a folder.
ENVIRONMENT_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


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
    """The resources of one case. CPU seconds decide. Memory is the resident memory of the process tree.

    The upper bounds (an hour, 1 TiB, 1 GiB) keep every computed timeout and size within the range of the
    kernel's interfaces.
    """

    cpu_s: Annotated[float, Meta(gt=0, le=MOST_CPU_S)] = 6.0
    memory_mb: Annotated[float, Meta(gt=0, le=MOST_MEMORY_MB)] = 1024.0
    output_mb: Annotated[float, Meta(gt=0, le=MOST_OUTPUT_MB)] = 16.0

    def __post_init__(self) -> None:
        # Python callers construct the class directly, which does not check Meta.
        _check_number("cpu_s", self.cpu_s, MOST_CPU_S)
        _check_number("memory_mb", self.memory_mb, MOST_MEMORY_MB)
        _check_number("output_mb", self.output_mb, MOST_OUTPUT_MB)


def _check_number(field: str, value: float, most: float, *, zero: bool = False) -> None:
    """Raise ValueError unless ``value`` is a number above 0 (or 0, if ``zero``) and at most ``most``."""
    if not (0 < value <= most or (zero and value == 0)):  # the comparison is False for NaN
        least = "at least" if zero else "above"
        raise ValueError(f"`{field}` must be {least} 0 and at most {most:g}; got {value!r}")


CompareMode = Literal[
    "tokens", "exact", "lines", "floats", "ignore_case", "unordered_lines", "kattis", "values"
]
_MODES: tuple[str, ...] = get_args(CompareMode)
# The prefix of modes that name a comparison passed to the judge.
GRADER_PREFIX = "grader:"
_MODE_SCHEMA = {"anyOf": [{"enum": [*_MODES]}, {"pattern": f"^{GRADER_PREFIX}"}]}


class Compare(Struct, frozen=True, forbid_unknown_fields=True):
    """How the output of a ``stdin`` case is compared with the expected text, or a value of a ``call`` case.

    ``tokens`` (default): whitespace-separated tokens, case-sensitive. A token also matches as an equal
    decimal number, or within 1e-6 if the expected token has a ``.`` or an exponent. An expected token with an
    unusual notation of numbers (``007``, ``+1``, ``1e5``) is text. ``exact``: the same text. ``lines``: the
    same lines, except for trailing blanks. ``floats``: tokens, of which every number must be within ``abs``
    or ``rel`` (each 1e-6 by default). ``ignore_case``: tokens without regard to case. ``unordered_lines``:
    lines in any order.

    ``kattis``: the default validator of Kattis, with its flags ``case_sensitive`` and
    ``space_change_sensitive``. ``abs`` and ``rel`` are its float tolerances, none by default.

    ``values``: returned values of ``call`` tests. Every number may differ by ``abs`` or ``rel``, integers
    included if one of them is given (default: floats within 1e-9 relative). ``order`` says which lists may be
    in any order: the returned one (``any``), the lists in it (``inner``), or both (``all``). With
    ``ignore_repeats``, equal items of such a list count once. With ``any_case``, letter case is ignored.

    ``grader:NAME`` is a comparison that was passed to the judge, for printed text or for returned values.
    ``whetstone_graders`` has those of published graders, including their faults. ``oracle`` names the special
    rule of such a grader for one task.
    """

    mode: Annotated[str, Meta(extra_json_schema=_MODE_SCHEMA)] = "tokens"
    abs: Annotated[float, Meta(ge=0, le=MOST_TOLERANCE)] | None = None
    rel: Annotated[float, Meta(ge=0, le=MOST_TOLERANCE)] | None = None
    case_sensitive: bool = False
    space_change_sensitive: bool = False
    oracle: str | None = None
    # Comparisons without the following fields are stored as before they existed.
    order: Literal["any", "inner", "all"] | UnsetType = UNSET
    ignore_repeats: bool | UnsetType = UNSET
    any_case: bool | UnsetType = UNSET

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
        if self.mode != "values" and (self.order or self.ignore_repeats or self.any_case):
            raise ValueError("`order`, `ignore_repeats` and `any_case` belong to the mode values")
        if self.ignore_repeats and not self.order:
            raise ValueError("`ignore_repeats` needs `order`, which says in which lists")
        for field, tolerance in (("abs", self.abs), ("rel", self.rel)):
            if tolerance is not None:
                _check_number(field, tolerance, MOST_TOLERANCE, zero=True)


class PythonChecker(Struct, frozen=True, forbid_unknown_fields=True, tag="python", tag_field="type"):
    """``def check(input, output, expected) -> bool``, run in its own sandbox. It decides alone.

    For ``stdin`` tests these are texts. For ``call`` tests ``input`` is the case as a mapping (``args``,
    ``kwargs``, ``operations``), and the others are values; with operations, a list of values.

    If it raises an exception for this output, but not for the expected one, it cannot read the output:
    WRONG_ANSWER. A checker that crashes or exceeds its limits is JUDGE_ERROR.
    """

    source: NonEmpty


class ProgramChecker(Struct, frozen=True, forbid_unknown_fields=True, tag="program", tag_field="type"):
    """A program in any supported language that decides by its exit code, in one of three protocols.

    ``testlib``: arguments are the files of the input, the program's output and the expected output. Exit code
    0 accepts. 1 (wrong), 2 (presentation), 4 (dirt), 7 (points, which are not acceptance) and 8 (unexpected
    end) reject.

    ``kattis``: arguments are the files of the input and of the expected output and a directory for feedback,
    then ``arguments``. The program's output is on standard input. 42 accepts, 43 rejects.

    ``scalebox``: the working directory has the files ``stdin.txt``, ``stdout.txt`` (expected) and
    ``answer.txt`` (the program's output). 0 accepts, any other exit code rejects.

    Everything else (a signal, a limit, another exit code) is JUDGE_ERROR.
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
    """One of the checkers of testlib, by name. It is implemented here with the same rules.

    See ``whetstone.judge.answers.standard_checkers`` for what each accepts.
    """

    name: StandardCheckerName


Checker = PythonChecker | ProgramChecker | StandardChecker


class StdinCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Input text and expected output text."""

    input: str
    output: str


class StdinTests(Struct, frozen=True, forbid_unknown_fields=True, tag="stdin", tag_field="kind"):
    """The program reads standard input and writes standard output."""

    cases: Annotated[list[StdinCase], Meta(min_length=1)]


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
        fields = [n for n in ("check", "asserts", "unittest") if getattr(self, n)]
        if len(fields) != 1:
            raise ValueError(f"needs exactly one of `check`, `asserts`, `unittest`; has {fields or 'none'}")
        if self.check and not self.entry_point:
            raise ValueError("`check` needs `entry_point`, the function that check() gets")
        if self.entry_point is not None and not self.entry_point.isidentifier():
            raise ValueError(f"`{self.entry_point}` is not a Python name")


class InteractiveCase(Struct, frozen=True, forbid_unknown_fields=True):
    """The data of the interactor: its input, and an answer if it needs one. The program gets neither."""

    input: str
    answer: str = ""


class PythonInteractor(Struct, frozen=True, forbid_unknown_fields=True, tag="python", tag_field="type"):
    """``def interact(input, read, write) -> bool``: it talks with the program and decides.

    ``read()`` returns the program's next line without its newline. It raises EOFError if the program has
    closed its output. If that exception is not caught, the program is rejected. ``write(text)`` sends text
    unchanged and at once. With four parameters, ``interact(input, answer, read, write)``, it also gets the
    case's answer.
    """

    source: NonEmpty


class ProgramInteractor(Struct, frozen=True, forbid_unknown_fields=True, tag="program", tag_field="type"):
    """A program in any supported language that is connected with the tested program by two pipes.

    ``testlib``: arguments are the files of the case's input, of a log that it may write, and of the answer.
    Exit codes are those of ``ProgramChecker``. ``kattis``: arguments are the files of input and answer, and a
    directory for feedback; 42 accepts, 43 rejects. Everything else is JUDGE_ERROR.
    """

    language: NonEmpty
    source: NonEmpty
    protocol: Literal["testlib", "kattis"]


Interactor = PythonInteractor | ProgramInteractor


class InteractiveTests(Struct, frozen=True, forbid_unknown_fields=True, tag="interactive", tag_field="kind"):
    """Program and interactor talk through pipes; the interactor decides."""

    cases: Annotated[list[InteractiveCase], Meta(min_length=1)]
    interactor: Interactor


class NoTests(Struct, frozen=True, forbid_unknown_fields=True, tag="none", tag_field="kind"):
    """The environment decides about an answer, from ``Problem.meta``. The judge refuses such a problem."""

    @property
    def cases(self) -> list[StdinCase]:
        """No case."""
        return []


Tests = StdinTests | CallTests | AssertTests | InteractiveTests | NoTests


class CaseGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """Cases that count together, by index. The weight is earned if all of them are accepted."""

    cases: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]
    weight: Annotated[float, Meta(gt=0, le=MOST_WEIGHT)] = 1.0

    def __post_init__(self) -> None:
        _check_number("weight", self.weight, MOST_WEIGHT)


class Scoring(Struct, frozen=True, forbid_unknown_fields=True):
    """How accepted cases become a score in [0, 1]. The verdict does not depend on it.

    ``fraction`` (default): the share of accepted cases. ``all``: 1 or 0. ``groups``: the weight of the groups
    with all cases accepted, divided by the weight of all groups. A case may be in several groups.
    """

    mode: Literal["fraction", "all", "groups"] = "fraction"
    groups: list[CaseGroup] = []

    def __post_init__(self) -> None:
        if (self.mode == "groups") != bool(self.groups):
            raise ValueError("`groups` are for the mode `groups`, which needs them")


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """One programming problem. The module docstring lists its invariants.

    ``environment`` names the environment of packages, and so the version of Python, in which programs and
    tests of this problem run, instead of the judge's (`whetstone judge environment list`).
    """

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
    # Problems without it are stored as before it existed.
    environment: Annotated[str, Meta(pattern=ENVIRONMENT_NAME)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.environment is not UNSET and not re.fullmatch(ENVIRONMENT_NAME, self.environment):
            raise ValueError(f"`environment` is {self.environment!r}, which cannot be a name of one")
        self._check_checker()
        self._check_compare()
        grouped = {number for group in self.scoring.groups for number in group.cases}
        if grouped and grouped != set(range(case_count(self))):
            raise ValueError(
                "`scoring.groups` must contain the index of every case, from 0 to "
                f"{case_count(self) - 1}, and no other"
            )

    def _check_checker(self) -> None:
        if self.checker is None or isinstance(self.tests, StdinTests):
            return
        if not isinstance(self.tests, CallTests):
            raise ValueError("`checker` decides `stdin` and `call` tests only")
        if not isinstance(self.checker, PythonChecker):
            raise ValueError("the `checker` of returned values is a Python function: use the type python")
        if self.compare.mode != "tokens":
            raise ValueError("a `checker` of returned values decides alone: leave `compare` out")

    def _check_compare(self) -> None:
        tests, compare = self.tests, self.compare
        # Earlier versions wrote these tolerances into every problem.
        is_default = compare.mode == "tokens" and {compare.abs, compare.rel} <= {None, 1e-6}
        kind = cast("str", tests.__struct_config__.tag)
        if isinstance(tests, StdinTests):
            applies = compare.mode != "values"
        else:
            added = compare.mode.startswith(GRADER_PREFIX)
            applies = isinstance(tests, CallTests) and (added or compare.mode == "values")
        if not (applies or is_default):
            raise ValueError(
                f"`compare` (mode {compare.mode}) has no effect on `{kind}` tests: leave it out"
                + _INSTEAD_OF_COMPARE.get(kind, "")
            )


_INSTEAD_OF_COMPARE = {
    "stdin": ", or use `floats` for tolerances and `unordered_lines` for any order",
    "call": f", or name the comparison of a grader ({GRADER_PREFIX}NAME), or use "
    '{"mode": "values"} with `abs`, `rel`, `order` or `any_case`',
    "assert": ", and write tolerances into the asserts",
    "interactive": "; the interactor decides",
}


def problem_from(value: Problem | dict[str, Any]) -> Problem:
    """Return ``value`` as a Problem. A dict is read in the published schema.

    Raises UserError that names the invalid field, and TypeError for another type.
    """
    if isinstance(value, Problem):
        return value
    if not isinstance(value, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the problem is a {type(value).__name__}; give a Problem, or a dict in its schema")
    try:
        return msgspec.convert(value, Problem)
    except msgspec.ValidationError as error:
        raise UserError(f"problem {value.get('id', '?')!r}: {error}") from None


def statement_with_starter(problem: Problem) -> str:
    """Return the statement, followed by the starter code unless the statement contains it."""
    starter = (problem.starter or "").rstrip()
    if not starter or starter in problem.statement:
        return problem.statement
    return f"{problem.statement.rstrip()}\n\nStart from this code:\n\n```{problem.language}\n{starter}\n```"


def deciding_program(problem: Problem) -> ProgramChecker | ProgramInteractor | None:
    """Return the checker or interactor of a problem if it is a program of its own, such as testlib's."""
    tests = problem.tests
    decides = tests.interactor if isinstance(tests, InteractiveTests) else problem.checker
    return decides if isinstance(decides, ProgramChecker | ProgramInteractor) else None


def case_count(problem: Problem) -> int:
    """Return the number of separately judged cases of a problem."""
    tests = problem.tests
    if isinstance(tests, AssertTests):
        # `check` and `unittest` code can only be judged as a whole.
        return len(tests.asserts) if tests.asserts else 1
    return len(tests.cases)


def problem_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a problem."""
    return msgspec.json.schema(Problem)
