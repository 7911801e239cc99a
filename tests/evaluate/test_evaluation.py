"""An evaluation from scripted replies through the real workflow and the real judge."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from whetstone.engine.base import Completion, GenerationRequest
from whetstone.errors import UserError
from whetstone.evaluate.plan import Plan
from whetstone.evaluate.results import Evaluation, load_evaluation
from whetstone.evaluate.run import Progress, evaluate
from whetstone.evaluate.tables import print_comparison, print_evaluation
from whetstone.judge import AsyncJudge
from whetstone.problem import AssertTests, CallCase, CallTests, Limits, Problem, Program
from whetstone.recipe import WorkflowSection
from whetstone.verdict import CaseJudgement, Judgement, Verdict
from whetstone.workflow.single_turn import ProgramJudge, SingleTurn


class CharacterTokenizer:
    """One token for each character; it has no chat template."""

    chat_template: Any = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, token_ids))

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        raise NotImplementedError


class ScriptedEngine:
    """Answers a prompt with the replies written down for it, last one first."""

    def __init__(self, replies: dict[str, list[str]], aborted: str = "") -> None:
        self.replies = replies
        self.aborted = aborted
        self.requests: list[GenerationRequest] = []

    @property
    def version(self) -> int:
        return 7

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        self.requests.append(request)
        name = CharacterTokenizer().decode(request.prompt_ids)
        texts = self.replies[name]
        for index in reversed(range(request.n)):
            ids = CharacterTokenizer().encode(texts[index % len(texts)])
            cut = ids[: request.params.max_tokens]
            reason = "abort" if name == self.aborted else "length" if len(cut) < len(ids) else "stop"
            await asyncio.sleep(0)
            yield Completion(index, cut, [-1.0] * len(cut), [7] * len(cut), reason)

    async def update_weights(self, tensors: Iterable[tuple[str, object]], version: int) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        return None


class FailingJudge:
    """Fails on every program that says so; accepts the rest."""

    async def judge(self, problem: Problem, program: Program) -> Judgement:
        if "fail" in program.source:
            return Judgement(Verdict.JUDGE_ERROR, [], None, "none", "the worker died")
        return Judgement(Verdict.ACCEPTED, [CaseJudgement(Verdict.ACCEPTED)], 1.0, "none")


def problem(name: str, **meta: str) -> Problem:
    tests = CallTests(function="f", cases=[CallCase(args=[2], expected=3), CallCase(args=[0], expected=1)])
    return Problem(
        id=name, statement=name, tests=tests, limits=Limits(cpu_s=2, memory_mb=256), meta=dict(meta)
    )


GOOD = "```python\ndef f(x):\n    return x + 1\n```"
BAD = "```python\ndef f(x):\n    return x + 2\n```"
PLAN = Plan(n=4, k=(1, 4), max_tokens=200, seed=5)
SETTINGS = WorkflowSection(chat=False, prompt="{statement}", max_prompt_tokens=40)


def run(
    problems: list[Problem], engine: ScriptedEngine, judge: ProgramJudge | None = None, **more: Any
) -> Evaluation:
    async def go() -> Evaluation:
        workflow = SingleTurn(more.pop("settings", SETTINGS), CharacterTokenizer())
        plan = more.pop("plan", PLAN)
        if judge is not None:
            return await evaluate(problems, engine, judge, workflow, plan, **more)
        async with AsyncJudge(workers=1) as real:
            return await evaluate(problems, engine, real, workflow, plan, **more)

    return asyncio.run(go())


def test_counts_verdicts_truncation_and_tables_through_the_real_judge() -> None:
    problems = [
        problem("all", difficulty="easy", concept="sums"),
        problem("half", difficulty="easy", concept="loops"),
        problem("none", difficulty="hard", concept="loops"),
    ]
    long = "I think " * 40
    engine = ScriptedEngine({"all": [GOOD], "half": [GOOD, BAD], "none": ["no code here", long]})
    seen: list[Progress] = []
    result = run(problems, engine, on_progress=seen.append)
    assert [(p.id, p.n, p.correct) for p in result.problems] == [
        ("all", 4, 4),
        ("half", 4, 2),
        ("none", 4, 0),
    ]
    assert result.pass_at[1].value == pytest.approx(0.5)
    assert result.pass_at[4].value == pytest.approx(2 / 3)
    assert result.shares.verdicts == {"accepted": 6, "wrong_answer": 2, "no_code": 4}
    assert result.shares.truncated == pytest.approx(2 / 12)
    assert result.shares.no_code == pytest.approx(4 / 12)
    assert [(r.name, r.pass_1.value, r.pass_1.problems) for r in result.by_difficulty] == [
        ("easy", 0.75, 2),
        ("hard", 0.0, 1),
    ]
    assert [(r.name, r.pass_1.value) for r in result.by_concept] == [("sums", 1.0), ("loops", 0.25)]
    assert (seen[-1].samples, seen[-1].total_samples, seen[-1].accepted) == (12, 12, 6)
    assert [s.index for s in result.samples] == [0, 1, 2, 3] * 3
    assert result.samples[4].judgement is not None
    assert result.samples[4].judgement.cases[0].verdict is Verdict.ACCEPTED


def test_a_prompt_to_be_completed_is_judged_as_a_whole_program() -> None:
    starter = "import math\n\n\ndef f(x):\n    '''x plus one, rounded down.'''\n"
    tests = AssertTests(check="def check(candidate):\n    assert candidate(2.5) == 3\n", entry_point="f")
    body = Problem(id="b", statement="b", starter=starter, tests=tests, meta={"completes_starter": True})
    settings = SETTINGS.model_copy(update={"extraction": "whole"})
    engine = ScriptedEngine({"b": ["    return math.floor(x) + 1", "    return x"]})
    result = run([body], engine, settings=settings)
    assert result.problems[0].correct == 2
    assert result.samples[0].program == starter + "    return math.floor(x) + 1"


def test_replies_without_a_verdict_leave_the_counts_and_are_reported() -> None:
    problems = [problem("some"), problem("gone"), problem("aborted")]
    failing = "```python\nfail = 1\n```"
    engine = ScriptedEngine(
        {"some": [GOOD, failing], "gone": [failing], "aborted": [GOOD]}, aborted="aborted"
    )
    result = run(problems, engine, FailingJudge())
    assert [(p.n, p.correct, p.unjudged) for p in result.problems] == [(2, 2, 2), (0, 0, 4), (0, 0, 4)]
    assert result.unjudged_problems == ["gone", "aborted"]
    assert result.pass_at[1].value == 1.0
    assert result.pass_at[1].problems == 1
    assert 4 not in result.pass_at
    assert result.shares.judge_error == pytest.approx(10 / 12)


def test_a_problem_that_cannot_be_asked_counts_as_failed() -> None:
    problems = [problem("x" * 50), problem("fine")]
    result = run(problems, ScriptedEngine({"fine": [GOOD]}), FailingJudge())
    assert [(p.n, p.correct) for p in result.problems] == [(4, 0), (4, 4)]
    assert "50 tokens" in result.problems[0].error
    assert result.pass_at[1].value == 0.5


def test_nothing_asked_or_nothing_judged_is_an_error_not_a_zero() -> None:
    with pytest.raises(UserError, match="50 tokens"):
        run([problem("x" * 50)], ScriptedEngine({}), FailingJudge())
    with pytest.raises(UserError, match="no reply could be judged"):
        run([problem("a")], ScriptedEngine({"a": ["```python\nfail\n```"]}), FailingJudge())
    with pytest.raises(UserError, match="no problems"):
        run([], ScriptedEngine({}), FailingJudge())


def test_a_defect_of_the_engine_is_not_taken_for_a_failed_problem() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        run([problem("fine"), problem("unknown")], ScriptedEngine({"fine": [GOOD]}), FailingJudge())
    assert caught.group_contains(KeyError)


def test_a_problems_random_streams_do_not_depend_on_its_neighbours() -> None:
    replies = {"a": [GOOD], "b": [GOOD]}
    both, alone = ScriptedEngine(replies), ScriptedEngine(replies)
    run([problem("a"), problem("b")], both, FailingJudge())
    run([problem("b")], alone, FailingJudge())
    seeds = [request.seed for request in both.requests]
    assert seeds[1] == alone.requests[0].seed
    assert seeds[0] != seeds[1]


def test_saved_evaluations_load_equal_and_metrics_name_their_set(tmp_path: Path) -> None:
    engine = ScriptedEngine({"a": [GOOD, BAD]})
    result = run([problem("a")], engine, FailingJudge(), manifest={"model": {"source": "m"}})
    result.save(tmp_path)
    assert load_evaluation(tmp_path) == result
    without = load_evaluation(tmp_path, with_samples=False)
    assert without == msgspec.structs.replace(result, samples=[])
    numbers = result.metrics("heldout")
    assert numbers["eval/heldout/pass@1"] == 1.0
    assert {
        "eval/heldout/pass@4_low",
        "eval/heldout/pass@4_high",
        "eval/heldout/judge_error",
    } <= numbers.keys()
    (tmp_path / "evaluation.json").write_text(json.dumps({"plan": 3}))
    with pytest.raises(UserError, match=r"evaluation.json: not written by"):
        load_evaluation(tmp_path)


@pytest.mark.parametrize(
    "change", [{"k": (8,)}, {"n": 0}, {"k": ()}, {"k": (0,)}, {"top_p": 0.0}, {"temperature": -1.0}]
)
def test_a_plan_that_cannot_be_drawn_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        Plan(**{"n": 4, "k": (1,), **change})


def test_comparison_shows_the_paired_difference_and_what_else_changed(tmp_path: Path) -> None:
    problems = [problem("a"), problem("b")]
    old = run(
        problems,
        ScriptedEngine({"a": [GOOD], "b": ["no"]}),
        manifest={"sampling": {"n": 4}, "model": {"source": "m"}},
    )
    new = run(
        problems,
        ScriptedEngine({"a": [GOOD], "b": [GOOD]}),
        manifest={"sampling": {"n": 9}, "model": {"source": "o"}},
    )
    old.save(tmp_path / "old")
    new.save(tmp_path / "new")
    console = Console(record=True, width=160, file=io.StringIO())
    print_comparison(str(tmp_path / "old"), str(tmp_path / "new"), console)
    text = console.export_text()
    assert "+50.0" in text
    assert "2 problems in both" in text
    assert "also different: sampling.n\n" in text
    print_evaluation(new, console)
    assert "pass@1 (avg@4)" in console.export_text()
