"""Stored replies are judged again by other rules, without a model; what differs is listed with its reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path

import pytest

from whetstone.cli.main import main
from whetstone.environments.conversation import Reply
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import SingleTurn
from whetstone.environments.turn_barrier import TurnBarrier
from whetstone.evaluate.benchmarks import Benchmark, load_benchmark
from whetstone.evaluate.evaluate import evaluate
from whetstone.evaluate.folder import EvaluationFolder, read_samples
from whetstone.evaluate.manifest import build_manifest
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.writer import ReplyRequest
from whetstone.evaluate.results import load_evaluation
from whetstone.judge import AsyncJudge
from whetstone_graders.rejudge import DIFFERENCES_FILE, StoredReplies

PROMPT = "from typing import List\n\n\ndef last(xs: List[int]) -> int:\n    '''The last one.'''\n"
ROW = {
    "task_id": "HumanEval/0",
    "prompt": PROMPT,
    "entry_point": "last",
    "canonical_solution": "    return xs[-1]\n",
    "contract": "",
    "base_input": [[[1, 2]], [[3]]],
    "plus_input": [[[5, 6, 7]]],
    "atol": 0,
    "test": "",
}
FENCED = "```python\n{}\n```"
REPLIES = [
    FENCED.format("def last(xs):\n    return xs[-1]"),
    FENCED.format(
        "Xs = List[int]\n\n\ndef last(xs: Xs):\n    return xs[-1]"
    ),  # the import stands in the prompt alone
    FENCED.format("import functools\n@functools.wraps(len)\ndef last(xs):\n    return xs[-1]"),
    FENCED.format("def last(xs):\n    return xs[1]"),
]


class _Scripted(StoredReplies):
    def __init__(self) -> None:
        self.barrier = TurnBarrier()

    async def write(
        self, questions: Iterable[ReplyRequest], *, several_turns: bool = False
    ) -> AsyncGenerator[tuple[ReplyRequest, Reply], None]:
        for question in questions:
            for index in sorted(question.wanted):
                yield question, Reply(index, REPLIES[index], "stop", 7)


async def _evaluate(benchmark: Benchmark, folder: Path) -> None:
    settings = EnvironmentSection(chat=True, prompt=benchmark.prompt, extraction="first_fence")
    plan = SamplingPlan(n=len(REPLIES), k=(1,))
    manifest = build_manifest(
        benchmark, plan, settings, model={}, grading="ours", isolation="root", packages="default"
    )
    async with AsyncJudge(workers=1) as judge:
        with EvaluationFolder(folder, manifest) as stored:
            environment = SingleTurn(settings)
            found = await evaluate(
                benchmark.problems,
                _Scripted(),
                environment,
                judge,
                plan,
                record=stored.add,
                manifest=manifest,
            )
            stored.finish(found)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("measured")
    file = root / "HumanEvalPlus.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    asyncio.run(_evaluate(load_benchmark("humanevalplus", str(file)), root / "run" / "humanevalplus"))
    return root


@pytest.mark.process
def test_differences_between_harnesses_are_listed_with_their_reasons(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "rejudge", str(measured / "run"), "--harness", "official", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "replies that differ: 2 (right only by official: 0, only by ours: 2)" in out
    assert "base inputs alone: 25.0% of the replies are right" in out
    before, after = (measured / name / "humanevalplus" for name in ("run", "run-official"))
    assert [sample.solved for sample in read_samples(before)] == [True, True, True, False]
    assert [sample.solved for sample in read_samples(after)] == [True, False, False, False]
    found = [json.loads(line) for line in (after / DIFFERENCES_FILE).read_text().splitlines()]
    assert [(each["index"], each["before"], each["after"]) for each in found] == [
        (1, "accepted", "runtime_error"),
        (2, "accepted", "runtime_error"),
    ]
    assert "name 'List' is not defined" in found[0]["after_reason"]
    assert found[1]["another_program"]
    assert load_evaluation(after).manifest["harness"] == "official"
    assert [sample.text for sample in read_samples(after)] == REPLIES
    assert main(["eval", "compare", str(measured / "run"), str(measured / "run-official")]) == 0
    assert "harness" in capsys.readouterr().out


@pytest.mark.process
def test_a_folder_judged_by_other_rules_is_begun_anew_only_when_asked(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["eval", "rejudge", str(measured / "run"), "--out", str(tmp_path / "again"), "--workers", "1"]
    assert main([*command, "--harness", "official"]) == 0
    assert main(command) == 2
    assert "--restart" in capsys.readouterr().err
    assert main([*command, "--restart"]) == 0
    assert load_evaluation(tmp_path / "again" / "humanevalplus").manifest["harness"] == "ours"


@pytest.mark.process
def test_other_problems_than_those_of_the_evaluation_are_refused(
    measured: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({**ROW, "plus_input": [[[9]]]}) + "\n")
    said = f"humanevalplus={file}"
    assert main(["eval", "rejudge", str(measured / "run"), "--data", said, "--out", str(tmp_path / "o")]) == 2
    assert "was made on other problems" in capsys.readouterr().err


def test_a_benchmark_without_an_official_grader_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "eval --model none --benchmark problems --data builtin:heldout --harness official"
    assert main([*words.split(), "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "humanevalplus" in said
    assert "--harness ours" in said
