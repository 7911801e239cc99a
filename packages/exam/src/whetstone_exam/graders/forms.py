"""Forms in which other projects' graders take tests: inputs and outputs, calls, and a script that must end.

A grader of another project has a form for some kinds of tests only. Functions named ``no_…`` return the
reason why a problem has no such form, or an empty string.
"""

from __future__ import annotations

import json
from typing import Any

from whetstone.core.literal import read_literal
from whetstone.core.problem import AssertTests, CallTests, Compare, Problem, Program, StdinTests


def no_stdin_form(problem: Problem, program: Program) -> str:
    """Return why the tests are not plain pairs of standard input and output."""
    if reason := _no_python_form(problem, program):
        return reason
    return "" if isinstance(problem.tests, StdinTests) else "only standard input and output"


def no_apps_form(problem: Problem, program: Program) -> str:
    """Return why the tests have no form in ``apps_cases``: calls need positional arguments of JSON."""
    if not isinstance(problem.tests, CallTests):
        return no_stdin_form(problem, program)
    literals = "only arguments of JSON" if problem.tests.literals else ""
    return no_literal_call_form(problem, program) or literals


def no_literal_call_form(problem: Problem, program: Program) -> str:
    """Return why the tests are not calls of one function with positional arguments of Python."""
    if reason := _no_python_form(problem, program):
        return reason
    tests = problem.tests
    if not isinstance(tests, CallTests) or tests.class_ is not None:
        return "only calls of a function"
    return "only positional arguments" if any(case.kwargs for case in tests.cases) else ""


def no_script_form(problem: Problem, program: Program) -> str:
    """Return why program and tests are not one script whose end means acceptance."""
    if reason := _no_python_form(problem, program):
        return reason
    return "" if isinstance(problem.tests, AssertTests) else "only tests that are code"


def _no_python_form(problem: Problem, program: Program) -> str:
    if program.language != "python":
        return "only Python"
    if problem.checker is not None:
        return "no checker"
    return "" if problem.compare == Compare() else "only its own comparison"


def stdin_cases(problem: Problem) -> dict[str, list[str]]:
    """Return ``inputs`` and ``outputs``, as APPS and the graders that followed it store them."""
    tests = problem.tests
    assert isinstance(tests, StdinTests)
    return {
        "inputs": [case.input for case in tests.cases],
        "outputs": [case.output for case in tests.cases],
    }


def apps_cases(problem: Problem) -> dict[str, Any]:
    """Return ``inputs`` and ``outputs`` as LiveCodeBench reads them.

    For calls there is also ``fn_name``; an input has a line of JSON for each argument, an output is JSON.
    """
    tests = problem.tests
    if not isinstance(tests, CallTests):
        return stdin_cases(problem)
    return {
        "fn_name": tests.function,
        "inputs": ["\n".join(json.dumps(value) for value in case.args) for case in tests.cases],
        "outputs": [json.dumps(case.expected) for case in tests.cases],
    }


def call_values(problem: Problem) -> tuple[list[list[Any]], list[Any]]:
    """Return the arguments of each call and the expected results, as Python values."""
    tests = problem.tests
    assert isinstance(tests, CallTests)
    if not tests.literals:
        return [case.args for case in tests.cases], [case.expected for case in tests.cases]
    arguments = [[read_literal(text) for text in case.args] for case in tests.cases]
    return arguments, [read_literal(case.expected) for case in tests.cases]


def ending_code(problem: Problem) -> str:
    """Return the code that follows the program in a script."""
    tests = problem.tests
    assert isinstance(tests, AssertTests)
    if tests.check:
        code = f"{tests.check}\n\ncheck({tests.entry_point})"
    elif tests.unittest:
        code = f"{tests.unittest}\n\nimport unittest\n\nunittest.main()"
    else:
        code = "\n".join(tests.asserts or [])
    return f"{tests.setup}\n\n{code}\n"
