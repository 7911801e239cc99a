"""An evaluation of scripted replies: the real engine writer, environment and judge, and what is counted."""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.environments.characters import CharacterEngine, CharacterTokenizer
from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, CallCase, CallTests, Limits, Problem, Program
from whetstone.core.settings import read_settings
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.environments.episode import ProgramJudge
from whetstone.environments.replies import EngineReplies
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.folder import EvaluationFolder, read_samples
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.engine import EngineWriter
from whetstone.evaluate.results import Evaluation, SampleResult, load_evaluation, read_pass_rates
from whetstone.evaluate.tables import print_comparison, print_evaluation
from whetstone.evaluate.tally import Tally
from whetstone.judge import AsyncJudge


class ForgeableJudge:
    """Accepts whatever it is given, in one interpreter with its test."""

    minimum_tier = "restricted"

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        case = CaseJudgement(Verdict.ACCEPTED, shared_interpreter=True)
        return Judgement(Verdict.ACCEPTED, [case], None, "none", shared_interpreter=True)


class FailingJudge:
    """Fails on every program that says so; accepts the rest."""

    minimum_tier = "restricted"

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
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
PLAN = SamplingPlan(n=4, k=(1, 4), max_tokens=200, seed=5)
SETTINGS = EnvironmentSection(chat=False, prompt="{statement}", max_prompt_tokens=40)


def run(
    problems: Iterable[Problem],
    engine: CharacterEngine,
    judge: ProgramJudge | None = None,
    *,
    settings: EnvironmentSection = SETTINGS,
    plan: SamplingPlan = PLAN,
    wave_replies: int = 256,
    samples: list[SampleResult] | None = None,
    tokenizer: CharacterTokenizer | None = None,
    **more: Any,
) -> Evaluation:
    """``samples`` takes the replies in the order of problems and indices."""
    recorded: list[SampleResult] = []

    async def go() -> Evaluation:
        most = settings.max_prompt_tokens
        scripted: Any = engine
        characters = tokenizer or CharacterTokenizer(chat=False)
        replies = EngineReplies(scripted, characters, plan, max_prompt_tokens=most)
        writer = EngineWriter(replies, wave_replies=wave_replies)
        more.setdefault("record", recorded.append)
        if judge is not None:
            return await evaluate(problems, writer, SingleTurn(settings), judge, plan, **more)
        async with AsyncJudge(workers=1) as real:
            return await evaluate(problems, writer, SingleTurn(settings), real, plan, **more)

    evaluation = asyncio.run(go())
    if samples is not None:
        order = [problem.id for problem in evaluation.problems]
        samples += sorted(recorded, key=lambda s: (order.index(s.problem_id), s.index))
    return evaluation


@pytest.mark.process
def test_counts_verdicts_truncation_and_tables_through_the_real_judge() -> None:
    problems = [
        problem("all", difficulty="easy", concept="sums"),
        problem("half", difficulty="easy", concept="loops"),
        problem("none", difficulty="hard", concept="loops"),
    ]
    long = "I think " * 40
    engine = CharacterEngine({"all": [GOOD], "half": [GOOD, BAD], "none": ["no code here", long]})
    seen: list[tuple[int, int, int]] = []

    def watch(tally: Tally) -> None:
        seen.append((tally.samples, tally.total, tally.accepted))

    samples: list[SampleResult] = []
    result = run(problems, engine, samples=samples, on_progress=watch, total=12)
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
    assert [(r.name, r.estimate.value, r.estimate.problems) for r in result.tables["difficulty"]] == [
        ("easy", 0.75, 2),
        ("hard", 0.0, 1),
    ]
    assert [(r.name, r.estimate.value) for r in result.tables["concept"]] == [("sums", 1.0), ("loops", 0.25)]
    assert "kind" not in result.tables  # all are of one
    assert seen[-1] == (12, 12, 6)
    assert [s.index for s in samples] == [0, 1, 2, 3] * 3
    assert samples[4].judgement is not None
    assert samples[4].judgement.cases[0].verdict is Verdict.ACCEPTED


