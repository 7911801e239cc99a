"""Convert the test tables of these clients to problems."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from msgspec import Struct

from whetstone.core.http.refusal import RequestRefused, bad_request
from whetstone.core.long_integers import read_json
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Limits,
    Problem,
    ProgramChecker,
    StdinCase,
    StdinTests,
    Tests,
)
from whetstone.service.compat.schemas import TestConfig
from whetstone.service.messages import check_value_count

DEFAULT_TIMEOUT_S = 20.0
_DEFAULT_MEMORY_MB = 1024.0
# LeetCode programs define a class, whose method is called.
_METHOD = re.compile(r"^class\s+Solution\b", re.MULTILINE)
_STDIN, _CALL, _ASSERT = "stdin_stdout", "function_call", "assert"


class _CaseRow(Struct, frozen=True):
    """A case of a list. In CommonOJ rows, input and output are objects with ``stdin`` and ``stdout``."""

    input: Any = None
    output: Any = None
    type: str | None = None
    fn_name: str | None = None


class Table(Struct, frozen=True):
    """Cases in columns. Assert tests have ``test`` and ``entry_point`` instead."""

    input: list[Any] = []
    output: list[Any] = []
    type: str | None = None
    fn_name: str | None = None
    json_input: bool = False
    test: str | None = None
    tests: str | None = None
    entry_point: str | None = None


def build_problem(config: TestConfig, table: Table, source: str, name: str) -> Problem:
    """Return the problem of a table and a configuration, for the program ``source``. Raises
    RequestRefused."""
    tests = _build_tests(table, source)
    checker = None
    if config.extra.special_judge_program:
        if not isinstance(tests, StdinTests):
            raise bad_request("special_judge_program is only for tests of stdin and stdout")
        language = config.extra.special_judge_language or "python"
        checker = ProgramChecker(language, config.extra.special_judge_program, "scalebox")
    return Problem(name or "request", "", tests, checker=checker, limits=_limits(config))


def read_table(data: object) -> Table:
    """Return the table in ``provided_data``, from columns, rows or CommonOJ rows. Raises RequestRefused."""
    if not isinstance(data, dict):
        raise _malformed("config.provided_data is missing, or a list: give one row as an object")
    data = cast("dict[str, Any]", data)
    given = data.get("test_cases", data.get("test"))
    place = "config.provided_data.test_cases" if "test_cases" in data else "config.provided_data.test"
    if given is None:
        raise _malformed("config.provided_data holds no test_cases (or test)")
    try:
        if isinstance(given, list):
            return _table_of_rows(msgspec.convert(given, list[_CaseRow]), place)
        return msgspec.convert(given, Table)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise _malformed(f"{place}: {error}") from None


def _malformed(message: str) -> RequestRefused:
    """Return the error for invalid tests. It has ScaleBox's status, which its clients do not retry."""
    return RequestRefused(500, "malformed_tests", message)


def _table_of_rows(rows: list[_CaseRow], place: str) -> Table:
    kinds = {(row.type, row.fn_name) for row in rows}
    if len(kinds) > 1:
        raise bad_request(f"{place}: all cases must have one type and one fn_name")
    kind, function = next(iter(kinds), (None, None))
    inputs = [_unwrap(row.input, "stdin") for row in rows]
    return Table(inputs, [_unwrap(row.output, "stdout") for row in rows], kind, function)


def _unwrap(value: object, key: str) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return fields.get(key) if key in fields else value
    return value


def _build_tests(table: Table, source: str) -> Tests:
    kind = table.type or (_CALL if table.fn_name else _ASSERT if table.test or table.tests else _STDIN)
    if kind == _ASSERT:
        if table.tests or not table.test:
            raise RequestRefused(
                501, "not_served", "assert tests are judged for Python, from `test` and `entry_point`"
            )
        return _construct(lambda: AssertTests(check=table.test, entry_point=table.entry_point))
    if kind not in (_STDIN, _CALL):
        raise bad_request(f"test_cases.type is {kind[:50]!r}; known: {_STDIN}, {_CALL}, {_ASSERT}")
    inputs, outputs = table.input, table.output
    if len(inputs) != len(outputs):
        raise bad_request(f"test_cases: {len(inputs)} inputs, but {len(outputs)} outputs")
    if not inputs:
        raise bad_request("test_cases has no case: nothing would be tested", "no_tests")
    if kind == _STDIN:
        return StdinTests([_stdin_case(*each) for each in zip(inputs, outputs, strict=True)])
    if not table.fn_name:
        raise _malformed("test_cases: `fn_name` is missing: the function that is called")
    if table.json_input:
        check_value_count(
            "\n".join(map(str, (*inputs, *outputs))).encode("utf-8", "surrogatepass"), "test_cases"
        )
    cases = [_call_case(*each, table.json_input) for each in zip(inputs, outputs, strict=True)]
    owner = "Solution" if _METHOD.search(source) else None
    return _construct(lambda: CallTests(cases, table.fn_name, owner))


def _construct(make: Any) -> Any:
    try:
        return make()
    except ValueError as error:
        raise bad_request(f"test_cases: {error}") from None


def _stdin_case(given: object, expected: object) -> StdinCase:
    if not isinstance(expected, str) or not isinstance(given, str | None):
        raise _malformed("test_cases: input and output of a case are text")
    return StdinCase(given or "", expected)


def _call_case(given: object, expected: object, json_input: bool) -> CallCase:
    if json_input:
        try:
            args = [read_json(line) for line in str(given).split("\n") if line.strip()]
            return CallCase(read_json(str(expected)), args)
        except (ValueError, RecursionError) as error:
            raise _malformed(f"test_cases: with json_input, arguments are lines of JSON: {error}") from None
    if not isinstance(given, list) or not isinstance(expected, list) or len(cast("list[Any]", expected)) != 1:
        raise _malformed("test_cases: a call's input is a list of arguments, its output a list of one value")
    return CallCase(expected[0], cast("list[Any]", given))


def _limits(config: TestConfig) -> Limits:
    extra = config.extra
    limits = (config.memory_limit_mb, config.memory_limit_MB, extra.memory_limit_mb, extra.memory_limit_MB)
    memory_mb = next((each for each in limits if each is not None and each > 0), None)
    if memory_mb is None and config.mem_limit is not None and config.mem_limit > 0:
        memory_mb = config.mem_limit / 1024
    return Limits(config.run_timeout or DEFAULT_TIMEOUT_S, memory_mb or _DEFAULT_MEMORY_MB)
