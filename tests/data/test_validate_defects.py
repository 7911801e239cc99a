"""Every documented defect is caught and named, and no clean problem is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.clean_problems import clean_problems
from tests.data.defective_problems import QUICK, defective_problems, lower_size_bounds, slow_reference
from whetstone.core.problem import Problem
from whetstone.data.decisions import ProblemDecision, read_decisions
from whetstone.data.files import read_problems, write_problems
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.reasons import REASONS
from whetstone.data.validate.whole_set import ValidationTally, count_tests, validate_set
from whetstone.judge import Judge


class Validated:
    """A set, validated: its decisions by problem, what was kept, and the tally."""

    def __init__(self, judge: Judge, folder: Path, problems: list[Problem], policy: Policy) -> None:
        source, out = folder / "raw.jsonl", folder / "kept.jsonl"
        write_problems(source, problems)
        self.tally: ValidationTally = validate_set(
            source, judge, policy, count_tests(source), out=out, workers=2
        )
        self.kept = {problem.id: problem for problem in read_problems(out)}
        self.decisions: dict[str, list[ProblemDecision]] = {problem.id: [] for problem in problems}
        for decision in read_decisions(folder / "kept.decisions.jsonl"):
            self.decisions[decision.problem_id].append(decision)

    def reasons(self, problem: Problem, action: str) -> list[str]:
        return [d.reason for d in self.decisions[problem.id] if d.action == action]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=2) as judge:
        yield judge


@pytest.fixture(scope="module")
def defective(judge: Judge, tmp_path_factory: pytest.TempPathFactory) -> Validated:
    problems = [problem for _, problem in defective_problems()]
    with pytest.MonkeyPatch.context() as monkeypatch:
        lower_size_bounds(monkeypatch)
        return Validated(judge, tmp_path_factory.mktemp("defects"), problems, Policy(**QUICK))


@pytest.mark.drawn(20)
@pytest.mark.process
@pytest.mark.parametrize(("reason", "problem"), defective_problems(), ids=lambda p: getattr(p, "id", str(p)))
def test_a_defect_is_caught_and_named(defective: Validated, reason: str, problem: Problem) -> None:
    action = REASONS[reason].treatment
    assert reason in defective.reasons(problem, action), defective.decisions[problem.id]
    if action == "drop":
        assert problem.id not in defective.kept


def test_every_reason_has_a_defect_that_shows_it() -> None:
    assert {reason for reason, _ in defective_problems()} == set(REASONS)


def test_every_problem_is_kept_or_dropped_once_and_says_why(defective: Validated) -> None:
    for problem_id, decisions in defective.decisions.items():
        settled = [d for d in decisions if d.action != "mark"]
        assert len(settled) == 1
        assert (settled[0].action == "keep") == (problem_id in defective.kept)
        assert all(d.detail and d.step == "validate" for d in decisions)
    assert defective.tally.problems == len(defective.decisions)
    assert defective.tally.kept == len(defective.kept)


def test_marks_stand_in_the_kept_problem(defective: Validated) -> None:
    for problem_id, problem in defective.kept.items():
        marks = {d.reason: d.detail for d in defective.decisions[problem_id] if d.action == "mark"}
        assert problem.meta["validation"]["flags"] == marks


def test_a_reference_that_fails_is_taken_out_and_the_problem_stays(defective: Validated) -> None:
    problem = defective.kept["made/one-removed"]
    assert len(problem.references) == 1
    assert problem.meta["validation"]["references_removed"] == 1


def test_a_missing_judgement_never_drops_a_problem(defective: Validated) -> None:
    for name in ("made/no-judge", "made/no-language"):
        assert len(defective.kept[name].references) == 1
        assert defective.decisions[name][-1].reason == "unconfirmed"


def test_no_clean_problem_is_dropped_or_marked(judge: Judge, tmp_path: Path) -> None:
    problems = clean_problems()
    assert len(problems) >= 20
    validated = Validated(judge, tmp_path, problems, Policy(most_cpu_s=5.0))
    assert [d for decisions in validated.decisions.values() for d in decisions if d.action != "keep"] == []
    assert [d.reason for ds in validated.decisions.values() for d in ds] == ["confirmed"] * len(problems)
    for problem in problems:
        assert validated.kept[problem.id].tests == problem.tests  # CRLF and all


def test_the_slowest_reference_sets_the_limit(judge: Judge, tmp_path: Path) -> None:
    problem = slow_reference()
    policy = Policy(most_cpu_s=5.0, repeats=1, mutants=0, trivial_programs=False)
    kept = Validated(judge, tmp_path, [problem], policy).kept[problem.id]
    facts = kept.meta["validation"]
    assert facts["limits_before"]["cpu_s"] == 0.1
    assert 0.25 <= facts["slowest_cpu_s"] < kept.limits.cpu_s <= 5.0
    assert kept.limits.cpu_s >= min(5.0, 4 * facts["slowest_cpu_s"])


def test_a_policy_decides_which_defects_drop_a_problem(judge: Judge, tmp_path: Path) -> None:
    wanted = {"few_tests", "wrong_test", "image_in_statement"}
    problems = [problem for reason, problem in defective_problems() if reason in wanted]
    policy = Policy(drop=("few_tests",), mark=("wrong_test",), ignore=("image_in_statement",), mutants=0)
    validated = Validated(judge, tmp_path, problems, policy)
    by_name = {problem.id: validated.decisions[problem.id] for problem in problems}
    assert [(d.action, d.reason) for d in by_name["made/few"]] == [("drop", "few_tests")]
    assert [(d.action, d.reason) for d in by_name["made/wrong-test"]] == [
        ("mark", "wrong_test"),
        ("keep", "unconfirmed"),
    ]
    assert [(d.action, d.reason) for d in by_name["made/image_in_statement"]] == [("keep", "confirmed")]
