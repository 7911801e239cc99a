"""Generators of inputs that a model writes: the prompt, the requests, the program in a reply, and its inputs.

A generator runs in a sandbox, once for each seed. If it does anything but return an input, it has none. Its
inputs are treated like all others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone.core.problem import CallCase, CallTests, Limits, Problem, StdinTests
from whetstone.core.syntax import parsed
from whetstone.data.dataset import open_problems
from whetstone.data.resumable import digest_of
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.writer import ReplyWriter
from whetstone.judge.extract import extract_program
from whetstone_curation.journal import CheckerJournal
from whetstone_curation.reply_rounds import ReplyRounds, Watch, cut
from whetstone_curation.strengthen.answers import Answers, NoAnswer
from whetstone_curation.strengthen.forms import read_tests
from whetstone_curation.strengthen.strengthener import is_open_to_tests

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
        statement=cut(problem.statement, _LONGEST_STATEMENT),
        samples="\n\n".join(cut(sample, _LONGEST_SAMPLE) for sample in samples[:_SAMPLES]),
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


def journal_path(out: str | Path) -> Path:
    """Return the journal file of an unfinished run to ``out``."""
    return Path(out).with_name(f"{Path(out).name}.generators.jsonl")


class Generators:
    """Generators for the problems of a set that can get tests, ``plan.n`` for each. label: of the model."""

    def __init__(
        self,
        source: str | Path,
        writer: ReplyWriter,
        plan: SamplingPlan,
        label: str,
        journal: CheckerJournal,
        *,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._source, self._plan = source, plan
        self.label, self.journal = label, journal
        self._asking = ReplyRounds(source, writer, plan, generator_prompt, journal, say=say)

    def ask(self, watch: Watch) -> int:
        """Request all missing replies, and return their number. Raises UserError if every request failed."""
        open_ = {p.id: digest_of(p) for p in open_problems(self._source) if is_open_to_tests(p)}
        for attempt in range(self._plan.n):
            self._asking.ask(open_, attempt, watch)
        self._asking.check()
        return len(open_)

    def inputs(self, problem: Problem, answers: Answers) -> list[str | list[Any]]:
        """Return the inputs of a problem's generators."""
        digest = digest_of(problem)
        found: list[str | list[Any]] = []
        for attempt in range(self._plan.n):
            source = generator_in_reply(self.journal.replies.get((problem.id, digest, attempt), ""))
            if source:
                found += generated_inputs(source, answers)
        return found
