"""The tests of a problem as pairs of input and expected output, for every kind of test.

Formatting does not matter: white space in texts, ``1.0`` and ``1``, tuples and lists, the name of the
function, ``assert f(x)`` and ``assert f(x) == True``. So a set that calls a function and one that asserts its
results have the same tests.
"""

from __future__ import annotations

import ast
import re
from array import array
from typing import Any, cast

import msgspec
from msgspec import Struct

from whetstone.core.asserted_call import read_asserted_call
from whetstone.core.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    NoTests,
    Problem,
    StdinTests,
    case_count,
)
from whetstone.core.syntax import parsed
from whetstone.data.similarity.words import hash64

_DECIMAL = re.compile(r"(-?\d+)\.(\d*?)0*")
_ENOUGH_CASES, _ENOUGH_TEXT = 5, 64


class CaseSet(Struct, frozen=True):
    """The identity of the tests of a problem.

    ``fingerprint`` is equal exactly for equal tests, in any order. It is None for so few and short tests that
    different problems may share them: less than five cases and less than 64 characters. ``inputs`` and
    ``wholes`` are parallel arrays of hashes: of the cases' inputs, and of inputs with outputs. Test code that
    computes has none. ``count`` is the number of tests. ``name`` is the called function or class, empty for
    programs.
    """

    fingerprint: int | None
    inputs: array[int]
    wholes: array[int]
    count: int
    name: str


def read_tests(problem: Problem) -> CaseSet:
    """Reduce the tests of a problem to a CaseSet."""
    tests = problem.tests
    extra = "" if problem.checker is None else _json(problem.checker)
    if isinstance(tests, AssertTests):
        return _assert_cases(tests)
    if isinstance(tests, CallTests):
        name = tests.function or tests.class_ or ""
        pairs = [(_arguments(c.operations, c.args, c.kwargs), _value(c.expected)) for c in tests.cases]
        return _case_set(pairs, case_count(problem), name, extra)
    if isinstance(tests, InteractiveTests):
        pairs = [(_text(case.input), _text(case.answer)) for case in tests.cases]
        return _case_set(pairs, case_count(problem), "", _json(tests.interactor))
    return _case_set(_texts(tests), case_count(problem), "", extra)


def _texts(tests: StdinTests | NoTests) -> list[tuple[str, str]]:
    return [(_text(case.input), _text(case.output)) for case in tests.cases]


def _case_set(pairs: list[tuple[str, str]], count: int, name: str, extra: str = "") -> CaseSet:
    inputs = array("Q", (hash64(given) for given, _ in pairs))
    wholes = array("Q", (hash64(f"{given}\0{expected}") for given, expected in pairs))
    # Different easy problems may have the same few small cases.
    fingerprint = None
    if len(pairs) >= _ENOUGH_CASES or sum(len(i) + len(o) for i, o in pairs) >= _ENOUGH_TEXT:
        fingerprint = hash64(f"{sorted(set(wholes))} {extra}")
    return CaseSet(fingerprint, inputs, wholes, count, name)


def _assert_cases(tests: AssertTests) -> CaseSet:
    """Return cases if every assert compares a call with a literal; else the whole test code in
    normal form."""
    code = tests.check or tests.unittest or "\n".join(tests.asserts or [])
    tree = parsed(code)
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)] if tree else []
    pairs = [pair for pair in map(_asserted_case, asserts) if pair is not None]
    name = tests.entry_point or next((n for node in asserts if (n := _called_name(node)) is not None), "")
    count = max(len(asserts), len(tests.asserts or []), 1)
    found = _case_set(pairs, count, name)
    # If some asserts are no cases, the others alone would not identify the tests.
    if pairs and len(pairs) == len(asserts) and not tests.unittest:
        return found
    # Unparsing removes comments and layout.
    normal = " ".join((ast.unparse(tree) if tree else code).split())
    whole = hash64(normal) if len(normal) >= _ENOUGH_TEXT else None
    return CaseSet(whole, found.inputs, found.wholes, count, name)


def _asserted_case(node: ast.Assert) -> tuple[str, str] | None:
    """Return arguments and value of ``assert f(…) == literal``, ``assert f(…)`` or ``assert not f(…)``."""
    found = read_asserted_call(node.test)
    if found is None or found.relation not in ("equal", "is", "true", "false"):
        return None
    return _arguments(None, found.args, found.kwargs), _value(found.expected)


def _called_name(node: ast.Assert) -> str | None:
    calls = (n.func for n in ast.walk(node.test) if isinstance(n, ast.Call))
    return next((f.id for f in calls if isinstance(f, ast.Name)), None)


def _arguments(operations: list[str] | None, args: list[Any], kwargs: dict[str, Any]) -> str:
    # Keyword arguments count by their values: sets that use them keep the order of the parameters.
    values = _value([*args, *kwargs.values()])
    return values if operations is None else f"{operations} {values}"


def _text(text: str) -> str:
    return " ".join(_token(token) for token in text.split())


def _token(token: str) -> str:
    found = _DECIMAL.fullmatch(token)
    return (f"{found[1]}.{found[2]}" if found[2] else found[1]) if found else token


def _value(value: Any) -> str:
    """Return the normal form of a value: JSON, with tuples as lists, sets sorted, and 3.0 as 3."""
    try:
        return _json(_plain(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        # A value without JSON form stays a Python literal.
        return repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, set | frozenset):
        return ["set", *sorted(map(_value, cast("set[Any]", value)))]
    if isinstance(value, dict):
        pairs = {str(_plain(k)): _plain(v) for k, v in cast("dict[Any, Any]", value).items()}
        # The order of keys does not matter in a comparison of dicts.
        return dict(sorted(pairs.items()))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def shared_cases(a: CaseSet, b: CaseSet) -> tuple[int, int]:
    """Return the numbers of cases that both have, and of cases with one input but different outputs."""
    mine, theirs = dict(zip(a.inputs, a.wholes, strict=True)), dict(zip(b.inputs, b.wholes, strict=True))
    common = mine.keys() & theirs.keys()
    same = sum(mine[given] == theirs[given] for given in common)
    return same, len(common) - same
