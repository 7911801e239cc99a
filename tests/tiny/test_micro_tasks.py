"""What the generated tasks promise: distinct, split for good, right answers pass and wrong ones fail."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from whetstone.core.problem import CallTests, Problem
from whetstone.data.micro import (
    HELDOUT_COUNT,
    MICRO_PREFIX,
    MICRO_PROMPT,
    micro_examples,
    micro_problems,
    micro_tasks,
)
from whetstone.environments.prompt import render_prompt
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection

# Answers worked out by hand, one for each family, so that statements and references are held together
# by something other than the generator.
BY_HAND: list[tuple[str, list[int], Any]] = [
    ("list of xs each minus 4", [10, 4, 0], [6, 0, -4]),
    ("sum of squares of xs", [1, -2, 3], 14),
    ("largest or 0 of negations of xs", [5, 2, 9], -2),
    ("list of xs divisible by 3", [3, 4, -6, 0, 5], [3, -6, 0]),
    ("sum of xs above 5", [5, 6, 7, 1], 13),
    ("number of negative xs", [-1, 0, 3, -7], 2),
    ("smallest or 0 of xs above 7", [7, 8, 12], 8),
    ("whether some x is below 2", [5, 1], True),
    ("whether every x is even", [2, 3], False),
    ("list of negations of odd xs", [1, 2, 3, -1], [-1, -3, 1]),
    ("sum of doubles of xs below 4", [3, 4, 1], 8),
    ("largest or 0 of squares of positive xs", [-9, 2, 3], 9),
    ("list of differences of neighbours in xs", [1, 4, 2], [3, -2]),
    ("sum of products of neighbours in xs", [2, 3, 4], 18),
    ("list of first 3 xs", [9, 8, 7, 6], [9, 8, 7]),
    ("list of last 2 xs", [9, 8, 7, 6], [7, 6]),
    ("list of xs without the first 3", [9, 8, 7, 6], [6]),
    ("list of xs without the last 2", [9, 8, 7, 6], [9, 8]),
    ("list of xs at indices divisible by 2", [1, 2, 3, 4, 5], [1, 3, 5]),
    ("sum of first 2 of sorted xs", [3, 1, 2], 3),
    ("sum of last 2 of sorted xs", [3, 1, 2], 5),
    ("how often 4 is in xs", [4, 5, 4], 2),
    ("whether 6 is in xs", [5, 6], True),
    ("xs without any 3", [3, 1, 3], [1]),
    ("sum of xs, plus 6", [1, 2], 9),
    ("length of xs, times 5", [8, 8], 10),
    ("xs repeated 2 times", [1, 2], [1, 2, 1, 2]),
    ("xs with 5 at the end", [1], [1, 5]),
]


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return micro_problems("train") + micro_problems("heldout")


def function(source: str) -> Callable[[list[int]], Any]:
    names: dict[str, Any] = {}
    exec(source, names)
    return names["f"]


def passes(problem: Problem, source: str) -> bool:
    assert isinstance(problem.tests, CallTests)
    call = function(source)
    return all(call(list(case.args[0])) == case.expected for case in problem.tests.cases)


def test_statements_and_ids_are_distinct(problems: list[Problem]) -> None:
    assert 600 <= len(problems) <= 800
    assert len({p.statement for p in problems}) == len({p.id for p in problems}) == len(problems)
    assert len({p.references[0].source for p in problems}) == len(problems)
    assert len({p.meta["family"] for p in problems}) >= 14


def test_the_split_is_disjoint_and_depends_on_no_seed() -> None:
    train, heldout = ({p.statement for p in micro_problems(s)} for s in ("train", "heldout"))
    assert not train & heldout
    assert len(heldout) == HELDOUT_COUNT
    assert heldout == {p.statement for p in micro_problems("heldout", seed=5)}


def test_the_heldout_set_is_the_published_one() -> None:
    # Figures of earlier runs compare with later ones only while this stays as it is.
    text = "\n".join(sorted(p.statement for p in micro_problems("heldout")))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "50867a2fb8030460"


def test_every_heldout_family_is_trained_on() -> None:
    families = {p.meta["family"] for p in micro_problems("train")}
    assert {p.meta["family"] for p in micro_problems("heldout")} <= families


@pytest.mark.parametrize("seed", range(3))
def test_references_pass_and_slips_fail(seed: int) -> None:
    for problem in micro_problems("train", seed) + micro_problems("heldout", seed):
        assert passes(problem, problem.references[0].source), problem.id
        assert not passes(problem, problem.wrong[0].source), problem.id


def test_every_family_is_in_the_table_of_answers_by_hand() -> None:
    family = {t.statement: t.family for t in micro_tasks()}
    assert {family[statement] for statement, _, _ in BY_HAND} == set(family.values())


@pytest.mark.parametrize(("statement", "xs", "expected"), BY_HAND)
def test_references_agree_with_their_statements(statement: str, xs: list[int], expected: Any) -> None:
    task = next(t for t in micro_tasks() if t.statement == statement)
    assert function(MICRO_PREFIX + task.expression)(xs) == expected


def test_every_problem_has_the_empty_list_and_survives_json(problems: list[Problem]) -> None:
    for problem in problems:
        assert isinstance(problem.tests, CallTests)
        assert 4 <= len(problem.tests.cases) <= 6
        assert [[]] in [case.args for case in problem.tests.cases]
        assert msgspec.json.decode(msgspec.json.encode(problem), type=Problem) == problem


def test_a_seed_fixes_the_inputs() -> None:
    assert micro_problems("heldout", seed=3) == micro_problems("heldout", seed=3)
    assert micro_problems("heldout", seed=3) != micro_problems("heldout", seed=4)


def test_examples_are_fixed_by_their_seed() -> None:
    assert micro_examples(50, 1, 0.5) == micro_examples(50, 1, 0.5)
    assert micro_examples(50, 1, 0.5) != micro_examples(50, 2, 0.5)
    assert len(micro_examples(50, 1, 0.5)) == 50


@pytest.mark.parametrize("wrong_share", [0.0, 0.7, 1.0])
def test_the_wrong_share_of_examples_fails_its_problem(wrong_share: float) -> None:
    by_prompt = {
        MICRO_PROMPT.format(statement=p.statement) + MICRO_PREFIX: p for p in micro_problems("train", seed=2)
    }
    examples = micro_examples(1500, 2, wrong_share)
    # A KeyError here would be a held-out statement among the examples.
    wrong = sum(not passes(by_prompt[prompt], MICRO_PREFIX + reply) for prompt, reply in examples)
    # Four standard deviations of a binomial; the seed is fixed, so this either holds or does not.
    slack = 4 * (wrong_share * (1 - wrong_share) / 1500) ** 0.5
    assert abs(wrong / 1500 - wrong_share) <= slack


def test_example_prompts_are_those_the_environment_makes() -> None:
    settings = EnvironmentSection(chat=False, prompt=MICRO_PROMPT, prefix=MICRO_PREFIX, extraction="whole")

    class Untemplated:
        chat_template = None

    made = {render_prompt(prompt_of(p, settings), Untemplated()) for p in micro_problems("train")}  # type: ignore[arg-type]
    assert {prompt for prompt, _ in micro_examples(len(made), 0, 0.5)} == made


@pytest.mark.process
def test_the_tasks_need_neither_torch_nor_numpy() -> None:
    code = "import sys, whetstone.data.micro; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
