"""The instructions for a model that describe how the tests use the program."""

from __future__ import annotations

from whetstone.core.problem import AssertTests, CallTests, InteractiveTests, NoTests, Problem
from whetstone.judge.languages.table import language_named


def instruction(problem: Problem) -> str:
    """Return how the tests use the program, in one or two sentences; empty without tests."""
    tests = problem.tests
    if isinstance(tests, NoTests):
        return ""
    if isinstance(tests, CallTests):
        name = f"Python function `{tests.function}`"
        if tests.function is None:
            name = f"class `{tests.class_}`"
        elif tests.class_ is not None:
            name = f"class `{tests.class_}` with the method `{tests.function}`"
        return f"Write the {name}. Reply with the code only, in one Python code block."
    if isinstance(tests, AssertTests):
        name = f"Write `{tests.entry_point}` in Python." if tests.entry_point else "Write it in Python."
        return f"{name} Reply with the code only, in one Python code block."
    language = language_named(problem.language, "the program").display_name
    if isinstance(tests, InteractiveTests):
        return (
            f"Write a complete {language} program that talks to the judge: it prints to standard output, "
            "flushing every line, and reads the replies from standard input. "
            f"Reply with the code only, in one {language} code block."
        )
    return (
        f"Write a complete {language} program that reads standard input and prints the answer. "
        f"Reply with the code only, in one {language} code block."
    )
