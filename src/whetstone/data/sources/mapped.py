"""Converts the rows of a source with a map of columns, and guesses the map of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from whetstone.core.problem import AssertTests, CallTests, Problem, StdinTests, Tests
from whetstone.core.toml_files import read_toml
from whetstone.data.sources.check_code import script_tests
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.programs import references
from whetstone.data.sources.pytest_tests import pytest_tests
from whetstone.data.sources.row_problem import limits_of, names_in, row_problem
from whetstone.data.sources.source import ColumnError, ColumnMap, DatasetSource, Row, Skip
from whetstone.data.sources.test_fields import read_tests
from whetstone.data.sources.verl import user_message

# Most references of a row that states which ones pass. Such rows have dozens.
_MOST_PASSED = 4
_UNIT = re.compile(r"_(ms|s|sec|seconds|kb|mb|gb|bytes)\Z", re.IGNORECASE)
_NUMBER = re.compile(r"\s*\d+(?:\.\d+)?\s*")
_DEFINED = re.compile(r"^[ \t]*def[ \t]+[a-zA-Z]\w*", re.MULTILINE)
_PYTEST = re.compile(r"^[ \t]*(?:def[ \t]+test|class[ \t]+Test|import[ \t]+pytest)", re.MULTILINE)
_NAMES = read_toml("whetstone.data.sources", "column_names.toml", dict[str, list[str]])
_KINDS = {"stdin": StdinTests, "call": CallTests, "assert": (AssertTests, CallTests), "pytest": AssertTests}


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of a source with a map."""
    columns = source.map
    assert columns is not None, f"{source.name} has no map"
    if None in cast("dict[Any, Any]", row):
        raise Skip("more_cells", "the row has more cells than columns; a cell with a comma needs quotes")
    statement = user_message(value_at(row, columns.statement) or "", columns.statement)
    starter, solutions = _text(row, columns.starter), _solutions(row, columns)
    tags = value_at(row, columns.tags)
    listed = [tag.strip() for tag in tags.split(",")] if isinstance(tags, str) else []
    return row_problem(
        source,
        own_id,
        statement=statement,
        tests=_tests(row, columns, starter, solutions),
        solutions=solutions,
        starter=starter,
        limits=limits_of(_amount(row, columns.time_limit), _amount(row, columns.memory_limit)),
        facts={"difficulty": value_at(row, columns.difficulty), "tags": names_in(tags) or listed},
    )


def value_at(row: Row, column: str | None) -> Any:
    """Return the value of a column or path; None if the row lacks it."""
    if column is None or column in row:
        return row.get(column or "")
    value: Any = row
    for name in column.split("."):
        value = _member(unpack(value, column) if isinstance(value, str) else value, name)
    return value


def _member(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_member(item, name) for item in cast("list[Any]", value)]
    return cast("Row", value).get(name) if isinstance(value, dict) else None


def _text(row: Row, column: str | None) -> str:
    """Return a text; an empty one if there is none."""
    value = value_at(row, column)
    if value is not None and not isinstance(value, str):
        raise ColumnError(str(column), f"a {type(value).__name__}", "text")
    return value or ""


def _solutions(row: Row, columns: ColumnMap) -> list[Any]:
    """Return the references, without those that are known to fail."""
    written = _listed(value_at(row, columns.reference))
    programs = cast("list[Any]", written) if isinstance(written, list) else [written] if written else []
    if columns.passed is None:
        return programs
    shares = _list_of(value_at(row, columns.passed), columns.passed) or []
    right = [program for program, share in zip(programs, shares, strict=False) if share == 1]
    return list(dict.fromkeys(right))[:_MOST_PASSED]


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


def _tests(row: Row, columns: ColumnMap, starter: str, solutions: list[Any]) -> Tests:
    """Return the tests of a row. The Skip for unreadable ones names their columns."""
    try:
        return _read(row, columns, starter, solutions)
    except Skip as skip:
        named = columns.tests or f"{columns.inputs}` and `{columns.outputs}"
        detail = skip.detail if skip.detail.startswith("`") else f"`{named}`: {skip.detail}"
        raise Skip(skip.reason, detail) from None


