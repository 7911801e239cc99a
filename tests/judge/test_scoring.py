"""Scores: what accepted cases are worth. The verdict never depends on it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.judge_problems import python, stdin_problem
from whetstone.core.errors import UserError
from whetstone.core.problem import CaseGroup, Scoring
from whetstone.judge import Judge, Verdict
from whetstone.judge.judging import score

CASES = [("1", "1"), ("2", "4"), ("3", "9"), ("4", "16")]
RIGHT_FOR_TWO = "n = int(input()); print(n * n if n < 3 else 0)"
GROUPS = {"mode": "groups", "groups": [{"cases": [0, 1], "weight": 1}, {"cases": [1, 2, 3], "weight": 3}]}


@pytest.mark.parametrize(("scoring", "worth"), [({}, 0.5), ({"mode": "all"}, 0.0), (GROUPS, 0.25)])
def test_a_problem_says_how_cases_are_scored(judge: Judge, scoring: dict[str, Any], worth: float) -> None:
    problem = stdin_problem(*CASES, scoring=scoring)
    partly = judge.judge(problem, python(RIGHT_FOR_TWO))
    assert (partly.verdict, partly.score) == (Verdict.WRONG_ANSWER, worth)
    whole = judge.judge(problem, python("n = int(input()); print(n * n)"))
    assert (whole.verdict, whole.score) == (Verdict.ACCEPTED, 1.0)
    assert judge.judge(problem, python("print()")).score == 0.0


def test_a_program_may_be_wished_to_stop_at_its_first_failure(judge: Judge) -> None:
    problem, program = stdin_problem(*CASES), python("print(4)")
    assert len(judge.judge(problem, program).cases) == len(CASES)
    assert len(judge.judge(problem, program, stop_at_first_failure=True).cases) == 1


@pytest.mark.parametrize("groups", [[[0, 1]], [[0, 1, 2, 3, 4]], [], [[0, 1, 2, 3], []]])
def test_groups_hold_every_case_and_no_other(judge: Judge, groups: list[list[int]]) -> None:
    scoring = {"mode": "groups", "groups": [{"cases": cases} for cases in groups]}
    with pytest.raises(UserError):
        judge.judge(stdin_problem(*CASES, scoring=scoring), python("print()"))


numbers = st.sets(st.integers(0, 9))
groupings = st.lists(
    st.builds(CaseGroup, st.lists(st.integers(0, 9), min_size=1, max_size=5), st.floats(1e-3, 1e3)),
    max_size=4,
)


def _scoring(groups: list[CaseGroup]) -> Scoring:
    return Scoring("groups", [CaseGroup(list(range(10))), *groups])


@given(numbers.filter(bool), numbers, groupings, st.sampled_from(["fraction", "all", "groups"]))
def test_a_score_is_a_share_and_whole_only_when_all_is_right(
    counted: set[int], accepted: set[int], groups: list[CaseGroup], mode: Any
) -> None:
    scoring = _scoring(groups) if mode == "groups" else Scoring(mode)
    worth = score(scoring, counted, accepted)
    assert 0 <= worth <= 1
    assert (worth == 1) == (counted <= accepted)


@given(numbers.filter(bool), numbers, numbers, groupings)
def test_more_right_cases_are_never_worth_less(
    counted: set[int], accepted: set[int], more: set[int], groups: list[CaseGroup]
) -> None:
    for scoring in (_scoring(groups), Scoring(), Scoring("all")):
        assert score(scoring, counted, accepted) <= score(scoring, counted, accepted | more)


def test_a_subset_leaves_out_groups_of_which_it_has_no_case() -> None:
    scoring = Scoring("groups", [CaseGroup([0, 1], 1.0), CaseGroup([2], 2.0), CaseGroup([3], 1.0)])
    assert score(scoring, [0, 2], [2]) == 2 / 3
    assert score(scoring, [0, 1, 2, 3], [0, 3]) == 0.25
