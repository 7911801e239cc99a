"""The problems that ship: enough tests, right references, wrong programs that fail, nothing leaked.

They train models and measure them, so a wrong expectation here would be a wrong reward everywhere.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, StdinTests, case_count
from whetstone.data.benchmark_index import BenchmarkIndex
from whetstone.data.builtin import shipped_files
from whetstone.data.contamination import Thresholds, find_contamination
from whetstone.data.dataset import load_problems
from whetstone.data.files import read_problems
from whetstone.data.similarity.programs import read_program
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.validator import ValidationOutcome
from whetstone.data.validate.whole_set import count_tests, validate_set
from whetstone.evaluate.benchmarks import load_benchmark
from whetstone.judge import Judge

MINIMUM = 240
GRAM = 10
PARTS = 12
SPLITS = ("train", "heldout")


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Problem]]:
    return {split: load_problems(f"builtin:{split}") for split in SPLITS}


@pytest.fixture(scope="module")
def shipped(splits: dict[str, list[Problem]]) -> list[Problem]:
    return [problem for split in SPLITS for problem in splits[split]]


def repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


def asserts_of(tests: AssertTests) -> int:
    return len(tests.asserts or []) or (tests.check or tests.unittest or "").count("assert")


@pytest.mark.process
@pytest.mark.drawn(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_part_of_the_references_is_accepted_and_no_wrong_program(shipped: list[Problem], part: int) -> None:
    with Judge(workers=2) as judge:
        for problem in shipped[part::PARTS]:
            verdicts = [judge.judge(problem, program).accepted for program in problem.references]
            assert all(verdicts), problem.id
            wrong = [judge.judge(problem, program).accepted for program in problem.wrong]
            assert not any(wrong), problem.id


@pytest.mark.extended
@pytest.mark.process
def test_every_reference_is_accepted_and_every_wrong_program_is_not(shipped: list[Problem]) -> None:
    policy, shared = Policy(repeats=1, mutants=0, trivial_programs=False), count_tests("builtin:all")
    amiss: list[ValidationOutcome] = []

    def watch(problem: Problem, outcome: ValidationOutcome) -> None:
        if len(outcome.accepted) < len(problem.references) or outcome.flags:
            amiss.append(outcome)

    with Judge(workers=2) as judge:
        tally = validate_set("builtin:all", judge, policy, shared, workers=2, watch=watch)
    assert amiss == []
    assert (tally.kept, tally.amiss) == (len(shipped), 0)


def test_there_are_enough_of_every_kind(shipped: list[Problem]) -> None:
    assert len(shipped) >= MINIMUM
    kinds = Counter(type(p.tests) for p in shipped)
    assert min(kinds[kind] for kind in (CallTests, StdinTests, AssertTests)) >= MINIMUM // 8
    levels = Counter(p.meta["difficulty"] for p in shipped)
    assert set(levels) == {"trivial", "very_easy", "easy", "medium"}
    assert levels["trivial"] >= 110
    assert levels["very_easy"] > levels["easy"] > levels["medium"]


def test_each_has_eight_tests_a_reference_and_two_distinct_wrong_programs(shipped: list[Problem]) -> None:
    for problem in shipped:
        tests = problem.tests
        count = asserts_of(tests) if isinstance(tests, AssertTests) else case_count(problem)
        assert count >= 8, problem.id
        assert problem.references, problem.id
        sources = [program.source for program in (*problem.references, *problem.wrong)]
        assert len(problem.wrong) >= 2, problem.id
        assert repeated(sources) == [], problem.id


def test_no_test_is_given_twice(shipped: list[Problem]) -> None:
    for problem in shipped:
        tests = problem.tests
        if isinstance(tests, CallTests):
            given = [repr((c.args, c.kwargs)) for c in tests.cases]
        elif isinstance(tests, StdinTests):
            given = [c.input for c in tests.cases]
        else:
            assert isinstance(tests, AssertTests)
            given = tests.asserts or []
        assert repeated(given) == [], problem.id


def test_a_constant_answer_never_passes(shipped: list[Problem]) -> None:
    for problem in shipped:
        if isinstance(problem.tests, CallTests | StdinTests):
            expected = [c.expected if isinstance(c, CallCase) else c.output for c in problem.tests.cases]
            assert len({json.dumps(value) for value in expected}) > 1, problem.id


def test_each_statement_names_the_called_function_and_the_starter_agrees(shipped: list[Problem]) -> None:
    for problem in shipped:
        tests = problem.tests
        if isinstance(tests, StdinTests):
            assert problem.starter is None, problem.id
            said = set(words(problem.statement))
            assert said & {"read", "reads", "input"}, problem.id
            assert said & {"print", "prints"}, problem.id
            continue
        assert isinstance(tests, CallTests | AssertTests)
        name = tests.function if isinstance(tests, CallTests) else tests.entry_point
        assert f"{name}" in problem.statement, problem.id
        assert re.match(rf"(def|class) {name}\b", problem.starter or ""), problem.id


def test_metadata_and_limits_are_uniform(shipped: list[Problem]) -> None:
    for split in SPLITS:
        for file in shipped_files(split):
            for problem in read_problems(file):
                assert problem.meta["concept"] == file.stem, problem.id
                assert problem.id.startswith(f"whetstone/{file.stem}/"), problem.id
                assert problem.source == "whetstone", problem.id
                assert (problem.limits.cpu_s, problem.limits.memory_mb) == (2.0, 256.0), problem.id


def test_no_id_and_no_statement_occurs_twice(shipped: list[Problem]) -> None:
    assert repeated(p.id for p in shipped) == []
    assert repeated(" ".join(words(p.statement)) for p in shipped) == []


def test_heldout_tests_other_concepts_than_training(splits: dict[str, list[Problem]]) -> None:
    concepts = {split: {p.meta["concept"] for p in splits[split]} for split in SPLITS}
    assert not concepts["train"] & concepts["heldout"]


def test_no_heldout_solution_is_a_training_solution_with_other_names(
    splits: dict[str, list[Problem]],
) -> None:
    known = {read_program(r.source): p.id for p in splits["train"] for r in p.references}
    leaked = [(p.id, known.get(read_program(r.source))) for p in splits["heldout"] for r in p.references]
    assert [pair for pair in leaked if pair[1]] == []


def test_no_statement_shares_a_passage_with_a_public_benchmark(shipped: list[Problem]) -> None:
    public = {gram for text in benchmark_statements() for gram in grams(text)}
    assert len(public) > 10_000
    assert [(p.id, found) for p in shipped if (found := grams(p.statement) & public)] == []


def test_no_problem_is_one_of_a_public_benchmark(shipped: list[Problem]) -> None:
    index = BenchmarkIndex(Thresholds().ngram)
    for name, file in zip(("humaneval", "mbpp"), benchmark_files(), strict=True):
        index.add(name, load_benchmark(name, str(file)).problems)
    assert find_contamination(lambda: shipped, index, Thresholds()).found == {}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def grams(text: str) -> set[str]:
    spelled = words(text)
    return {" ".join(spelled[i : i + GRAM]) for i in range(len(spelled) - GRAM + 1)}


def benchmark_statements() -> list[str]:
    human, mbpp = benchmark_files()
    with gzip.open(human, "rt", encoding="utf-8") as lines:
        statements = [json.loads(line)["prompt"] for line in lines]
    return statements + [row["prompt"] for row in json.loads(mbpp.read_text(encoding="utf-8"))]


def benchmark_files() -> tuple[Path, Path]:
    """HumanEval and MBPP, from the shared data beside the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared"
    data = Path(os.environ.get("WHETSTONE_SHARED", beside)) / "data"
    human = data / "humaneval" / "HumanEval.jsonl.gz"
    mbpp = data / "mbpp_sanitized" / "sanitized-mbpp.json"
    if not (human.is_file() and mbpp.is_file()):
        pytest.skip(f"no HumanEval and MBPP under {data}; set WHETSTONE_SHARED to the folder that has data/")
    return human, mbpp
