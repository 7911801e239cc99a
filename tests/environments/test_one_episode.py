"""Training and evaluation put the same tokens to the model and reach the same verdict on the same reply:
for the problems of every source, for every benchmark, and for replies in every form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.environments.characters import CharacterEngine, CharacterTokenizer
from tests.environments.scripted import SharedJudge
from whetstone.algorithm.named import algorithm_named
from whetstone.core.problem import Problem
from whetstone.core.sample import Group
from whetstone.core.settings import Sampling
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import import_rows
from whetstone.data.sources.table import SOURCE_NAMES, source_named
from whetstone.environments.replies import EngineReplies
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.evaluate.benchmarks import BENCHMARKS, load_benchmark
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.folder import EvaluationFolder, read_samples
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import SampleResult
from whetstone.integrations.rewards import Rewards
from whetstone.integrations.settings import RewardSettings
from whetstone.judge import Judge, Judgement
from whetstone.rollout.local_flow import LocalFlow
from whetstone.rollout.sampling import GroupSampler
from whetstone.rollout.source import PromptSource
from whetstone_graders.rejudge import StoredReplies

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
OTHER_NAMES = {
    "mbpp": "mbpp.json",
    "mbpp-full": "mbpp_full.jsonl",
    "bigcodebench-hard": "bigcodebench.jsonl",
}
LONGEST = 4000


@pytest.fixture(scope="module")
def judge() -> Iterator[SharedJudge]:
    with Judge(workers=1, stop_at_first_failure=True) as shared:
        yield SharedJudge(shared)


Outcome = tuple[str, str | None, str, float | None]
"""Of a reply: its text, the program that was judged, the verdict and the score."""


def trained(
    problem: Problem, replies: list[str], settings: EnvironmentSection, judge: SharedJudge, thinks: bool
) -> tuple[list[int], list[Outcome], Group]:
    """The prompt's tokens and what comes of the replies in training."""
    engine: Any = CharacterEngine(replies)
    params = Sampling(max_tokens=LONGEST)
    tokenizer = CharacterTokenizer(opens_thinking=thinks)
    most = settings.max_prompt_tokens
    served = {"policy": EngineReplies(engine, tokenizer, params, max_prompt_tokens=most)}
    sample = GroupSampler(SingleTurn(settings), judge, served, len(replies), 0, None)
    source, spec = PromptSource([problem], 0), algorithm_named("grpo", {})
    flow = LocalFlow(source, sample, served["policy"], spec, prompts_per_step=1)
    (group,) = asyncio.run(flow.next_batch(0)).sampled
    (prompt,) = (request.prompt_ids for request in engine.requests)
    assert group.prompt_ids == prompt
    return prompt, [_outcome(s.text, s.program, s.judgement) for s in group.samples], group


def evaluated(
    problem: Problem, replies: list[str], settings: EnvironmentSection, judge: SharedJudge, thinks: bool
) -> tuple[list[int], list[Outcome], list[SampleResult]]:
    """The prompt's tokens and what comes of the replies in an evaluation."""
    engine: Any = CharacterEngine(replies)
    plan = SamplingPlan(n=len(replies), max_tokens=LONGEST)
    tokenizer = CharacterTokenizer(opens_thinking=thinks)
    asked = EngineReplies(engine, tokenizer, plan, max_prompt_tokens=settings.max_prompt_tokens)
    samples: list[SampleResult] = []
    environment = SingleTurn(settings)
    asyncio.run(evaluate([problem], EngineWriter(asked), environment, judge, plan, record=samples.append))
    (prompt,) = (request.prompt_ids for request in engine.requests)
    samples.sort(key=lambda sample: sample.index)
    return prompt, [_outcome(s.text, s.program, s.judgement) for s in samples], samples


def _outcome(text: str, program: str | None, judgement: Judgement | None) -> Outcome:
    assert judgement is not None
    return text, program, judgement.verdict.value, judgement.score


def plugged(
    problem: Problem, replies: list[str], settings: EnvironmentSection, judge: SharedJudge, thinks: bool
) -> list[Outcome]:
    """What comes of the replies in another trainer, which hands them to our plug-in."""
    told = RewardSettings(environment=settings, thinking_opened=thinks)
    scored = Rewards(told, judge.judge_itself).score(replies, [problem] * len(replies))
    opened = "<think>" if thinks else ""
    return [_outcome(opened + r, s.program, s.judgement) for r, s in zip(replies, scored, strict=True)]


