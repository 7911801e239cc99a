"""Converts the rows of a source with a map of columns."""

from __future__ import annotations

import re
from typing import Any, cast

from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, CallTests, Problem, StdinTests, Tests
from whetstone.data.sources.check_code import script_tests
from whetstone.data.sources.column_map import ColumnMap
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.programs import references
from whetstone.data.sources.pytest_tests import pytest_tests
from whetstone.data.sources.row_problem import limits_of, names_in, row_problem
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, Skip
from whetstone.data.sources.test_fields import read_tests
from whetstone.judge.languages.table import PYTHON, language_named

_UNIT = re.compile(r"_(ms|s|sec|seconds|kb|mb|gb|bytes)\Z", re.IGNORECASE)
_NUMBER = re.compile(r"\s*\d+(?:\.\d+)?\s*")
_CHECK = re.compile(r"^def check\(\w+\):(?!.*^check\()", re.MULTILINE | re.DOTALL)
_DEFINED = re.compile(r"^[ \t]*def[ \t]+[a-zA-Z]\w*", re.MULTILINE)
_PYTEST = re.compile(r"^[ \t]*(?:def[ \t]+test|class[ \t]+Test|import[ \t]+pytest)", re.MULTILINE)
_KINDS = {"stdin": StdinTests, "call": CallTests, "assert": (AssertTests, CallTests), "pytest": AssertTests}


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of a source with a map."""
    columns = source.map
    assert columns is not None, f"{source.name} has no map"
    starter, solutions = _text(row, columns.starter), _listed(value_at(row, columns.reference))
    language = _language(_text(row, columns.language))
    programs = [program.source for program in references(solutions, language)[0]]
    tags = value_at(row, columns.tags)
    listed = [tag.strip() for tag in tags.split(",")] if isinstance(tags, str) else []
    return row_problem(
        source,
        own_id,
        statement=_statement(row, columns.statement),
        tests=_tests(row, columns, starter, programs),
        solutions=solutions,
        starter=starter,
        language=language,
        limits=limits_of(_amount(row, columns.time_limit), _amount(row, columns.memory_limit)),
        facts={"difficulty": value_at(row, columns.difficulty), "tags": names_in(tags) or listed},
    )


def value_at(row: Row, column: str | None) -> Any:
    """Return the value of a column or path; None if the row lacks it."""
    if column is None or column in row:
        return row.get(column or "")
    value: Any = row
    for name in column.split("."):
        value = _field(unpack(value, column) if isinstance(value, str) else value, name)
    return value


def _field(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_field(item, name) for item in cast("list[Any]", value)]
    return cast("Row", value).get(name) if isinstance(value, dict) else None


def _language(name: str) -> str:
    try:
        return language_named(name or PYTHON, "the row").name
    except UserError:
        raise Skip("unsupported_language", f"the programs are in {name}") from None


def _text(row: Row, column: str | None) -> str:
    """Return a text; an empty one if there is none."""
    value = value_at(row, column)
    if value is not None and not isinstance(value, str):
        raise ColumnError(str(column), f"a {type(value).__name__}", "text")
    return value or ""


def _statement(row: Row, column: str) -> str:
    value = value_at(row, column)
    if isinstance(value, list):
        messages = cast("list[Any]", value)
        said = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
        value = said[-1] if said else value
    if not isinstance(value, str | None):
        raise ColumnError(column, f"a {type(value).__name__}", "the statement, as text")
    if value is None or not value.strip():
        raise Skip("no_statement", f"`{column}` is empty")
    return value


def _listed(value: Any) -> Any:
    """Return the list of programs that a text packs; other values unchanged."""
    try:
        return _list_of(value, "reference") or value
    except Skip:
        return value


def _amount(row: Row, column: str | None) -> Any:
    """Return a limit, with the unit in the name of its column if the value has none."""
    value, unit = value_at(row, column), _UNIT.search(column or "")
    return f"{value} {unit[1].lower()}" if unit and _NUMBER.fullmatch(str(value)) else value


def _tests(row: Row, columns: ColumnMap, starter: str, programs: list[str]) -> Tests:
    name = _text(row, columns.function).strip().rpartition(".")[2] or None
    field = _field_of_tests(row, columns, name, starter)
    code = _code(field, columns.kind)
    if code and (columns.kind == "pytest" or _PYTEST.search(code)):
        tests = pytest_tests(code)
    elif code:
        # HumanEval's form: what calls `check` is not part of the tests.
        called = f"{code}\ncheck({name})\n" if name and _CHECK.search(code) else code
        tests = script_tests(called)
    else:
        if columns.kind in ("stdin", "call"):
            field = _with_type(field, columns.kind)
        tests = read_tests(field, function=name, starter=starter, programs=programs)
    if columns.kind and not isinstance(tests, _KINDS[columns.kind]):
        found = tests.__struct_config__.tag
        raise Skip("other_kind", f"these are {found} tests, and the map has kind={columns.kind}")
    return tests


def _field_of_tests(row: Row, columns: ColumnMap, function: str | None, starter: str) -> Any:
    """Return the tests of a row as a field of ``read_tests``, or as code."""
    if columns.tests is None:
        return _cases(row, columns, function, starter)
    field = value_at(row, columns.tests)
    if field in (None, ""):
        raise Skip("no_tests", f"`{columns.tests}` is empty")
    code = isinstance(field, str) and "assert" in field and not field.lstrip().startswith("{")
    packed = isinstance(field, str) and (columns.kind in ("stdin", "call") or not code)
    return unpack(field, columns.tests) if packed else _listed(field)


def _cases(row: Row, columns: ColumnMap, function: str | None, starter: str) -> Row:
    """Return the tests of two columns as a field of ``read_tests``."""
    names = [str(columns.inputs), str(columns.outputs)]
    cells = [value_at(row, name) for name in names]
    for name, cell in zip(names, cells, strict=True):
        if cell is None:
            raise Skip("no_tests", f"`{name}` is empty")
    # A starter that defines a function is not of a program that reads its input.
    defines = bool(_DEFINED.search(starter)) and "input(" not in starter and "stdin" not in starter
    called = columns.kind == "call" or (columns.kind is None and (function is not None or defines))
    lists = [_list_of(cell, name) for name, cell in zip(names, cells, strict=True)]
    if None in lists:
        # The cells are the only test.
        lists = [
            [unpack(cell, name) if called and isinstance(cell, str) else cell]
            for name, cell in zip(names, cells, strict=True)
        ]
    return {"inputs": lists[0], "outputs": lists[1], "type": "call" if called else "stdin"}


def _list_of(value: Any, column: str) -> list[Any] | None:
    """Return the list in a cell; None for other values. Raises Skip for text that begins as a list only."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = unpack(value, column)
    return cast("list[Any]", value) if isinstance(value, list) else None


def _with_type(field: Any, kind: str) -> Any:
    """Return a field of tests with the type of each test."""
    if isinstance(field, dict):
        return {**cast("Row", field), "type": kind}
    if not isinstance(field, list):
        return field
    items = cast("list[Any]", field)
    return [{**cast("Row", item), "type": kind} if isinstance(item, dict) else item for item in items]


def _code(field: Any, kind: str | None) -> str:
    """Return test code, which is text or a list of texts; empty for a list of asserts and for other tests."""
    parts = cast("list[Any]", field) if isinstance(field, list) else [field]
    if not parts or not all(isinstance(part, str) for part in parts):
        return ""
    asserts = isinstance(field, list) and all(part.lstrip().startswith("assert") for part in parts)
    return "" if asserts and kind != "pytest" else "\n\n".join(parts)
