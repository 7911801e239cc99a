"""From a problem and the settings to the text of a prompt: template, and start of the reply."""

from __future__ import annotations

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, statement_with_starter
from whetstone.environments.official_prompts import OFFICIAL_PROMPTS
from whetstone.environments.prompt import Prompt
from whetstone.environments.settings import EnvironmentSection, placeholders
from whetstone.judge.instruction import instruction

THINK_ANSWER = (
    "Think first, inside <think> and </think>. Then give the program in a fenced Python block "
    "inside <answer> and </answer>."
)


def reply_prefix(problem: Problem, settings: EnvironmentSection) -> str:
    """Return the text with which the reply starts.

    A starter loses its last newline. Tokenizers merge a newline with the indentation after it, so a model
    continues a bare newline badly.
    """
    return settings.prefix.replace("{starter}", (problem.starter or "").rstrip())


def prompt_of(problem: Problem, settings: EnvironmentSection) -> Prompt:
    """Return the prompt of a problem with these settings.

    Raises UserError if the prompt would not contain the statement.
    """
    user = _question(problem, settings)
    prefix = reply_prefix(problem, settings)
    if not settings.chat:
        return Prompt(user, prefix, chat=False)
    system = settings.system
    if settings.answer_format == "think_answer":
        system = f"{system}\n\n{THINK_ANSWER}" if system else THINK_ANSWER
    return Prompt(user, prefix, chat=True, system=system)


def _question(problem: Problem, settings: EnvironmentSection) -> str:
    official = OFFICIAL_PROMPTS.get(settings.prompt)
    if official is not None:
        return official.text(problem.statement, problem.starter or "")
    _check_shown(problem, settings.prompt)
    return settings.prompt.format(
        problem=statement_with_starter(problem),
        statement=problem.statement,
        starter=problem.starter or "",
        instruction=instruction(problem),
    )


def _check_shown(problem: Problem, template: str) -> None:
    """Raise UserError for a prompt that shows only a starter which does not state the task.

    HumanEval starters contain the statement, and those of BigCodeBench a docstring with other wording.
    """
    if placeholders(template) & {"problem", "statement"}:
        return
    starter = problem.starter or ""
    if _collapse_spaces(problem.statement) not in _collapse_spaces(starter) and not any(
        q in starter for q in ('"""', "'''")
    ):
        raise UserError(
            f"`environment.prompt` shows {{starter}} alone, and the starter of problem {problem.id!r} does "
            "not hold its statement; write {problem}, or {statement}"
        )


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())
