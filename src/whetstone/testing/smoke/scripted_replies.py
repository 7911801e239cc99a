"""The planted replies: a correct and a wrong program for each prompt, in the reply format of the recipe."""

from __future__ import annotations

from collections.abc import Iterable

from whetstone.core.problem import CallTests, Problem
from whetstone.environments.prompt import Tokenizer, render_prompt
from whetstone.environments.prompt_text import prompt_of, reply_prefix
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge.extract import names_called
from whetstone.testing.smoke.tasks import find_task

PlantedReplies = dict[str, dict[str, str]]
"""A correct and a wrong reply (``right``, ``wrong``), by the prompt as the engine sees it in text."""


def planted_replies(
    problems: Iterable[Problem], settings: EnvironmentSection, tokenizer: Tokenizer
) -> PlantedReplies:
    """Return the replies to all problems for which a correct program is known."""
    found: PlantedReplies = {}
    for problem in problems:
        programs = known_programs_for(problem)
        replies = [_reply_with(problem, settings, program) for program in programs]
        if replies and all(replies):
            right, wrong = replies
            found[render_prompt(prompt_of(problem, settings), tokenizer)] = {
                "right": right or "",
                "wrong": wrong or "",
            }
    return found


def known_programs_for(problem: Problem) -> tuple[str, str] | tuple[()]:
    """Return a correct and a wrong program; empty if no correct one is known."""
    task = find_task(problem.statement)
    if problem.references:
        right = problem.references[0].source
    elif task is not None:
        right = task.method if isinstance(problem.tests, CallTests) else task.right
    else:
        return ()
    wrong = (
        problem.wrong[0].source if problem.wrong else task.wrong if task else _wrong_program(problem, right)
    )
    return right, wrong


def _wrong_program(problem: Problem, right: str) -> str:
    """Return a program of the correct form that returns or prints nothing."""
    name = next(iter(names_called(problem)), None)
    if name is None:
        return "print()\n"
    kept = [line for line in right.splitlines() if line.startswith(("def ", "class "))][:1]
    header = kept[0] if kept and name in kept[0] else f"def {name}(*args):"
    return f"{header}\n    return None\n" if header.startswith("def ") else f"{header}\n    pass\n"


def _reply_with(problem: Problem, settings: EnvironmentSection, code: str) -> str | None:
    """Return the reply from which the environment extracts this program. None if the start of the reply is
    given and contains another program."""
    whole = _format_reply(settings, code.rstrip())
    prefix = reply_prefix(problem, settings)
    if not prefix or whole.startswith(prefix):
        return whole[len(prefix) :]
    if "```" not in prefix and settings.extraction != "whole" and settings.answer_format == "plain":
        return whole  # the prefix is finished thinking, such as `<think></think>`
    first_part = prefix.rpartition("```python\n")[2]
    if "```python\n" in prefix and code.startswith(first_part):  # prose, and then the fence
        return f"{code[len(first_part) :].rstrip()}\n```"
    return None


def _format_reply(settings: EnvironmentSection, code: str) -> str:
    fenced = f"```python\n{code}\n```"
    if settings.answer_format == "think_answer":
        return f"<think>\nIt is short.\n</think>\n<answer>\n{fenced}\n</answer>"
    return code if settings.extraction == "whole" else fenced
