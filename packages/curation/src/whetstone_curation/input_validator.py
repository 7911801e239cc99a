"""The validator of a problem's inputs, in its ``meta.input_validator``.

For ``stdin`` tests the program reads the input and accepts it with exit code 0 or, as with Kattis, 42. For
other tests it defines ``valid(*arguments)``.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from whetstone.core.problem import Problem, Program

INPUT_VALIDATOR_KEY = "input_validator"


class InputValidator(Struct, frozen=True, omit_defaults=True):
    """A program that tells whether an input is valid.

    arguments: of the command line, a list for each group of tests that has its own bounds. An input is valid
    if the program accepts it with one of them. Empty: the program takes no arguments.
    """

    language: str
    source: str
    arguments: list[list[str]] = []

    @property
    def program(self) -> Program:
        """The program, without arguments."""
        return Program(self.language, self.source)


def validator_of(problem: Problem) -> InputValidator | None:
    """Return the problem's validator of inputs; None if it has none that can be read."""
    if INPUT_VALIDATOR_KEY not in problem.meta:
        return None
    try:
        return msgspec.convert(problem.meta[INPUT_VALIDATOR_KEY], InputValidator)
    except msgspec.ValidationError:
        return None
