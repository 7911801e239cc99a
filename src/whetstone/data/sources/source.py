"""A source: a public dataset whose rows become problems, and the errors of rows that do not fit.

An importer is a table of ``sources.toml``, with the files and columns of the dataset, and a function from a
row to a problem. The function reads columns through the helpers here. So a dataset with a changed schema is
rejected with the column's name and the known revision. It raises ``Skip`` for a row that cannot be judged,
which is counted by reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import Struct
from pydantic import model_validator

from whetstone.core.errors import UserError
from whetstone.core.literal import write_literal
from whetstone.core.long_integers import decode_json, format_integer, is_short
from whetstone.core.problem import CallCase, CallTests, Problem, StdinCase, StdinTests, case_count
from whetstone.core.settings import NonEmpty, Section
from whetstone.data.decisions import ProblemDecision
from whetstone.data.explain import explain
from whetstone.data.files import check_plain, plain_lines
from whetstone.data.sources.downloads import PackageFile
from whetstone.data.validate.comparing import with_stated_comparison

Row = dict[str, Any]
T = TypeVar("T")
# After this number of rows in another schema and none in the expected one, the import fails.
_MOST_MISFITS = 10
_DEEPEST = 200
_LONGEST_NUMBER = 40


class Skip(Exception):
    """The row cannot become a problem. ``reason`` is a short stable word, ``detail`` one line
    of explanation."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class SchemaError(UserError):
    """The rows do not have the schema that the importer reads."""


class ColumnError(Exception):
    """A column is missing or has an unexpected value; it becomes a SchemaError with the place of the row."""

    def __init__(self, column: str, found: str, expected: str = "") -> None:
        super().__init__(column, found)
        self.column = column
        self.found = found
        self.expected = expected


class ColumnMap(Section):
    """The columns of a table, by the part of a problem that they hold.

    A column is a name, or a path into its objects, ``info.tests``, or into lists of objects, ``cases.in``.

    statement: text, or chat messages, of which the last one of the user counts.
    tests: inputs and outputs in any common form, asserts, or test code.
    inputs: instead of ``tests``: a list with an item for each test, or the text of the only test.
    outputs: the expected outputs or results, in the form of ``inputs``.
    function: the name of the called function; a starter with one function states it, too.
    starter: the code to begin with.
    reference: a correct program, or a list of them.
    passed: for each reference, the share of tests that it passes; those below 1 are left out.
    id: a name of the problem; without it, a hash of the row.
    time_limit: seconds, or text with a unit; the name of a column such as ``limit_ms`` gives its unit.
    memory_limit: megabytes, or text with a unit; the name of a column such as ``limit_kb`` gives its unit.
    difficulty: any value, stored in ``meta``.
    tags: a list of names, or text with commas.
    kind: the kind of the tests; without it, their form and the function's name decide.
    """

    statement: NonEmpty
    tests: NonEmpty | None = None
    inputs: NonEmpty | None = None
    outputs: NonEmpty | None = None
    function: NonEmpty | None = None
    starter: NonEmpty | None = None
    reference: NonEmpty | None = None
    passed: NonEmpty | None = None
    id: NonEmpty | None = None
    time_limit: NonEmpty | None = None
    memory_limit: NonEmpty | None = None
    difficulty: NonEmpty | None = None
    tags: NonEmpty | None = None
    kind: Literal["stdin", "call", "assert", "pytest"] | None = None

    @model_validator(mode="after")
    def _has_tests(self) -> ColumnMap:
        if (self.tests is None) == (self.inputs is None or self.outputs is None):
            raise ValueError("give the tests as tests=COLUMN, or as inputs=COLUMN and outputs=COLUMN")
        return self


class DatasetSource(Struct, frozen=True):
    """A public dataset, and how its rows become problems."""

    name: str
    """A short and stable name. The id of every problem begins with it."""
    title: str
    """One line for ``--help`` and the data card."""
    files: Mapping[str, str]
    """Split -> glob of its files, relative to the dataset's root. ``*`` also matches ``/``."""
    columns: Mapping[str, str]
    """Required column -> description of its values. ``"a or b"`` requires either name."""
    licence: str
    """An SPDX identifier, or a description."""
    convert: Converter
    """Converts a row to a problem. Raises Skip for a row that is none."""
    hub_id: str | None = None
    """The id on the hub; None if there are only local files."""
    revision: str | None = None
    """A revision known to work: a commit or a tag."""
    id_columns: tuple[str, ...] = ()
    """Columns that may contain the id of the row; the first non-empty one is used."""
    example: str = ""
    """An example command; empty if ``command_line`` is sufficient."""
    package: PackageFile | None = None
    """A package on PyPI with all rows in one file; benchmarks use it before the hub."""
    path: str | None = None
    """The file or folder with the rows, for a source of a map file that is not on the hub."""
    map: ColumnMap | None = None
    """The columns of the parts of a problem, for ``mapped.convert``."""
    join: Callable[[Iterable[tuple[str, Row]], Path | None], Iterator[tuple[str, Row]]] | None = None
    """Adds what other sources hold to places and rows; called with the folder of local files, too."""

    @property
    def command_line(self) -> str:
        """A command line that prepares this source."""
        return self.example or f"whetstone data prepare {self.name} --out sets/{self.name}"


