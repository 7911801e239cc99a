"""``recipes/tiny.yaml`` and the generated tasks fit each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whetstone.data.micro import MICRO_PREFIX, MICRO_PROMPT, micro_examples, micro_problems
from whetstone.engine.scratch import build_tokenizer
from whetstone.environments.prompt import encode_prompt
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.single_turn import program_of
from whetstone.run.recipe import Recipe, load_recipe


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe(Path(__file__).parents[2] / "recipes" / "tiny.yaml")


def test_the_recipe_prompts_as_the_warm_up_did(recipe: Recipe) -> None:
    assert recipe.environment.prompt == MICRO_PROMPT
    assert recipe.environment.prefix == MICRO_PREFIX
    assert not recipe.environment.chat
    assert recipe.data.train == "micro:train"
    assert recipe.data.heldout == "micro:heldout"


def test_the_environment_makes_the_reference_of_the_right_reply(recipe: Recipe) -> None:
    for problem in micro_problems("heldout"):
        reply = problem.references[0].source.removeprefix(MICRO_PREFIX).rstrip("\n")
        program = program_of(problem, recipe.environment, reply)
        assert program is not None
        assert program.strip() == problem.references[0].source.strip()


def test_prompts_and_right_replies_fit_the_limits(recipe: Recipe) -> None:
    assert recipe.model.scratch is not None
    examples = micro_examples(2000, 0, 0.7)
    tokenizer: Any = build_tokenizer((p + r for p, r in examples), recipe.model.scratch.vocab_size)
    for problem in micro_problems("train") + micro_problems("heldout"):
        reply = problem.references[0].source.removeprefix(MICRO_PREFIX).rstrip("\n")
        assert len(tokenizer.encode(reply)) < recipe.sampling.max_tokens
        prompt = encode_prompt(prompt_of(problem, recipe.environment), tokenizer)
        assert len(prompt) + recipe.sampling.max_tokens <= recipe.model.scratch.max_positions