@pytest.mark.process
def test_a_prompt_to_be_completed_is_judged_as_a_whole_program() -> None:
    starter = "import math\n\n\ndef f(x):\n    '''x plus one, rounded down.'''\n"
    tests = AssertTests(check="def check(candidate):\n    assert candidate(2.5) == 3\n", entry_point="f")
    body = Problem(id="b", statement="b", starter=starter, tests=tests, meta={"completes_starter": True})
    settings = SETTINGS.model_copy(update={"extraction": "whole"})
    engine = CharacterEngine({"b": ["    return math.floor(x) + 1", "    return x"]})
    samples: list[SampleResult] = []
    result = run([body], engine, settings=settings, samples=samples)
    assert result.problems[0].correct == 2
    assert samples[0].program == starter + "    return math.floor(x) + 1"


def test_replies_without_a_verdict_stay_in_the_denominator_and_are_reported() -> None:
    problems = [problem("some"), problem("gone"), problem("aborted"), problem("x" * 50)]
    failing = "```python\nfail = 1\n```"
    engine = CharacterEngine(
        {"some": [GOOD, failing], "gone": [failing], "aborted": [GOOD]}, aborted="aborted"
    )
    result = run(problems, engine, FailingJudge())
    found = [(p.n, p.correct, p.judge_errors, p.failed) for p in result.problems]
    assert found == [(4, 2, 2, 0), (4, 0, 4, 0), (4, 0, 0, 4), (4, 0, 0, 4)]
    assert (result.pass_at[1].value, result.pass_at[1].problems) == (2 / 16, 4)
    assert result.pass_at[4].problems == 4
    assert (result.shares.judge_error, result.shares.failed) == (6 / 16, 8 / 16)
    assert "50 tokens" in result.problems[3].error
    console = Console(record=True, width=160, file=io.StringIO())
    print_evaluation("set", result, console)
    text = console.export_text()
    assert "50.0% of the replies could not be had and count as not right, such as one to aborted" in text
    assert "37.5% of the replies could not be judged and count as not right" in text


def test_verdicts_that_could_be_forged_are_counted_and_named(tmp_path: Path) -> None:
    result = run([problem("sure")], CharacterEngine({"sure": [GOOD]}), ForgeableJudge())
    assert (result.pass_at[1].value, result.shares.shared_interpreter) == (1.0, 1.0)
    assert result.metrics("set")["eval/set/shared_interpreter"] == 1.0
    console = Console(record=True, width=160, file=io.StringIO())
    print_evaluation("set", result, console)
    assert "100.0% of the verdicts were reached in the program's own interpreter" in console.export_text()
    result.save(tmp_path)
    assert read_pass_rates(tmp_path).by_id["sure"].n == 0, "nothing is known of how hard it is"


def test_nothing_asked_or_nothing_judged_is_an_error_not_a_zero() -> None:
    with pytest.raises(UserError, match="50 tokens"):
        run([problem("x" * 50)], CharacterEngine({}), FailingJudge())
    with pytest.raises(UserError, match="no reply could be judged"):
        run([problem("a")], CharacterEngine({"a": ["```python\nfail\n```"]}), FailingJudge())
    with pytest.raises(UserError, match="no problems"):
        run([], CharacterEngine({}), FailingJudge())


def test_a_defect_of_the_engine_is_not_taken_for_a_failed_problem() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        run([problem("fine"), problem("unknown")], CharacterEngine({"fine": [GOOD]}), FailingJudge())
    assert caught.group_contains(KeyError)


@pytest.mark.process
def test_a_missing_language_is_an_error_of_the_user() -> None:
    other = msgspec.structs.replace(problem("a"), language="cobol")
    with pytest.raises(UserError, match="cobol"):
        run([other], CharacterEngine({"a": [GOOD]}))


def test_two_problems_with_one_id_are_refused() -> None:
    with pytest.raises(UserError, match="'a' occurs twice"):
        run([problem("a"), problem("a")], CharacterEngine({"a": [GOOD]}), FailingJudge())


def test_a_problems_random_streams_do_not_depend_on_its_neighbours() -> None:
    replies = {"a": [GOOD], "b": [GOOD]}
    both, alone = CharacterEngine(replies), CharacterEngine(replies)
    run([problem("a"), problem("b")], both, FailingJudge())
    run([problem("b")], alone, FailingJudge())
    seeds = [request.seed for request in both.requests]
    assert seeds[1] == alone.requests[0].seed
    assert seeds[0] != seeds[1]


