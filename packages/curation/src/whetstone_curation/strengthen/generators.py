"""Generators of inputs that a model writes: the prompt, the program in a reply, and its inputs.

A generator runs in a sandbox, once for each seed. If it does anything but return an input, it has none. Its
inputs are treated like all others.
"""

from __future__ import annotations

import ast
from typing import Any

from whetstone.core.problem import CallCase, CallTests, Limits, Problem, StdinTests
from whetstone.core.syntax import parsed
from whetstone.judge.extract import extract_program
from whetstone_curation.strengthen.answers import Answers, NoAnswer
from whetstone_curation.strengthen.forms import read_tests

FUNCTION = "generate"
# Number of inputs of a generator.
SEEDS = 40
_LIMITS = Limits(cpu_s=1.0, memory_mb=512.0, output_mb=4.0)
_LONGEST, _LONGEST_STATEMENT, _LONGEST_SAMPLE, _SAMPLES = 65_536, 20_000, 1_000, 3
_LONGEST_INPUT = 200_000

_QUESTION = """\
Below are a programming problem and some inputs of its tests. Write a generator of further inputs in \
Python 3, a function

def generate(seed: int) -> {kind}

that returns one valid input for each seed, from 0 on, the same for the same seed. {form}

- Every input must be valid: within all bounds of the statement, in the same format as the inputs below.
- Inputs should make programs fail that are nearly right: smallest and largest cases, repeated and equal \
values, signs, orders, what the statement treats apart, and what a slow program cannot finish.
- Use the standard library only. Read no files, print nothing, and return within half a second.

Give the generator, and nothing else, in a fenced Python block.

# Problem

{statement}

# Inputs

{samples}"""


def generator_prompt(problem: Problem) -> str:
    """Return the prompt for a model. Long statements and samples are cut, with a note.

    Raises UnreadableTests.
    """
    if isinstance(problem.tests, StdinTests):
        samples = sorted((case.input for case in problem.tests.cases), key=len)
        kind, form = "str", "It is the text that the program reads."
    else:
        samples = [repr(arguments) for arguments in read_tests(problem).seeds]
        kind, form = "list", "It is the list of arguments that the function is called with, of plain values."
    return _QUESTION.format(
        kind=kind,
        form=form,
        statement=_cut(problem.statement, _LONGEST_STATEMENT),
        samples="\n\n".join(_cut(sample, _LONGEST_SAMPLE) for sample in samples[:_SAMPLES]),
    )


def generator_in_reply(reply: str) -> str:
    """Return the source of the generator in a reply; empty if there is none. Nothing is run."""
    source = extract_program(reply, names=(FUNCTION,))
    tree = parsed(source) if source is not None and len(source) <= _LONGEST else None
    found = [node for node in (tree.body if tree else []) if isinstance(node, ast.FunctionDef)]
    return source if source is not None and any(node.name == FUNCTION for node in found) else ""


def generated_inputs(source: str, answers: Answers) -> list[str | list[Any]]:
    """Return the inputs of a generator, which runs in the sandbox."""
    calls = [CallCase(None, [seed]) for seed in range(SEEDS)]
    tests = CallTests(calls, FUNCTION)
    first = answers.returned(source, tests, calls[:1], _LIMITS)
    if isinstance(first[0], NoAnswer):  # one that stalls is not waited for forty times
        return []
    found: list[str | list[Any]] = []
    for value in [*first, *answers.returned(source, tests, calls[1:], _LIMITS)]:
        if isinstance(value, NoAnswer) or len(repr(value)) > _LONGEST_INPUT:
            continue
        if isinstance(value, str | list):
            found.append(value)
        elif isinstance(value, tuple):
            found.append(list(value))
    return found


def _cut(text: str, most: int) -> str:
    text = text.strip("\n")
    return text if len(text) <= most else f"{text[:most]}\n[cut: {len(text) - most} more characters]"
