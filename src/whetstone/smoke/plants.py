"""The replies that are planted: a right and a wrong program to each prompt, in the form that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from whetstone.judge.extract import names_called
from whetstone.problem import CallTests, Problem
from whetstone.smoke.tasks import task_in
from whetstone.workflow.prompt import Tokenizer, prompt_of, rendered, reply_prefix
from whetstone.workflow.settings import WorkflowSection

Plants = dict[str, dict[str, str]]
"""By prompt, as the engine sees it in text: a right reply and a wrong one."""


def plants(problems: Iterable[Problem], settings: WorkflowSection, tokenizer: Tokenizer) -> Plants:
    """The replies to the problems for which a right program is known."""
    found: Plants = {}
    for problem in problems:
        programs = programs_for(problem)
        replies = [_reply(problem, settings, program) for program in programs]
        if replies and all(replies):
            right, wrong = replies
            found[rendered(prompt_of(problem, settings), tokenizer)] = {
                "right": right or "",
                "wrong": wrong or "",
            }
    return found


def programs_for(problem: Problem) -> tuple[str, str] | tuple[()]:
    """A right program and a wrong one; none where no right one is known."""
    task = task_in(problem.statement)
    if problem.references:
        right = problem.references[0].source
    elif task is not None:
        right = task.method if isinstance(problem.tests, CallTests) else task.right
    else:
        return ()
    wrong = problem.wrong[0].source if problem.wrong else task.wrong if task else _wrong(problem, right)
    return right, wrong


def _wrong(problem: Problem, right: str) -> str:
    """A program of the right form that returns nothing, or prints nothing."""
    name = next(iter(names_called(problem)), None)
    if name is None:
        return "print()\n"
    kept = [line for line in right.splitlines() if line.startswith(("def ", "class "))][:1]
    header = kept[0] if kept and name in kept[0] else f"def {name}(*args):"
    return f"{header}\n    return None\n" if header.startswith("def ") else f"{header}\n    pass\n"


def _reply(problem: Problem, settings: WorkflowSection, code: str) -> str | None:
    """The text from which ``workflow`` takes this program; None where the reply is begun with another one."""
    whole = next(_forms(settings, code.rstrip()))
    prefix = reply_prefix(problem, settings)
    if not prefix or whole.startswith(prefix):
        return whole[len(prefix) :]
    if "```" not in prefix and settings.extraction != "whole" and settings.answer_format == "plain":
        return whole  # a thinking that is over, such as `<think></think>`
    begun = prefix.rpartition("```python\n")[2]
    if "```python\n" in prefix and code.startswith(begun):  # words, and then the fence
        return f"{code[len(begun) :].rstrip()}\n```"
    return None


def _forms(settings: WorkflowSection, code: str) -> Iterator[str]:
    fenced = f"```python\n{code}\n```"
    if settings.answer_format == "think_answer":
        yield f"<think>\nIt is short.\n</think>\n<answer>\n{fenced}\n</answer>"
    elif settings.extraction == "whole":
        yield code
    else:
        yield fenced