@pytest.mark.process
def test_thinking_that_the_template_opens_is_told_from_the_answer() -> None:
    ended, cut = f"{BAD}</think>{GOOD}", BAD
    engine = CharacterEngine({"<user>a<assistant><think>\n": [ended, cut]})
    samples: list[SampleResult] = []
    chat, thinking = SETTINGS.model_copy(update={"chat": True}), CharacterTokenizer(opens_thinking=True)
    result = run([problem("a")], engine, settings=chat, samples=samples, tokenizer=thinking)
    assert [(s.text, s.solved) for s in samples[:2]] == [
        (f"<think>{ended}", True),
        (f"<think>{cut}", False),
    ]
    assert [s.thinking_tokens for s in samples[:2]] == [len(BAD) + len("</think>"), len(cut)]
    assert (result.shares.thinking, result.shares.unfinished_thinking) == (1.0, 0.5)
    assert result.shares.mean_thinking_tokens == len(BAD) + len("</think>") / 2
    assert result.shares.mean_thinking_characters == len(BAD)


def test_an_incomplete_wave_is_generated_whole_and_only_missing_replies_count() -> None:
    names = ["a", "b", "c", "d", "e"]
    problems = [problem(name) for name in names]
    first, again = (CharacterEngine({name: [GOOD] for name in names}) for _ in range(2))
    samples: list[SampleResult] = []
    whole = run(problems, first, FailingJudge(), samples=samples, wave_replies=8)
    known = [s for s in samples if not (s.problem_id == "c" and s.index == 2)]
    recorded: list[SampleResult] = []
    resumed = run(problems, again, FailingJudge(), wave_replies=8, known=known, record=recorded.append)
    assert again.prompts == ["c", "d"]  # the second of the waves a b, c d, e
    assert again.requests == first.requests[2:4]
    assert [(s.problem_id, s.index) for s in recorded] == [("c", 2)]
    assert resumed == whole


def test_saved_evaluations_load_equal_and_metrics_name_their_set(tmp_path: Path) -> None:
    engine = CharacterEngine({"a": [GOOD, BAD]})
    with EvaluationFolder(tmp_path, {"seed": 1}) as folder:
        result = run([problem("a")], engine, FailingJudge(), manifest={"seed": 1}, record=folder.add)
        folder.finish(result)
    assert load_evaluation(tmp_path) == result
    assert [(s.index, s.solved) for s in read_samples(tmp_path)] == [(i, True) for i in range(4)]
    numbers = result.metrics("heldout")
    assert numbers["eval/heldout/pass@1"] == 1.0
    assert {
        "eval/heldout/pass@4_low",
        "eval/heldout/pass@4_high",
        "eval/heldout/judge_error",
        "eval/heldout/failed",
    } <= numbers.keys()
    (tmp_path / "evaluation.json").write_text(json.dumps({"plan": 3}))
    with pytest.raises(UserError, match=r"evaluation.json: not written by"):
        load_evaluation(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"k": (8,)},
        {"n": 0},
        {"k": ()},
        {"k": (0,)},
        {"top_p": 0.0},
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"stop": ("",)},
    ],
)
def test_a_plan_that_cannot_be_drawn_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(change))}|pass@8"):
        read_settings(SamplingPlan, {"n": 4, "k": (1,), **change})


@pytest.mark.process
def test_comparison_shows_the_paired_difference_and_other_changes(tmp_path: Path) -> None:
    problems = [problem("a"), problem("b")]
    old = run(
        problems,
        CharacterEngine({"a": [GOOD], "b": ["no"]}),
        manifest={"sampling": {"n": 4}, "model": {"source": "m"}},
    )
    new = run(
        problems,
        CharacterEngine({"a": [GOOD, BAD], "b": [GOOD]}),
        manifest={"sampling": {"n": 9}, "model": {"source": "o"}},
    )
    for run_name, result in (("old", old), ("new", new)):
        for benchmark in ("first", "second"):
            result.save(tmp_path / run_name / benchmark)
    console = Console(record=True, width=160, file=io.StringIO())
    print_comparison(str(tmp_path / "old"), str(tmp_path / "new"), console, list_problems=True)
    text = console.export_text()
    assert text.count("+25.0") == 2  # of each benchmark
    assert "2 problems in both" in text
    assert "gained  b  0 of 4, then 4 of 4" in text
    assert "lost  a  4 of 4, then 2 of 4" in text
    assert "  sampling.n (4 and 9)\n" in text
    assert "model.source" not in text
    new.save(tmp_path / "other" / "third")
    with pytest.raises(UserError, match="no benchmark is in both"):
        print_comparison(str(tmp_path / "old"), str(tmp_path / "other"), console)
    print_evaluation("first", new, console)
    assert "pass@1 (avg@4)" in console.export_text()
