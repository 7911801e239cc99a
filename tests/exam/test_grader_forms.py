"""The forms in which other projects' graders get problems, and adapters without their packages."""

import contextlib
import io
import json
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    Problem,
    Program,
    StandardChecker,
    StdinCase,
    StdinTests,
    Tests,
)
from whetstone_exam.graders.forms import (
    apps_cases,
    call_values,
    ending_code,
    no_apps_form,
    no_literal_call_form,
    no_script_form,
    no_stdin_form,
    stdin_cases,
)

RIGHT, WRONG = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a - b"
PYTHON = Program("python", RIGHT)
STDIN = StdinTests([StdinCase("1 2\n", "3\n"), StdinCase("4 5\n", "9\n")])
CALLS = CallTests([CallCase(3, [1, 2]), CallCase([], [["a"], {"b": None}])], function="add")
LITERALS = CallTests([CallCase("{1, 2}", ["(1, 2)", "{3}"])], function="add", literals=True)
UNITTEST = """\
import unittest

class TestAdd(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)
"""
SCRIPTS = [
    AssertTests(asserts=["assert add(1, 2) == 3", "assert add(4, 5) == 9"]),
    AssertTests(setup="WANTED = 3", asserts=["assert add(1, 2) == WANTED"]),
    AssertTests(check="def check(candidate):\n    assert candidate(1, 2) == 3", entry_point="add"),
    AssertTests(unittest=UNITTEST),
]


def problem(tests: Tests, **fields: Any) -> Problem:
    return Problem("p", "", tests, **fields)


def exit_status(script: str) -> int:
    """Run a script in a namespace of its own, as an interpreter would. unittest writes to standard error."""
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            exec(compile(script, "script", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            return int(end.code or 0)
        except AssertionError:
            return 1
    return 0


@pytest.mark.parametrize("tests", SCRIPTS, ids=["asserts", "setup", "check", "unittest"])
def test_a_script_ends_well_only_for_a_right_program(
    tests: AssertTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["script"])
    import __main__

    # unittest.main() looks for test cases in the main module.
    for source, status in ((RIGHT, 0), (WRONG, 1)):
        code = f"{source}\n\n{ending_code(problem(tests))}"
        if tests.unittest:
            names: dict[str, Any] = {}
            exec(f"{source}\n{tests.unittest}", names)
            monkeypatch.setattr(__main__, "TestAdd", names["TestAdd"], raising=False)
        assert exit_status(code) == status


def test_inputs_and_outputs_keep_their_text_and_order() -> None:
    assert stdin_cases(problem(STDIN)) == {"inputs": ["1 2\n", "4 5\n"], "outputs": ["3\n", "9\n"]}


def test_calls_are_a_line_of_json_for_each_argument() -> None:
    cases = apps_cases(problem(CALLS))
    assert cases["fn_name"] == "add"
    decoded = [[json.loads(line) for line in text.split("\n")] for text in cases["inputs"]]
    assert decoded == [[1, 2], [["a"], {"b": None}]]
    assert [json.loads(text) for text in cases["outputs"]] == [3, []]


def test_calls_with_literals_are_python_values() -> None:
    assert call_values(problem(LITERALS)) == ([[(1, 2), {3}]], [{1, 2}])
    assert call_values(problem(CALLS)) == ([[1, 2], [["a"], {"b": None}]], [3, []])


@pytest.mark.parametrize(
    ("tests", "forms"),
    [
        (STDIN, {no_stdin_form, no_apps_form}),
        (CALLS, {no_apps_form, no_literal_call_form}),
        (LITERALS, {no_literal_call_form}),
        (CallTests([CallCase(3, [1], {"b": 2})], function="add"), set()),
        (CallTests([CallCase(3, [1, 2])], function="add", class_="Solution"), set()),
        (SCRIPTS[0], {no_script_form}),
    ],
)
def test_a_problem_has_the_forms_of_its_tests_alone(tests: Tests, forms: set[Any]) -> None:
    every = (no_stdin_form, no_apps_form, no_literal_call_form, no_script_form)
    assert {form for form in every if not form(problem(tests), PYTHON)} == forms


@pytest.mark.parametrize(
    ("fields", "language"),
    [
        ({"checker": StandardChecker("ncmp")}, "python"),
        ({"compare": Compare(mode="exact")}, "python"),
        ({}, "cpp"),
    ],
)
def test_checkers_other_comparisons_and_languages_have_no_form(fields: dict[str, Any], language: str) -> None:
    assert no_stdin_form(problem(STDIN, **fields), Program(language, ""))


@pytest.mark.parametrize(
    ("adapter", "distribution"),
    [
        ("verl_prime_code", "verl"),
        ("livecodebench", "livecodebench"),
        ("evalplus", "evalplus"),
        ("sandbox_fusion", "sandbox"),
        ("scalebox", "sandbox"),
        ("tinker_cookbook", "tinker-cookbook"),
    ],
)
def test_an_adapter_without_its_package_says_how_to_install_it(adapter: str, distribution: str) -> None:
    with contextlib.suppress(PackageNotFoundError):
        pytest.skip(f"{distribution} {version(distribution)} is installed")
    grade = import_module(f"whetstone_exam.graders.{adapter}").grade
    with pytest.raises(UserError, match="pip install"):
        _ = grade.version
