"""The interface of environments: declared lengths, two-turn samples in the loss, and one rollout for training
and evaluation."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.environments.scripted import TOKENIZER, Says, in_turn, played
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.problem import CallCase, CallTests, Limits, NoTests, Problem
from whetstone.core.sample import Batch, Group
from whetstone.environments.environment import Environment
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Prompt
from whetstone.environments.replies import EngineReplies
from whetstone.environments.runner import open_environment
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import SampleResult
from whetstone.judge import AsyncJudge
from whetstone.run.recipe import load_recipe
from whetstone.trainer.minibatch import make_minibatches

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "tiny.yaml"
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
LIMITS = Limits(cpu_s=5.0, memory_mb=256, output_mb=1)
PROBLEMS = [
    Problem(name, f"Add {add}.", CallTests([CallCase(1 + add, [1])], "f"), limits=LIMITS)
    for name, add in (("one", 1), ("two", 2), ("three", 3))
]
PLAIN = {"chat": True, "prompt": "{statement}", "extraction": "whole"}


class Turns(Environment):
    """As many turns as its option says; the reward is the number of replies."""

    def __init__(self, settings: EnvironmentSection, turns: int = 2) -> None:
        self.turns = turns

    def prompt(self, problem: Problem) -> Prompt:
        return Prompt(problem.id, "", chat=True)

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        conversation = await episode.begin()
        while len(conversation.turns) < self.turns and await conversation.send("Go on."):
            pass
        made = len(conversation.turns)
        return Rollout({"policy": [conversation.sample(reward=float(made), metrics={"made": float(made)})]})


HERE = f"{__name__}.Turns"


def test_a_custom_environment_declares_its_longest_sample() -> None:
    shipped = ["environment.kind=repair", "environment.options={turns: 8}"]
    own = [f"environment.kind={HERE}", "environment.options={turns: 8}"]
    for overrides in (shipped, own):
        recipe = load_recipe(TINY, ["sampling.max_tokens=64", "environment.chat=true", *overrides])
        assert recipe.longest_sample == 512
    with pytest.raises(UserError, match="overlong_buffer"):
        load_recipe(TINY, [*own, "sampling.max_tokens=64", "algorithm.overlong_buffer=513"])


def test_options_that_a_custom_environment_does_not_have_are_named() -> None:
    with pytest.raises(UserError, match=r"trns.*its options are turns"):
        load_recipe(TINY, [f"environment.kind={HERE}", "environment.options={trns: 8}"])


def two_turns(*replies: tuple[str, str], n: int = 2) -> Group:
    """The group of two-turn episodes with these replies."""
    engine: Any = Says(in_turn(*map(list, replies)))
    environment = EnvironmentSection.model_validate({"kind": HERE}).build()
    return asyncio.run(played(environment, engine, PROBLEMS[0], n, max_tokens=8))


def test_penalty_denominator_and_mask_of_a_two_turn_sample_are_those_computed_by_hand() -> None:
    # Each reply is one token per character of these, and the end of sequence.
    group = two_turns(("qz", "zqzq"), ("zq", "q"))
    first, second = group.samples
    [(start, end)] = first.given
    assert start == 3
    assert (first.length, second.length) == (3 + 5, 3 + 2)
    assert TOKENIZER.decode(first.response_ids[start:end]) == "[user]Go on.[assistant]"
    # A whole sample has at most 2 * 8 = 16 tokens; the penalty begins at 16 - 10 = 6 of them.
    spec = algorithm_named(
        "dapo", {"overlong_buffer": 10, "aggregation": "fixed_length", "advantage": "none"}
    )
    [data] = make_minibatches(Batch([group]), spec, count=1, max_tokens=16)
    assert data.scored[0].rewards.tolist() == pytest.approx([2.0 + (6 - 8) / 10, 2.0])
    # fixed_length divides by two samples of 16 tokens. Given tokens have no weight at all.
    assert data.weights.tolist() == pytest.approx([1 / (2 * 16)] * (8 + 5))
    masks = [sample.written() for sample in group.samples]
    assert masks[0] == [True] * 3 + [False] * (end - start) + [True] * 5
    assert data.written.tolist() == [*masks[0], *masks[1]]
    assert torch.equal(data.lengths, torch.tensor([8, 5]))


class Measured:
    """The results of an evaluation, and what its engine was asked."""

    def __init__(self, section: EnvironmentSection, engine: Says, n: int) -> None:
        self.samples: list[SampleResult] = []
        self.engine = engine
        plan = SamplingPlan(n=n, max_tokens=64)

        async def run() -> None:
            scripted: Any = engine
            replies = EngineReplies(scripted, TOKENIZER, plan, max_prompt_tokens=999)
            async with AsyncJudge(1, stop_at_first_failure=not section.needs_all_cases) as judge:
                await evaluate(
                    PROBLEMS,
                    EngineWriter(replies),
                    section.build(),
                    judge,
                    plan,
                    record=self.samples.append,
                )

        asyncio.run(run())
        self.samples.sort(key=lambda sample: (sample.problem_id, sample.index))


WRONG = "def f(x):\n    return 0"


def adds(number: int) -> str:
    return f"def f(x):\n    return x + {number}"


def repaired(text: str, index: int) -> str:
    """The first reply adds 1; the second one is right."""
    number = next(n for n in (1, 2, 3) if f"Add {n}." in text)
    return adds(number if text.count("[assistant]") > 1 else 1)


@pytest.mark.process
def test_an_evaluation_plays_the_same_episodes_as_training() -> None:
    section = EnvironmentSection.model_validate({**PLAIN, "kind": "repair"})
    measured = Measured(section, Says(repaired), n=2)
    assert [s.solved for s in measured.samples] == [True] * 6
    assert [s.turns for s in measured.samples] == [1, 1, 2, 2, 2, 2]
    asked = [text for text in measured.engine.asked if text.count("[assistant]") > 1]
    assert len(asked) == 4

    async def trained() -> list[str]:
        engine = Says(repaired)
        async with AsyncJudge(1, stop_at_first_failure=not section.needs_all_cases) as judge:
            for problem in PROBLEMS:
                await played(section.build(), engine, problem, 2, judge=judge)
        return [text for text in engine.asked if text.count("[assistant]") > 1]

    assert sorted(asyncio.run(trained())) == sorted(asked)
    # Later turns are requested together, in the order of problems.
    assert asked == sorted(asked, key=lambda text: [f"Add {n}." in text for n in (1, 2, 3)], reverse=True)


PAGE_MODULES = {"my_environments": "SelfReview", "my_tools": "Factorize", "my_agents": "Guess"}


@pytest.fixture
def page_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for module, name in PAGE_MODULES.items():
        [source] = [block for block in blocks if f"class {name}" in block]
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    for module in PAGE_MODULES:
        sys.modules.pop(module, None)


@pytest.mark.process
@pytest.mark.usefixtures("page_environments")
def test_the_two_turn_environment_of_the_page_works() -> None:
    section = EnvironmentSection.model_validate({**PLAIN, "kind": "my_environments.SelfReview"})
    assert section.longest_sample(64) == 128
    measured = Measured(section, Says(repaired), n=1)
    assert [s.solved for s in measured.samples] == [True] * 3
    assert [s.turns for s in measured.samples] == [2] * 3
    assert {s.problem_id: s.metrics["improved"] for s in measured.samples} == {"one": 0, "two": 1, "three": 1}
    asked = [text for text in measured.engine.asked if "Check your program line by line." in text]
    assert len(asked) == 3


def asks_for_factors(text: str, index: int) -> str:
    """A call first, then the program that adds the number of factors in its result."""
    if text.count("[assistant]") == 1:
        return '<tool_call>\n{"name": "factorize", "arguments": {"number": 6}}\n</tool_call>'
    return adds(text.rpartition("[tool]")[2].partition("[")[0].count("*") + 1)


@pytest.mark.process
@pytest.mark.usefixtures("page_environments")
def test_the_tool_of_the_page_works() -> None:
    options = {"tools": ["my_tools.Factorize"], "calls": 2}
    section = EnvironmentSection.model_validate({**PLAIN, "kind": "tools", "options": options})
    measured = Measured(section, Says(asks_for_factors), n=1)
    assert {s.problem_id: s.solved for s in measured.samples} == {"one": False, "two": True, "three": False}
    assert {s.metrics["calls_factorize"] for s in measured.samples} == {1.0}
    assert [role for role, _ in measured.samples[0].dialogue] == ["assistant", "tool", "assistant"]
    assert measured.samples[0].dialogue[1][1] == "2 * 3"


def searches(text: str, index: int) -> str:
    """Binary search by the hints."""
    low, high = 0, 7
    for hint in re.findall(r"Too (small|large)", text):
        middle = (low + high) // 2
        low, high = (middle + 1, high) if hint == "small" else (low, middle - 1)
    return str((low + high) // 2)


@pytest.mark.process
@pytest.mark.usefixtures("page_environments")
def test_the_agent_of_the_page_works() -> None:
    section = EnvironmentSection.model_validate({"kind": "my_agents.Guess", "options": {"calls": 3}})
    problem = Problem("guess", "A number from 0 to 7.", NoTests(), meta={"answer": 5})

    async def run() -> Group:
        async with open_environment(section) as environment:
            return await played(environment, Says(searches), problem, 2, max_tokens=8)

    for sample in asyncio.run(run()).samples:
        assert (sample.reward, sample.accepted, sample.turns) == (1.0, True, 2)


def test_an_environment_that_judges_programs_refuses_problems_without_tests() -> None:
    untested = Problem("sum", "1 + 1", NoTests(), meta={"answer": 2})
    for kind in ("single_turn", "repair", "codegen_verifier"):
        with pytest.raises(UserError, match="sum"):
            EnvironmentSection.model_validate({"kind": kind}).build().check(untested)
    EnvironmentSection.model_validate({"kind": HERE}).build().check(untested)


def test_no_file_but_its_own_names_a_shipped_environment() -> None:
    own_names = "RepairOptions|VerifierOptions|CODEGEN_VERIFIER"
    names = re.compile(rf"isinstance\([^)]*Options|nvironment[.]kind ==|{own_names}")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if names.search(line) and ("nvironment" in line or "Options" in line)
    ]
    own = {
        f"src/whetstone/environments/{name}.py" for name in ("repair", "codegen_verifier", "tools", "agent")
    }
    assert set(found) <= own
