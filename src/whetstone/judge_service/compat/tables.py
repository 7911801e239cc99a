"""Test tables as these clients send them, made into problems of ours."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import msgspec
from msgspec import Struct

from whetstone.judge_service.compat.schemas import TestConfig
from whetstone.judge_service.reading import check_nodes
from whetstone.judge_service.refusal import Refused, bad_request
from whetstone.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    Limits,
    Problem,
    ProgramChecker,
    StdinCase,
    StdinTests,
    Tests,
)

SCALEBOX_MODE = "grader:scalebox"
DEFAULT_TIMEOUT_S = 20.0
COMPILED_TIMEOUT_S = 10.0
_DEFAULT_MEMORY_MB = 1024.0
_METHOD = re.compile(r"^class\s+Solution\b", re.MULTILINE)
_STDIN, _CALL, _ASSERT = "stdin_stdout", "function_call", "assert"


class Row(Struct, frozen=True):
    """A case in the list form. CommonOJ rows have an object with ``stdin`` and ``stdout`` on either side."""

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


def problem_of(config: TestConfig, table: Table, source: str, name: str) -> Problem:
    """The problem that a table and a configuration describe, for the program ``source``. Raises Refused."""
    scalebox = config.extra.compat == "scalebox"
    tests = _tests(table, source, scalebox=scalebox)
    checker = None
    if config.extra.special_judge_program:
        if not isinstance(tests, StdinTests):
            raise bad_request("special_judge_program decides tests of stdin and stdout only")
        language = config.extra.special_judge_language or "python"
        checker = ProgramChecker(language, config.extra.special_judge_program, "scalebox")
    stdin_by_scalebox = scalebox and checker is None and isinstance(tests, StdinTests)
    return Problem(
        name or "request",
        "",
        tests,
        compare=Compare(SCALEBOX_MODE) if stdin_by_scalebox else Compare(),
        checker=checker,
        limits=_limits(config),
    )


def table_of(data: object) -> Table:
    """The table in ``provided_data``: in columns, in rows, or as CommonOJ has it. Raises Refused."""
    if not isinstance(data, dict):
        raise _malformed("config.provided_data is missing, or a list: give one row as an object")
    data = cast("dict[str, Any]", data)
    given = data.get("test_cases", data.get("test"))
    place = "config.provided_data.test_cases" if "test_cases" in data else "config.provided_data.test"
    if given is None:
        raise _malformed("config.provided_data holds no test_cases (or test)")
    try:
        if isinstance(given, list):
            return _columns(msgspec.convert(given, list[Row]), place)
        return msgspec.convert(given, Table)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise _malformed(f"{place}: {error}") from None


def _malformed(message: str) -> Refused:
    """Tests that cannot be read. ScaleBox answers 500, and its clients know that it is theirs to mend."""
    return Refused(500, "malformed_tests", message)


def _columns(rows: list[Row], place: str) -> Table:
    kinds = {(row.type, row.fn_name) for row in rows}
    if len(kinds) > 1:
        raise bad_request(f"{place}: all cases must have one type and one fn_name")
    kind, function = next(iter(kinds), (None, None))
    inputs = [_side(row.input, "stdin") for row in rows]
    return Table(inputs, [_side(row.output, "stdout") for row in rows], kind, function)


def _side(value: object, key: str) -> object:
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return named.get(key) if key in named else value
    return value


def _tests(table: Table, source: str, *, scalebox: bool) -> Tests:
    kind = table.type or (_CALL if table.fn_name else _ASSERT if table.test or table.tests else _STDIN)
    if kind == _ASSERT:
        if table.tests or not table.test:
            raise Refused(
                501, "not_served", "assert tests are judged for Python, from `test` and `entry_point`"
            )
        return _made(lambda: AssertTests(check=table.test, entry_point=table.entry_point))
    if kind not in (_STDIN, _CALL):
        raise bad_request(f"test_cases.type is {kind[:50]!r}; known: {_STDIN}, {_CALL}, {_ASSERT}")
    inputs, outputs = table.input, table.output
    if scalebox and kind == _STDIN:  # it looks at the cases that both have
        inputs, outputs = inputs[: len(outputs)], outputs[: len(inputs)]
    elif len(inputs) != len(outputs):
        raise bad_request(f"test_cases: {len(inputs)} inputs, but {len(outputs)} outputs")
    if not inputs:
        raise bad_request("test_cases: there is no case: nothing would be tested", "no_tests")
    if kind == _STDIN:
        return StdinTests([_stdin_case(*each) for each in zip(inputs, outputs, strict=True)])
    if not table.fn_name:
        raise _malformed("test_cases: `fn_name` is missing: the function that is called")
    if table.json_input:
        check_nodes("\n".join(map(str, (*inputs, *outputs))).encode("utf-8", "surrogatepass"), "test_cases")
    cases = [_call_case(*each, table.json_input) for each in zip(inputs, outputs, strict=True)]
    owner = "Solution" if _METHOD.search(source) else None
    return _made(lambda: CallTests(cases, table.fn_name, owner))


def _made(make: Any) -> Any:
    try:
        return make()
    except ValueError as error:
        raise bad_request(f"test_cases: {error}") from None


def _stdin_case(given: object, wanted: object) -> StdinCase:
    if not isinstance(wanted, str) or not isinstance(given, str | None):
        raise _malformed("test_cases: input and output of a case are text")
    return StdinCase(given or "", wanted)


def _call_case(given: object, wanted: object, json_input: bool) -> CallCase:
    if json_input:
        try:
            args = [json.loads(line) for line in str(given).split("\n") if line.strip()]
            return CallCase(json.loads(str(wanted)), args)
        except (ValueError, RecursionError) as error:
            raise _malformed(f"test_cases: with json_input, arguments are lines of JSON: {error}") from None
    if not isinstance(given, list) or not isinstance(wanted, list) or len(cast("list[Any]", wanted)) != 1:
        raise _malformed("test_cases: a call's input is a list of arguments, its output a list of one value")
    return CallCase(wanted[0], cast("list[Any]", given))


def _limits(config: TestConfig) -> Limits:
    extra = config.extra
    named = (config.memory_limit_mb, config.memory_limit_MB, extra.memory_limit_mb, extra.memory_limit_MB)
    memory_mb = next((each for each in named if each is not None and each > 0), None)
    if memory_mb is None and config.mem_limit is not None and config.mem_limit > 0:
        memory_mb = config.mem_limit / 1024
    return Limits(config.run_timeout or DEFAULT_TIMEOUT_S, memory_mb or _DEFAULT_MEMORY_MB)