Converter = Callable[[DatasetSource, Row, str], Problem]
"""(source, row, id of the row: see ``row_id``) -> the problem, whose id begins with the source's name."""


def import_rows(
    source: DatasetSource, rows: Iterable[tuple[str, Row]], *, split: str = "", seen: set[str] | None = None
) -> Iterator[Problem | ProblemDecision]:
    """Yield the problems of ``rows``, which are pairs (place, row), and a decision for each row that becomes
    none.

    Every problem is valid in the published schema and has a unique id. ``seen`` has the earlier ids, for rows
    in several parts. ``split`` is noted in ``meta``. Raises SchemaError with the place for rows in another
    schema.
    """
    seen = set() if seen is None else seen
    fits, misfits = False, 0
    first_misfit: SchemaError | None = None
    for place, row in rows:
        own_id = row_id(source, row)
        try:
            _check_columns(source, row)
            problem = source.convert(source, row, own_id)
            if not problem.statement.strip():
                raise Skip("no_statement", "the statement is empty")
            if isinstance(problem.tests, CallTests):
                problem = with_stated_comparison(problem)[0]
            if split:
                problem.meta.setdefault("split", split)
            yield _admit(source, problem, seen)
            fits = True
        except Skip as skip:
            yield _drop(source, f"{source.name}/{own_id}", skip, place)
        except ColumnError as error:
            misfits += 1
            first_misfit = first_misfit or _schema_error(source, place, row, error)
            # A wrong schema must fail early. One odd row among others is only dropped.
            if not fits and misfits == _MOST_MISFITS:
                break
            detail = f"column `{error.column}` is {error.found}, expected {_expected(source, error)}"
            skip = Skip("unexpected_value", detail)
            yield _drop(source, f"{source.name}/{own_id}", skip, place)
        # Rows are data of others. A value that no importer expects must not end the import.
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
            skip = Skip("unexpected_value", f"{type(error).__name__}: {error}")
            yield _drop(source, f"{source.name}/{own_id}", skip, place)
    if first_misfit is not None and not fits:
        raise first_misfit


