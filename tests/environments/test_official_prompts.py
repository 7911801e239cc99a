"""Prompts by name: what a model is shown is what the benchmark's own runner shows."""

from __future__ import annotations

from typing import Any

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, StdinCase, StdinTests
from whetstone.core.settings import read_settings
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection

STDIN = Problem("p/1", "Add {two} numbers.", StdinTests([StdinCase("1 2", "3")]))
STARTER = "class Solution:\n    def add(self, a: int) -> int:\n        "
CALL = Problem("p/2", "Add one.", CallTests([CallCase(2, [1])], "add"), starter=STARTER)
MBPP = Problem(
    "mbpp/11",
    "Write a function.\nYour code should pass these tests:\n\nassert f(1) == 1",
    AssertTests(asserts=["assert f(1) == 1"], entry_point="f"),
)
SHOTS = [
    {"statement": "Double it.", "starter": "class Solution:\n    ", "answer": "class Solution: ..."},
    {"statement": "Print 1.", "answer": "print(1)"},
]


def settings(**values: Any) -> EnvironmentSection:
    return read_settings(EnvironmentSection, values)


def test_livecodebench_asks_for_a_program_and_for_a_starter_in_its_own_words() -> None:
    asked = prompt_of(STDIN, settings(prompt="lcb"))
    assert asked.chat
    assert (asked.system or "").startswith(
        "You are an expert Python programmer. You will be given a question"
    )
    assert asked.user.startswith(
        "### Question:\nAdd {two} numbers.\n\n### Format: Read the inputs from stdin"
    )
    ends = "```python\n# YOUR CODE HERE\n```\n\n### Answer: (use the provided format with backticks)\n\n"
    assert asked.user.endswith(ends)
    asked = prompt_of(CALL, settings(prompt="lcb"))
    assert f"enclose your code within delimiters.\n```python\n{STARTER}\n```\n\n### Answer:" in asked.user


def test_what_is_given_goes_before_what_a_prompt_says() -> None:
    assert prompt_of(STDIN, settings(prompt="lcb", system="Be brief.")).system == "Be brief."
    assert settings(prompt="evalplus-base-mbpp").chat is False
    assert settings(prompt="evalplus-base-mbpp", chat=True).chat is True
    assert settings(prompt="{statement}").system is None


def test_base_models_see_an_example_of_the_problems_own_kind() -> None:
    asked = prompt_of(CALL, settings(prompt="lcb-base", shots=SHOTS))
    assert not asked.chat
    assert asked.user == (
        "### Question\nDouble it.\n\n### Starter Code\nclass Solution:\n    \n\n### Answer\n\n"
        "class Solution: ...\n\n"
        f"### Question\nAdd one.\n\n### Starter Code\n{STARTER}\n\n### Answer\n\n"
    )
    asked = prompt_of(STDIN, settings(prompt="lcb-base", shots=SHOTS))
    assert asked.user.startswith(
        "### Question\nPrint 1.\n\n### Answer\n\nprint(1)\n\n### Question\nAdd {two}"
    )
    with pytest.raises(UserError, match="there is none without starter code"):
        prompt_of(STDIN, settings(prompt="lcb-base", shots=SHOTS[:1]))
    with pytest.raises(UserError, match="`lcb` shows no examples"):
        settings(prompt="lcb", shots=SHOTS)


def test_mbpp_is_asked_as_in_its_paper() -> None:
    example = {"statement": MBPP.statement.replace("f(1)", "g(2)"), "answer": "def g(x): ..."}
    asked = prompt_of(MBPP, settings(prompt="mbpp-3shot", shots=[example]))
    one = (
        "You are an expert Python programmer, and here is your task: Write a function. Your code should pass"
    )
    assert asked.user == (
        f"{one} these tests:\n\nassert g(2) == 1\n[BEGIN]\ndef g(x): ...\n[DONE]\n\n"
        f"{one} these tests:\n\nassert f(1) == 1\n[BEGIN]\n"
    )


def test_evalplus_shows_its_tasks_as_its_releases_write_them() -> None:
    asked = prompt_of(MBPP, settings(prompt="evalplus"))
    assert asked.user.endswith(f':\n```\n"""\n{MBPP.statement}\n"""\n```\n')
    assert asked.prefix.endswith("corresponding tests:\n```python\n")
    assert prompt_of(CALL, settings(prompt="evalplus-chat")).user.endswith(
        f"\n```python\n{STARTER.strip()}\n```"
    )
    assert prompt_of(CALL, settings(prompt="evalplus-base-humaneval")).user == STARTER


def test_a_template_shows_examples_in_its_own_words() -> None:
    asked = prompt_of(STDIN, settings(prompt="Q: {statement}\nA:", shots=SHOTS, chat=False))
    assert asked.user == "Q: Print 1.\nA:\n\nprint(1)\n\nQ: Add {two} numbers.\nA:"