def both(
    problem: Problem,
    replies: list[str],
    judge: SharedJudge,
    settings: EnvironmentSection,
    *,
    thinks: bool = False,
    also_plugged: bool = False,
) -> list[str]:
    """The verdicts, which are the same in training and evaluation; so are prompts, programs and scores.

    ``also_plugged``: and in another trainer.
    """
    prompt, outcomes, group = trained(problem, replies, settings, judge, thinks)
    same_prompt, same_outcomes, _ = evaluated(problem, replies, settings, judge, thinks)
    assert same_prompt == prompt
    assert same_outcomes == outcomes
    if also_plugged:
        assert plugged(problem, replies, settings, judge, thinks) == outcomes
    assert [sample.reward for sample in group.samples] == [float(o[2] == "accepted") for o in outcomes]
    return [verdict for _, _, verdict, _ in outcomes]


def fixture_of(source: str) -> Path:
    return FIXTURES / OTHER_NAMES.get(source, f"{source}.jsonl")


@pytest.fixture(scope="module", autouse=True)
def a_testlib(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What checkers of AetherCode include. None of them is run here."""
    header = tmp_path_factory.mktemp("testlib") / "testlib.h"
    header.write_text("#pragma once\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WHETSTONE_TESTLIB", str(header))
        yield


def problems_of(name: str) -> list[Problem]:
    rows = read_rows([fixture_of(name)])
    return [each for each in import_rows(source_named(name), rows) if isinstance(each, Problem)]


def fenced(code: str) -> str:
    return f"Here it is.\n```python\n{code.rstrip()}\n```\n"


def replies_to(problem: Problem) -> tuple[list[str], list[str]]:
    """Replies that are right, and others: wrong, thinking without end, cut, no program at all."""
    right: list[str] = []
    if problem.language != "python":
        return right, ["I do not know."]  # compiling belongs to the judge's own tests
    for program in problem.references[:1]:
        right += [fenced(program.source), f"<think>```\nx = 1\n```</think>{fenced(program.source)}"]
        starter = problem.starter or ""
        if problem.meta.get("completes_starter") and program.source.startswith(starter):
            right.append(fenced(program.source[len(starter) :]))  # goes on where the starter ends
    known = problem.references[0].source if problem.references else "print(input())"
    others = [
        fenced("def nothing():\n    return 0"),
        f"<think>{fenced(known)}",
        f"```python\n{known[: len(known) // 2]}",
        "x " * LONGEST,
        "I do not know.",
    ]
    return right, others


@pytest.mark.drawn(10)
@pytest.mark.parametrize("name", SOURCE_NAMES)
def test_problems_of_a_source_are_asked_and_judged_alike(name: str, judge: SharedJudge) -> None:
    settings = EnvironmentSection(max_prompt_tokens=LONGEST)
    for problem in problems_of(name):
        right, others = replies_to(problem)
        verdicts = both(problem, right + others, judge, settings)
        assert verdicts[: len(right)] == ["accepted"] * len(right), problem.id
        assert "accepted" not in verdicts[len(right) :], problem.id


@pytest.mark.parametrize("name", BENCHMARKS)
def test_problems_of_a_benchmark_are_asked_and_judged_alike(name: str, judge: SharedJudge) -> None:
    source = BENCHMARKS[name].source
    data = "builtin:heldout" if source is None else str(fixture_of(source))
    benchmark = load_benchmark(name, data, limit=4)
    settings = EnvironmentSection(prompt=benchmark.prompt, max_prompt_tokens=LONGEST)
    for problem in benchmark.problems:
        right, others = replies_to(problem)
        verdicts = both(problem, right + others[:1], judge, settings)
        assert verdicts == ["accepted"] * len(right) + verdicts[len(right) :], problem.id
    if source is not None:  # what training reads are the same problems
        read = {problem.id: problem for problem in problems_of(source)}
        assert all(read.get(p.id, p) == p for p in benchmark.problems)


def problem_with(source: str, part: str) -> Problem:
    return next(problem for problem in problems_of(source) if part in problem.id)


def test_a_reply_without_the_node_classes_of_leetcode_is_right_in_both(
    judge: SharedJudge,
) -> None:
    problem = problem_with("leetcode", "reverse-it")
    whole = problem.references[0].source
    solution = whole[whole.index("class Solution") :]
    assert "Optional" in solution
    assert both(problem, [fenced(solution)], judge, EnvironmentSection(max_prompt_tokens=LONGEST)) == [
        "accepted"
    ]


def test_a_completion_without_a_signature_is_right_in_both(judge: SharedJudge) -> None:
    problem = problem_with("humaneval", "humaneval/0")
    body = problem.references[0].source[len(problem.starter or "") :]
    settings = EnvironmentSection(
        chat=False, prompt="{starter}", extraction="whole", max_prompt_tokens=LONGEST
    )
    assert both(problem, [body, body.strip(), "    return None"], judge, settings, also_plugged=True) == [
        "accepted",
        "accepted",
        "wrong_answer",
    ]


@pytest.mark.parametrize("thinks", [False, True], ids=["reply opens", "template opens"])
def test_the_thinking_is_told_from_the_answer_in_both(thinks: bool, judge: SharedJudge) -> None:
    problem = problem_with("mbpp", "mbpp/2")
    right = fenced(problem.references[0].source)
    opening = "" if thinks else "<think>"
    form = EnvironmentSection(answer_format="think_answer", max_prompt_tokens=LONGEST)
    replies = [f"{opening}hm</think><answer>{right}</answer>", f"{opening}hm</think>{right}", right]
    assert both(problem, replies, judge, form, thinks=thinks, also_plugged=True) == [
        "accepted",
        "no_code",
        "no_code",
    ]
    # A draft in thinking that never ends is no answer, whoever opened the thinking.
    plain = EnvironmentSection(max_prompt_tokens=LONGEST)
    replies = [f"{opening}{right}", f"{opening}hm</think>{right}"]
    verdicts = both(problem, replies, judge, plain, thinks=thinks, also_plugged=True)
    assert verdicts == ["no_code", "accepted"]


def test_a_prefix_is_part_of_prompt_and_program_in_both(judge: SharedJudge) -> None:
    problem = problem_with("code-r1", "bbab46fd7d1248fb")
    assert problem.starter is not None
    body = f"{problem.references[0].source.removeprefix(problem.starter)}```"
    settings = EnvironmentSection(
        prompt="{statement}",
        prefix="```python\n{starter}",
        extraction="last_fence",
        max_prompt_tokens=LONGEST,
    )
    prompt, _, _ = trained(problem, [body, body], settings, judge, False)
    assert CharacterTokenizer().decode(prompt).endswith(f"```python\n{problem.starter.rstrip()}")
    body = f"\n{body}"  # the prefix goes without the starter's last newline
    assert both(problem, [body], judge, settings, also_plugged=True) == ["accepted"]


def test_the_code_to_start_from_is_shown_once_wherever_a_recipe_says_nothing_else(judge: SharedJudge) -> None:
    settings = EnvironmentSection(max_prompt_tokens=LONGEST)
    asked = {
        name: CharacterTokenizer().decode(trained(problem, ["x", "x"], settings, judge, False)[0])
        for name, problem in [
            ("beside", problem_with("leetcode", "pair-sum")),
            ("inside", problem_with("humaneval", "humaneval/0")),
        ]
    }
    assert "Start from this code:\n\n```python\nclass Solution:\n    def pairSum(" in asked["beside"]
    assert asked["inside"].count("def root") == 1
    hidden = settings.model_copy(update={"prompt": "{statement}\n\n{instruction}"})
    prompt, _, _ = trained(problem_with("leetcode", "pair-sum"), ["x", "x"], hidden, judge, False)
    assert "Start from" not in CharacterTokenizer().decode(prompt)


def test_stored_replies_are_judged_as_they_were_in_training(judge: SharedJudge, tmp_path: Path) -> None:
    problem = problem_with("leetcode", "reverse-it")
    right, others = replies_to(problem)
    replies, settings = right + others, EnvironmentSection(max_prompt_tokens=LONGEST)
    _, outcomes, _ = trained(problem, replies, settings, judge, False)
    _, _, samples = evaluated(problem, replies, settings, judge, False)
    with EvaluationFolder(tmp_path, {}) as folder:
        for sample in samples:
            folder.add(sample)
    again: list[SampleResult] = []
    plan, environment = SamplingPlan(n=len(replies), max_tokens=LONGEST), SingleTurn(settings)
    asyncio.run(evaluate([problem], StoredReplies(tmp_path), environment, judge, plan, record=again.append))
    again.sort(key=lambda sample: sample.index)
    assert [_outcome(s.text, s.program, s.judgement) for s in again] == outcomes
    assert list(read_samples(tmp_path)) == samples
    assert json.loads((tmp_path / "samples.jsonl").read_text().splitlines()[0])["problem_id"] == problem.id