def row_id(source: DatasetSource, row: Row) -> str:
    """Return the id of the row; else a hash of its content, independent of file and position."""
    for column in source.id_columns:
        value = row.get(column)
        if isinstance(value, int):
            return format_integer(value) if is_short(value) else hex(value)[:_LONGEST_NUMBER]
        if isinstance(value, str) and value.strip():
            return _storable(value.strip())
    # The id must be the same if the file is sorted, split or renamed.
    plain = json.dumps(_printable(row), sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def _printable(value: Any, depth: int = 0) -> Any:
    """Return a value for ``json.dumps``: with text instead of long integers, other keys and deep nesting."""
    if isinstance(value, int) and not is_short(value):
        return hex(value)
    if depth > _DEEPEST and isinstance(value, dict | list):
        return type(value).__name__
    if isinstance(value, dict):
        return {str(key): _printable(item, depth + 1) for key, item in cast("Row", value).items()}
    if isinstance(value, list):
        return [_printable(item, depth + 1) for item in cast("list[Any]", value)]
    return value


def _admit(source: DatasetSource, problem: Problem, seen: set[str]) -> Problem | ProblemDecision:
    if not problem.id.startswith(source.name + "/"):
        raise AssertionError(f"importer {source.name}: id {problem.id!r} lacks the source's name")
    try:
        if problem.id in seen:
            raise Skip("duplicate_id", "an earlier row has the same id")
        # Dates and decimal numbers become text. A missing number of pandas, NaN, differs from itself.
        facts = cast("Row", msgspec.to_builtins(problem.meta, str_keys=True))
        meta = {name: fact for name, fact in facts.items() if fact == fact}
        problem = msgspec.structs.replace(_with_storable_tests(problem), meta=meta)
        _check_problem(problem)
    except Skip as skip:
        return _drop(source, problem.id, skip, "")
    seen.add(problem.id)
    return problem


def _with_storable_tests(problem: Problem) -> Problem:
    """Return the problem with LF line ends in its inputs, and with literals for integers that JSON lacks."""
    tests = problem.tests
    if isinstance(tests, StdinTests):
        cases = [StdinCase(plain_lines(case.input), case.output) for case in tests.cases]
        return msgspec.structs.replace(problem, tests=StdinTests(cases)) if cases != tests.cases else problem
    if isinstance(tests, CallTests) and not tests.literals and any(map(_has_long_integer, tests.cases)):
        literals = msgspec.structs.replace(
            tests, cases=[_with_literals(case) for case in tests.cases], literals=True
        )
        return msgspec.structs.replace(problem, tests=literals)
    return problem


def _has_long_integer(case: CallCase) -> bool:
    pending: list[Any] = [case.args, case.kwargs, case.expected]
    while pending:
        value = pending.pop()
        if isinstance(value, int) and not is_short(value):
            return True
        if isinstance(value, dict):
            pending += cast("dict[Any, Any]", value).values()
        elif isinstance(value, list):
            pending += cast("list[Any]", value)
    return False


def _with_literals(case: CallCase) -> CallCase:
    if case.operations is None:
        kwargs = {name: write_literal(value) for name, value in case.kwargs.items()}
        return CallCase(write_literal(case.expected), list(map(write_literal, case.args)), kwargs)
    expected = [None, *map(write_literal, case.expected[1:])]
    return CallCase(expected, [list(map(write_literal, args)) for args in case.args], {}, case.operations)


def _check_problem(problem: Problem) -> None:
    """Raise Skip for a problem that a file would not preserve. Constructing a problem checks no types."""
    try:
        check_plain(problem)
        if not case_count(problem):
            raise Skip("no_tests", "the row contains no test")
        msgspec.json.decode(msgspec.json.encode(problem), type=Problem)
    except UserError as error:
        raise Skip("not_plain_data", str(error)) from None
    except msgspec.ValidationError as error:
        raise Skip("invalid_problem", explain(error)) from None
    except ValueError as error:
        raise Skip("not_plain_data", str(error)) from None
    except RecursionError:
        raise Skip("nested_too_deep", "a value is nested more deeply than can be read back") from None


def _drop(source: DatasetSource, problem_id: str, skip: Skip, place: str) -> ProblemDecision:
    # The folder of the file is no fact about the problem.
    place = place.rpartition("/")[2]
    detail = f"{place}: {skip.detail}" if place and skip.detail else skip.detail or place
    return ProblemDecision(
        _storable(problem_id), "import", "drop", skip.reason, _storable(detail[:500]), source.name
    )


def _storable(text: str) -> str:
    """Return a text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _check_columns(source: DatasetSource, row: Row) -> None:
    for names in source.columns:
        if not any(name in row for name in names.split(" or ")):
            raise ColumnError(names, "missing")


def _expected(source: DatasetSource, error: ColumnError) -> str:
    return error.expected or next(
        (words for names, words in source.columns.items() if error.column in (names, *names.split(" or "))),
        "",
    )


def _schema_error(source: DatasetSource, place: str, row: Row, error: ColumnError) -> SchemaError:
    where = f" of {source.hub_id}" if source.hub_id else ""
    known = f"; revision {source.revision}{where} is known to work" if source.revision else ""
    return SchemaError(
        f"{place}: column `{error.column}` is {error.found}, expected {_expected(source, error)}. "
        f"This is not the schema of `{source.name}`; columns found: {', '.join(row) or 'none'}{known}"
    )


def value_of(row: Row, column: str, kind: type[T], *, default: T | None = None) -> T:
    """Return the value of a column, which must be a ``kind`` (a bool is not an ``int``).

    A missing column or a null gives ``default`` if there is one, else ColumnError.
    """
    value = row.get(column)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind) or (kind in (int, float) and isinstance(value, bool)):
        raise ColumnError(column, "missing" if column not in row else f"a {type(value).__name__}")
    return value


def text_of(row: Row, column: str, *, default: str | None = None) -> str:
    """Return the text of a column; see ``value_of``."""
    return value_of(row, column, str, default=default)


def list_of(row: Row, column: str, *, default: list[Any] | None = None) -> list[Any]:
    """Return the list of a column; see ``value_of``."""
    return value_of(row, column, list, default=default)


def dict_of(row: Row, column: str, *, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the mapping of a column; see ``value_of``."""
    return value_of(row, column, dict, default=default)


def case_of(test: Any, column: str) -> StdinCase:
    """Return an item of a column of tests as a case: an object with ``input`` and ``output``, both text."""
    match test:
        case {"input": str(given), "output": str(expected)}:
            return StdinCase(given, expected)
        case _:
            raise ColumnError(column, "a list of other things")


def json_of(row: Row, column: str, *, empty: Any = None) -> Any:
    """Return the value of a column with JSON as text; blank text gives ``empty``.

    Raises Skip("broken_json") if the text of this row is not JSON: one row does not make the schema wrong.
    """
    text = text_of(row, column)
    return parse_json(text, column) if text.strip() else empty


def parse_json(text: str, what: str) -> Any:
    """Parse JSON. Integers have any number of digits; raises Skip("broken_json") naming ``what``."""
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        raise Skip("broken_json", f"`{what}` is not JSON: {error}") from None
