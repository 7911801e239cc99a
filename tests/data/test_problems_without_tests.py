"""Problems of kind ``none``: every data step reads and keeps them, and nothing judges them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from tests.data.defective_problems import ADD
from whetstone.core.errors import UserError
from whetstone.core.problem import (
    NoTests,
    Problem,
    Program,
    StdinCase,
    StdinTests,
    case_count,
    problem_from,
    problem_schema,
)
from whetstone.core.verdict import Judgement, Verdict
from whetstone.data.benchmark_index import BenchmarkIndex
from whetstone.data.card import Census
from whetstone.data.contamination import Thresholds, find_contamination
from whetstone.data.decisions import ProblemDecision
from whetstone.data.duplicates import Deduplication, find_duplicates
from whetstone.data.export_formats import (
    VERL,
    NotRepresentable,
    export_format_named,
    prompt_text,
    write_export,
)
from whetstone.data.files import read_problems, write_problems
from whetstone.data.select import Selection, select
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.runs import Runs
from whetstone.data.validate.validator import Validator, settle
from whetstone.judge import Judge
from whetstone.judge.instruction import instruction
from whetstone.judge.judging import conclude
from whetstone.judge.options import JudgeOptions
from whetstone.run.checks import check_judging
from whetstone_curation.strengthen.forms import UnreadableTests, read_tests

STATEMENT = "A train leaves at nine and travels 84 km at 42 km/h. How long does it travel, in hours?"
TRAIN: dict[str, Any] = {
    "id": "maths/train",
    "statement": STATEMENT,
    "tests": {"kind": "none"},
    "source": "maths",
    "meta": {"answer": 2},
}
PROBLEM = problem_from(TRAIN)
SUM = Problem("code/sum", ADD, StdinTests([StdinCase("1 2", "3")]))


class Recorder:
    """A judge that records the problems that it gets."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        self.problems.append(problem.id)
        return Judgement(Verdict.WRONG_ANSWER, [], 0.0, "root")


class NoJudge:
    """A judge that must not be called."""

    def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        raise AssertionError("no program may be run")


def test_the_schema_has_the_kind_without_cases_or_a_checker() -> None:
    assert problem_schema()["$defs"]["NoTests"]["properties"] == {"kind": {"enum": ["none"]}}
    assert PROBLEM.tests == NoTests()
    with pytest.raises(UserError, match="cases"):
        problem_from({**TRAIN, "tests": {"kind": "none", "cases": []}})
    with pytest.raises(UserError, match="checker"):
        problem_from({**TRAIN, "checker": {"type": "standard", "name": "wcmp"}})


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "parquet"])
def test_it_is_read_back_as_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"set.{ending}"
    write_problems(path, [PROBLEM, SUM])
    assert list(read_problems(path)) == [PROBLEM, SUM]
    assert case_count(PROBLEM) == 0


def test_a_misspelt_kind_names_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps({**TRAIN, "tests": {"kind": "nome"}}))
    with pytest.raises(UserError, match="`none`"):
        list(read_problems(path))


def test_its_prompt_is_the_statement_alone() -> None:
    assert instruction(PROBLEM) == ""
    assert prompt_text(PROBLEM) == STATEMENT


@pytest.mark.process
def test_the_judge_refuses_it_and_names_the_remedy() -> None:
    with Judge(workers=1) as judge:
        # A reply without a program must be refused too, since it would count as a wrong one.
        for program in (Program("python", "print(2)"), Program("python", ""), None):
            with pytest.raises(UserError, match=r"kind: none.*give it tests, or use an environment"):
                judge.submit(PROBLEM, program)


def test_no_judgement_without_a_case_is_accepted() -> None:
    found = conclude([], [], PROBLEM.scoring, "root", JudgeOptions())
    assert (found.verdict, found.score) == (Verdict.JUDGE_ERROR, None)


def test_a_run_does_not_try_to_judge_it() -> None:
    judge = Recorder()
    asyncio.run(check_judging(cast("Any", judge), [PROBLEM, SUM]))
    assert judge.problems == [SUM.id]


@pytest.mark.parametrize("treatment", ["drop", "mark"])
def test_validation_finds_nothing_to_validate(treatment: str) -> None:
    problem = problem_from({**TRAIN, "references": [{"language": "python", "source": "print(2)"}]})
    policy = Policy().with_values(**{treatment: ["nothing_to_validate"]})
    outcome = Validator(Runs(NoJudge(), 1), policy).validate(problem)
    settled = list(settle(problem, outcome, policy))
    decisions = [(d.action, d.reason) for d in settled if isinstance(d, ProblemDecision)]
    if treatment == "drop":
        assert decisions == [("drop", "nothing_to_validate")]
    else:
        assert decisions == [("mark", "nothing_to_validate"), ("keep", "unconfirmed")]
        kept = settled[-1]
        assert isinstance(kept, Problem)
        assert kept.references == problem.references


def test_equal_statements_are_duplicates_and_others_are_not() -> None:
    again = problem_from({**TRAIN, "id": "other/train", "source": "other"})
    faster = problem_from({**TRAIN, "id": "maths/faster", "statement": STATEMENT.replace("84", "126")})
    found = find_duplicates(lambda: [PROBLEM, again, faster], Deduplication())
    dropped = [(match.id, match.kept, match.rule) for match in found if match.rule != "similar_statement"]
    assert dropped == [("other/train", "maths/train", "same_statement")]


def test_it_is_compared_with_benchmarks_by_its_statement() -> None:
    index = BenchmarkIndex(Thresholds().ngram)
    index.add("bench", [problem_from({**TRAIN, "id": "bench/1"}), SUM])
    far = problem_from(
        {**TRAIN, "id": "maths/far", "statement": "Name the largest prime below ten thousand."}
    )
    found = find_contamination(lambda: [PROBLEM, far], index, Thresholds()).found
    assert {name: match.rule for name, match in found.items()} == {"maths/train": "same_statement"}


def test_selection_and_card_know_the_kind() -> None:
    chosen = select(iter([PROBLEM, SUM]), Selection(kinds=("none",), max_tests=1))
    assert [one for one in chosen if isinstance(one, Problem)] == [PROBLEM]
    census = Census()
    census.add(PROBLEM, "train")
    card = census.card(["train"], [])
    assert (card.kinds, card.tests_per_problem, card.answers) == (
        {"none": 1},
        {"0": 1},
        {"by the environment": 1},
    )


def test_no_tests_are_added_to_it() -> None:
    with pytest.raises(UnreadableTests, match="no tests"):
        read_tests(PROBLEM)


def test_export_keeps_it_whole_or_names_the_kind(tmp_path: Path) -> None:
    write_problems(tmp_path / "set.jsonl", [PROBLEM])
    out = tmp_path / "out.parquet"
    write_export(str(tmp_path / "set.jsonl"), out, export_format_named("trl"))
    [row] = pq.read_table(out).to_pylist()
    assert problem_from(json.loads(row["problem"])) == PROBLEM
    with pytest.raises(NotRepresentable, match="none tests"):
        VERL.row(PROBLEM, "train", 0)
