"""Prompts with which published results were measured, by name.

The wording is part of the measurement, so it is copied verbatim. The sources are LiveCodeBench's generic chat
prompt (``lcb_runner/prompts/code_generation.py`` at 28fef95), and EvalPlus' prompts (``codegen.py`` and
``provider`` of 0.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

_LCB_SYSTEM = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will "
    "generate a correct Python program that matches the specification and passes all tests."
)
_LCB_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your code "
    "within delimiters."
)
_LCB_STDIN = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on "
    "the sample inputs). Enclose your code within delimiters as follows. Ensure that when the python program "
    "runs, it reads the inputs, runs the algorithm and writes output to STDOUT."
)
_EVALPLUS_QUESTION = (
    "Please provide a self-contained Python script that solves the following problem in a markdown code "
    "block:"
)
_EVALPLUS_PREFIX = (
    "Below is a Python script with a self-contained function that solves the problem and passes "
    "corresponding tests:\n```python\n"
)
_EVALPLUS_STOPS = ("\nif __name__", "\ndef main(", "\nprint(")


class _OfficialPrompt(Struct, frozen=True):
    """A published prompt.

    text: builds the question from a statement and starter code ("" for none). settings: its values for other
    fields of ``environment`` that are not given. stop: texts that end a reply. summary: one line.
    """

    text: Callable[[str, str], str]
    summary: str
    settings: Mapping[str, Any] = MappingProxyType({})
    stop: tuple[str, ...] = ()


def _lcb(statement: str, starter: str) -> str:
    form, code = (_LCB_STARTER, starter) if starter else (_LCB_STDIN, "# YOUR CODE HERE")
    return (
        f"### Question:\n{statement}\n\n### Format: {form}\n```python\n{code}\n```\n\n"
        "### Answer: (use the provided format with backticks)\n\n"
    )


def _evalplus_task(statement: str, starter: str) -> str:
    """Return a task in the form of the releases: MBPP statements become docstrings."""
    return (starter or f'"""\n{statement.strip()}\n"""').strip()


def _evalplus(statement: str, starter: str) -> str:
    return f"{_EVALPLUS_QUESTION}\n```\n{_evalplus_task(statement, starter)}\n```\n"


def _evalplus_chat(statement: str, starter: str) -> str:
    return f"{_EVALPLUS_QUESTION}\n```python\n{_evalplus_task(statement, starter)}\n```"


def _evalplus_base(statement: str, starter: str) -> str:
    return starter or f"{_evalplus_task(statement, starter)}\n"


# The official prompts by name. `environment.prompt` may be such a name instead of a template.
OFFICIAL_PROMPTS: dict[str, _OfficialPrompt] = {
    "lcb": _OfficialPrompt(
        _lcb,
        "LiveCodeBench's generic prompt for chat models, with its system message",
        settings={"system": _LCB_SYSTEM},
    ),
    "evalplus": _OfficialPrompt(
        _evalplus,
        "EvalPlus' prompt for chat models, whose reply is begun up to the opening fence",
        settings={"prefix": _EVALPLUS_PREFIX},
        stop=(*_EVALPLUS_STOPS, "\n```\n"),
    ),
    "evalplus-chat": _OfficialPrompt(
        _evalplus_chat, "EvalPlus' prompt for endpoints and thinking models: nothing of the reply is given"
    ),
    "evalplus-base-humaneval": _OfficialPrompt(
        _evalplus_base,
        "EvalPlus' direct completion of HumanEval(+) for base models",
        settings={"chat": False},
        stop=(*_EVALPLUS_STOPS, "\ndef ", "\nclass ", "\nimport ", "\nfrom ", "\nassert "),
    ),
    "evalplus-base-mbpp": _OfficialPrompt(
        _evalplus_base,
        "EvalPlus' direct completion of MBPP(+) for base models",
        settings={"chat": False},
        stop=(*_EVALPLUS_STOPS, '\n"""', "\nassert"),
    ),
}
