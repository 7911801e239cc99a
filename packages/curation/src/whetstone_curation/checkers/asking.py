"""Find the problems that need a checker, ask a model for it, and extract it from the reply."""

from __future__ import annotations

import ast
from typing import Any, cast

from whetstone.core.problem import Problem, StdinTests
from whetstone.core.syntax import parsed
from whetstone.data.validate.statements import leaves_open
from whetstone.judge.extract import extract_program

# Most characters of a checker. A longer one contains answers.
LONGEST = 65_536
_SAMPLES, _LONGEST_SAMPLE, _LONGEST_STATEMENT = 3, 1_000, 20_000
_PARAMETERS = 3
_OPEN = ("several_answers", "any_case", "float_tolerance")

_QUESTION = """\
Below are a programming problem and some of its tests. Several outputs may be right for one input. Write a \
checker in Python 3, a function

def check(input: str, output: str, expected: str) -> bool

that says whether `output`, which a program printed for `input`, is a right answer. `expected` is one right \
answer; others are right if they satisfy the statement.

- Parse `output` with care: it may be empty, cut off, or hold anything. What cannot be read is not right.
- White space between tokens and at the ends of lines has no meaning, unless the statement gives it one.
- What stands after a whole answer makes it wrong.
- Where the statement asks for the best value, hold it against `expected`.
- Use the standard library only. Read no files, print nothing, and decide within a second.

Give the checker, and nothing else, in a fenced Python block.

# Problem

{statement}

{samples}"""


def needs_checker(problem: Problem) -> bool:
    """Whether the problem allows answers that its comparison rejects and has no checker.

    A mark of ``data validate`` or the statement shows it.
    """
    if not isinstance(problem.tests, StdinTests) or problem.checker is not None:
        return False
    validation: Any = problem.meta.get("validation")
    found: Any = cast("dict[str, Any]", validation).get("flags") if isinstance(validation, dict) else None
    # A mark may come from references that answer differently, which the statement does not show.
    if isinstance(found, dict) and any(reason in found for reason in _OPEN):
        return True
    return leaves_open(problem)


def question(problem: Problem) -> str:
    """Return the prompt. Long statements and samples are cut, with a note."""
    assert isinstance(problem.tests, StdinTests)
    # Short samples show the format, and leave room for the reply.
    shortest = sorted(problem.tests.cases, key=lambda case: len(case.input) + len(case.output))
    samples = "\n\n".join(
        f"Input:\n{cut(case.input, _LONGEST_SAMPLE)}\nOne right output:\n{cut(case.output, _LONGEST_SAMPLE)}"
        for case in shortest[:_SAMPLES]
    )
    return _QUESTION.format(statement=cut(problem.statement, _LONGEST_STATEMENT), samples=samples)


def checker_in(reply: str) -> tuple[str, str]:
    """Return the source of the checker in a reply, and the reason if there is none. One of the
    two is empty."""
    source = extract_program(reply, names=("check",))
    if source is None:
        return "", "there is no program in the reply"
    if len(source) > LONGEST:
        return "", f"it has {len(source)} characters; {LONGEST} are allowed"
    tree = parsed(source)
    if tree is None:
        return "", "it is not Python 3"
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not found or len(found[-1].args.posonlyargs) + len(found[-1].args.args) != _PARAMETERS:
        return "", "it defines no check(input, output, expected)"
    return source, ""


def cut(text: str, most: int) -> str:
    """Return a part of a prompt, without the characters above ``most``, which a note counts."""
    text = text.strip("\n")
    return text if len(text) <= most else f"{text[:most]}\n[cut: {len(text) - most} more characters]"