def _read(row: Row, columns: ColumnMap, starter: str, solutions: list[Any]) -> Tests:
    name = _text(row, columns.function).strip().rpartition(".")[2] or None
    called = None if columns.kind is None else columns.kind == "call"
    if columns.tests is None:
        # A starter that defines a function is not of a program that reads its input.
        defines = bool(_DEFINED.search(starter)) and "input(" not in starter and "stdin" not in starter
        called = name is not None or defines if called is None else called
        field = _cases(row, str(columns.inputs), str(columns.outputs), called)
    else:
        field = _field(row, columns.tests, columns.kind)
    code = _code(field, columns.kind)
    if code and (columns.kind == "pytest" or _PYTEST.search(code)):
        tests = pytest_tests(code)
    elif code:
        # HumanEval's form: what calls `check` is not part of the tests.
        uncalled = "\ndef check(" in f"\n{code}" and "\ncheck(" not in code
        tests = script_tests(f"{code}\ncheck({name})\n" if name and uncalled else code)
    else:
        programs = [program.source for program in references(solutions)[0]]
        tests = read_tests(field, function=name, starter=starter, programs=programs, called=called)
    if columns.kind and not isinstance(tests, _KINDS[columns.kind]):
        found = tests.__struct_config__.tag
        raise Skip("other_kind", f"these are {found} tests, and the map has kind={columns.kind}")
    return tests


def _field(row: Row, column: str, kind: str | None) -> Any:
    """Return the tests of a row as a field of ``read_tests``, or as code."""
    field = value_at(row, column)
    if field in (None, ""):
        raise Skip("no_tests", f"`{column}` is empty")
    code = kind not in ("stdin", "call") and "assert" in str(field) and not str(field).startswith("{")
    return unpack(field, column) if isinstance(field, str) and not code else _listed(field)


def _cases(row: Row, inputs: str, outputs: str, called: bool) -> Row:
    """Return the tests of two columns as a field of ``read_tests``."""
    cells = {column: value_at(row, column) for column in (inputs, outputs)}
    for column, cell in cells.items():
        if cell is None:
            raise Skip("no_tests", f"`{column}` is empty")
    given, expected = (_list_of(cell, column) for column, cell in cells.items())
    if given is None or expected is None:
        # The cells are the only test.
        given, expected = (
            [unpack(cell, column) if called and isinstance(cell, str) else cell]
            for column, cell in cells.items()
        )
    return {"inputs": given, "outputs": expected}


def _list_of(value: Any, column: str) -> list[Any] | None:
    """Return the list in a cell; None for other values. Raises Skip for text that only begins as a list."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = unpack(value, column)
    return cast("list[Any]", value) if isinstance(value, list) else None


def _code(field: Any, kind: str | None) -> str:
    """Return test code, which is text or a list of texts; empty for a list of asserts and for other tests."""
    parts = cast("list[Any]", field) if isinstance(field, list) else [field]
    if not parts or not all(isinstance(part, str) for part in parts):
        return ""
    asserts = isinstance(field, list) and all(part.lstrip().startswith("assert") for part in parts)
    return "" if asserts and kind != "pytest" else "\n\n".join(parts)


def guess_map(rows: Sequence[Row]) -> dict[str, str]:
    """Return parts of a problem -> the columns that look like them, by name and values. Others are absent."""
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name]
    pair = {part: name for part in ("inputs", "outputs") if (name := _named(part, columns, rows))}
    found = pair if len(pair) == 2 else {}
    for part in _NAMES.keys() - {"inputs", "outputs", "tests" if found else ""}:
        name = _named(part, [column for column in columns if column not in pair.values()], rows)
        found |= {part: name} if name else {}
    return {part: found[part] for part in _NAMES if part in found}


def _named(part: str, columns: Sequence[str], rows: Sequence[Row]) -> str | None:
    """Return the first column with values and a name of a part; the last word of a name may be that name."""
    words = {column: re.findall(r"[a-z0-9]+", column.lower()) for column in reversed(columns)}
    whole = {"".join(found): column for column, found in words.items() if found}
    known = {name for names in _NAMES.values() for name in names}
    plain = {words[column][-1]: column for name, column in whole.items() if name not in known} | whole
    return next((plain[n] for n in _NAMES[part] if n in plain and _suits(part, plain[n], rows)), None)


def _suits(part: str, column: str, rows: Sequence[Row]) -> bool:
    """Return whether the values may be this part of a problem."""
    values = [row[column] for row in rows if row.get(column) not in (None, "", [], {})]
    match part:
        case "tests":
            return any(map(_has_tests, values))
        case "id":
            return len({str(value) for value in values}) == len(rows)
        case "statement" | "function" | "starter":
            return all(isinstance(value, str | list) for value in values)
        case _:
            return bool(values)


def _has_tests(value: Any) -> bool:
    if "assert " in str(value):
        return True
    try:
        # The function's name is in another column, and any will do here.
        read_tests(value, starter="def f(): pass")
    except (Skip, TypeError, ValueError, AttributeError, LookupError, RecursionError):
        return False
    return True
