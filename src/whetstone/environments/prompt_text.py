"""From a problem and the settings to the text of a prompt: template, examples, start of the reply."""

from __future__ import annotations

from msgspec import structs

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

    Raises UserError if the prompt would not contain the statement, or if it needs an example and none is
    given.
    """
    user = _examples(problem, settings) + _question(problem, settings)
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


def _examples(problem: Problem, settings: EnvironmentSection) -> str:
    """Return the examples that match the problem, each in the form of the question and with its answer."""
    official = OFFICIAL_PROMPTS.get(settings.prompt)
    shots = [shot for shot in settings.shots if bool(shot.starter) == bool(problem.starter)]
    if official is not None and official.with_answer is not None:
        if not shots:
            kind = "with" if problem.starter else "without"
            raise UserError(
                f"`{settings.prompt}` shows an example before problem {problem.id!r}, but there is none "
                f"{kind} starter code, like this problem; use --shots or `environment.shots`"
            )
        return "".join(official.with_answer(shot.statement, shot.starter, shot.answer) for shot in shots)
    texts: list[str] = []
    for shot in shots:
        example = structs.replace(problem, statement=shot.statement, starter=shot.starter or None)
        words = {
            "problem": statement_with_starter(example),
            "statement": shot.statement,
            "starter": shot.starter,
        }
        question = settings.prompt.format(**words, instruction="").rstrip()
        texts.append(f"{question}\n\n{shot.answer}\n\n")
    return "".join(texts)


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
