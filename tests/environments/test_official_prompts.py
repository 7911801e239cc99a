"""Prompts by name: what a model is shown is what the benchmark's own runner shows."""

from __future__ import annotations

from typing import Any

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


def test_given_settings_override_those_of_a_named_prompt() -> None:
    assert prompt_of(STDIN, settings(prompt="lcb", system="Be brief.")).system == "Be brief."
    assert settings(prompt="evalplus-base-mbpp").chat is False
    assert settings(prompt="evalplus-base-mbpp", chat=True).chat is True
    assert settings(prompt="{statement}").system is None


def test_evalplus_shows_its_tasks_as_its_releases_write_them() -> None:
    asked = prompt_of(MBPP, settings(prompt="evalplus"))
    assert asked.user.endswith(f':\n```\n"""\n{MBPP.statement}\n"""\n```\n')
    assert asked.prefix.endswith("corresponding tests:\n```python\n")
    assert prompt_of(CALL, settings(prompt="evalplus-chat")).user.endswith(
        f"\n```python\n{STARTER.strip()}\n```"
    )
    assert prompt_of(CALL, settings(prompt="evalplus-base-humaneval")).user == STARTER
