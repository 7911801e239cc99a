"""Defects of the tests of a problem that are visible without running a program."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.asserted_call import read_asserted_call
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    InteractiveTests,
    Problem,
    StdinTests,
    case_count,
)
from whetstone.core.syntax import parsed
from whetstone.data.files import plain_lines
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import DefectFlag
from whetstone.judge.answers.comparisons import same_value
from whetstone.judge.answers.text import compare

_MB = 1 << 20
# Of UTF-8 text. A judge sends all tests of a problem to its worker for each program.
LARGEST_INPUT_MB = LARGEST_OUTPUT_MB = 8.0
LARGEST_TESTS_MB = 64.0
# The cases that a detail lists.
_MOST_SHOWN = 8
# In characters. Pages shorten only long text, so a short text that ends in dots is complete.
_SHORTEST_CUT = 200
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
# A loop in test code counts as this many tests, since their number is unknown.
_LOOP_COUNT = 1000


class Case(Struct, frozen=True):
    """A case as text: its input and its expected output."""

    given: str
    expected: str


def cases_of(problem: Problem) -> Iterator[Case]:
    """Yield the cases as text, in their order. Lines end in LF, since a CR does not make another test.

    The arguments and the value of a ``call`` case are JSON. The input of an assert is its code, and its
    output is empty. ``check`` and ``unittest`` code is one case.
    """
    tests = problem.tests
    if isinstance(tests, StdinTests):
        for case in tests.cases:
            yield Case(_lines(case.input), _lines(case.output))
    elif isinstance(tests, InteractiveTests):
        for case in tests.cases:
            yield Case(_lines(case.input), _lines(case.answer))
    elif isinstance(tests, CallTests):
        for case in tests.cases:
            yield Case(_json([case.operations, case.args, case.kwargs]), _json(case.expected))
    elif isinstance(tests, AssertTests):
        for code in tests.asserts or [tests.check or tests.unittest or ""]:
            yield Case(code.strip(), "")


def case_flags(problem: Problem, policy: Policy) -> Iterator[DefectFlag]:
    """Yield the defects that are visible without running a program."""
    yield from _too_large(problem)
    yield from _truncated(problem)
    if isinstance(problem.tests, StdinTests | InteractiveTests):
        odd = [n for n, case in enumerate(problem.tests.cases) if plain_lines(case.input) != case.input]
        if odd:
            yield DefectFlag("line_ends", describe_cases(odd))
    yield from _repetitions(problem)
    yield from _weak_tests(problem, policy)
    yield from _form_flags(problem)


def _too_large(problem: Problem) -> Iterator[DefectFlag]:
    given = expected = total = 0
    for case in cases_of(problem):
        sizes = [_size(text) for text in (case.given, case.expected)]
        given, expected, total = max(given, sizes[0]), max(expected, sizes[1]), total + sum(sizes)
    for name, size, most in (
        ("input_too_large", given, LARGEST_INPUT_MB),
        ("output_too_large", expected, LARGEST_OUTPUT_MB),
        ("tests_too_large", total, LARGEST_TESTS_MB),
    ):
        if size > most * _MB:
            yield DefectFlag(name, f"{size / _MB:.1f} MB; the bound is {most:g} MB")


def _truncated(problem: Problem) -> Iterator[DefectFlag]:
    """Yield a flag for text that ends in ``...``, like the shortened text of a web page."""
    if isinstance(problem.tests, StdinTests):
        cut = [
            number
            for number, case in enumerate(cases_of(problem))
            if any(_is_cut_off(text) for text in (case.given, case.expected))
        ]
        if cut:
            yield DefectFlag("truncated_tests", f'{describe_cases(cut)} with text that ends in "..."')


def _is_cut_off(text: str) -> bool:
    text = text.rstrip()
    return len(text) >= _SHORTEST_CUT and text.endswith("...") and (text[-4].isalnum() or text[-4].isspace())


def _repetitions(problem: Problem) -> Iterator[DefectFlag]:
    """Yield flags for cases with the same input: duplicates, or contradictions if the outputs differ."""
    first: dict[str, int] = {}
    same: list[int] = []
    contradictory: list[tuple[int, int]] = []
    for number, case in enumerate(cases_of(problem)):
        # Asserts that compare a call of plain values have the call as their input.
        compared = _compared_call(case.given) if isinstance(problem.tests, AssertTests) else None
        earlier = first.setdefault(compared[0] if compared else case.given, number)
        if earlier == number:
            continue
        if _contradict(problem, earlier, number):
            contradictory.append((earlier, number))
        else:
            same.append(number)
    if contradictory:
        pairs = ", ".join(f"{a + 1} and {b + 1}" for a, b in contradictory[:_MOST_SHOWN])
        yield DefectFlag("contradictory_tests", f"cases {pairs}")
    if same:
        yield DefectFlag("duplicate_tests", f"{describe_cases(same)} of {case_count(problem)}")


def _contradict(problem: Problem, one: int, other: int) -> bool:
    tests = problem.tests
    # With a checker, several outputs may be right.
    if problem.checker is not None:
        return False
    if isinstance(tests, StdinTests):
        # A comparison need not be symmetric, so both directions are tried.
        outputs = tests.cases[one].output, tests.cases[other].output
        return not any(compare(a.encode("utf-8", "surrogatepass"), b, problem.compare)[0]
                       for a, b in (outputs, outputs[::-1]))  # fmt: skip
    if isinstance(tests, CallTests):
        return not same_value(tests.cases[one].expected, tests.cases[other].expected, problem.compare)
    if isinstance(tests, AssertTests) and tests.asserts:
        both = _compared_call(tests.asserts[one]), _compared_call(tests.asserts[other])
        return (
            both[0] is not None
            and both[1] is not None
            and not same_value(both[0][1], both[1][1], problem.compare)
        )
    return False


def _compared_call(code: str) -> tuple[str, Any] | None:
    """Return the call and the value of ``assert call(plain values) == value``; None for other asserts."""
    tree = parsed(code)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assert):
        return None
    # Calls are compared as text, which is only right for plain values.
    found = read_asserted_call(tree.body[0].test)
    if found is None or not found.name or found.relation != "equal":
        return None
    return ast.unparse(found.call), found.expected


def _weak_tests(problem: Problem, policy: Policy) -> Iterator[DefectFlag]:
    """Yield flags for tests that are too few to distinguish a solution from other programs."""
    tests = problem.tests
    count = test_count(problem)
    if count < policy.fewest_tests:
        yield DefectFlag("few_tests", f"{count}; the policy asks for {policy.fewest_tests}")
    # Test code and interactors have no expected outputs to compare.
    if isinstance(tests, AssertTests | InteractiveTests):
        return
    if _all_in_statement(problem):
        yield DefectFlag("sample_tests_only", f"{count} in the statement")
    if isinstance(tests, StdinTests) and problem.checker is None:
        empty = [n for n, case in enumerate(tests.cases) if not case.output.strip()]
        if empty:
            yield DefectFlag("empty_output", describe_cases(empty))
    expected = Counter(" ".join(case.expected.split()) for case in cases_of(problem))
    if count > 1 and len(expected) == 1:
        yield DefectFlag("constant_output", f'all {count} tests expect "{next(iter(expected))[:60]}"')


def test_count(problem: Problem) -> int:
    """Return the number of tests; of test code, the number of its asserts."""
    tests = problem.tests
    if not isinstance(tests, AssertTests) or tests.asserts:
        return case_count(problem)
    code = tests.check or tests.unittest or ""
    tree = parsed(code)
    if tree is None:
        # Code for another version of Python does not parse here.
        return code.count("assert")
    nodes = list(ast.walk(tree))
    called = sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith(("assert", "fail"))
        for node in nodes
    )
    looped = any(isinstance(node, ast.For | ast.While) for node in nodes)
    return called + sum(isinstance(node, ast.Assert) for node in nodes) + (_LOOP_COUNT if looped else 0)


def _all_in_statement(problem: Problem) -> bool:
    """Return whether the statement shows every ``stdin`` test, as samples."""
    if not isinstance(problem.tests, StdinTests):
        return False
    text = _words(problem.statement)
    given = [case for case in cases_of(problem) if case.given.strip()]
    return bool(given) and all(_words(c.given) in text and _words(c.expected) in text for c in given)


def _words(text: str) -> str:
    return f" {' '.join(text.split())} "


def describe_cases(numbers: list[int]) -> str:
    """Return ``case 3`` or ``cases 1, 4, …`` for indices of cases: a reader counts from 1."""
    shown = ", ".join(str(number + 1) for number in numbers[:_MOST_SHOWN])
    more = ", …" if len(numbers) > _MOST_SHOWN else ""
    return f"case{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n") if "\r" in text else text


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _form_flags(problem: Problem) -> Iterator[DefectFlag]:
    """Yield flags for tests that no program of the references' form can pass.

    Functions and programs that read standard input need different tests, and so do functions of different
    signatures. Such problems would also fail their references; this names the cause.
    """
    tests = problem.tests
    sources = [program.source for program in problem.references if program.language.startswith("python")]
    trees = [tree for source in sources if (tree := parsed(source)) is not None]
    if isinstance(tests, StdinTests):
        if trees and all(_only_defines(tree) for tree in trees):
            yield DefectFlag(
                "mixed_kinds", "the tests are of standard input; the references only define functions"
            )
    elif isinstance(tests, CallTests) and tests.function is not None:
        signatures = [found for tree in trees if (found := _function(tree, tests)) is not None]
        odd = [
            number
            for number, case in enumerate(tests.cases)
            if signatures and not any(_takes(signature, case) for signature in signatures)
        ]
        if odd and len(odd) < len(tests.cases):
            yield DefectFlag(
                "mixed_kinds", f"the function does not take the arguments of {describe_cases(odd)}"
            )
        if trees and not signatures and all(_reads_only(tree) for tree in trees):
            yield DefectFlag("mixed_kinds", "the tests call a function; the references read standard input")


def _only_defines(tree: ast.Module) -> bool:
    """Return whether a program has only imports, definitions and constants, so that it reads and prints
    nothing."""
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body) and all(
        isinstance(node, _DEFINES)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign | ast.AnnAssign) and not _calls(node))
        for node in tree.body
    )


def _reads_only(tree: ast.Module) -> bool:
    """Return whether a program reads standard input and defines no function or class to call."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    defines = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body)
    return not defines and ("input" in names or "stdin" in attributes)


def _calls(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))


def _function(tree: ast.Module, tests: CallTests) -> ast.arguments | None:
    """Return the parameters of the function that the tests call; None if it has no plain definition."""
    body = tree.body
    if tests.class_ is not None:
        owners = [node for node in body if isinstance(node, ast.ClassDef) and node.name == tests.class_]
        if not owners:
            return None
        body = owners[-1].body
    found = [node for node in body if isinstance(node, _Function) and node.name == tests.function]
    # A decorator may change the parameters.
    if not found or found[-1].decorator_list:
        return None
    return found[-1].args


def _takes(signature: ast.arguments, case: CallCase) -> bool:
    """Return whether the function accepts the positional arguments of a case. Keywords are assumed to fill
    the others."""
    names = [argument.arg for argument in (*signature.posonlyargs, *signature.args)]
    if names[:1] == ["self"]:
        names = names[1:]
    needed = len(names) - len(signature.defaults)
    enough = len(case.args) + len(case.kwargs) >= needed
    return enough and (signature.vararg is not None or len(case.args) <= len(names))
