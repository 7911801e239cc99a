"""``select``, ``case_choice`` and ``pass_rate``: what is taken, seeded and with a reason for the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    CaseGroup,
    Problem,
    Scoring,
    StdinCase,
    StdinTests,
    case_count,
)
from whetstone.data.decisions import ProblemDecision
from whetstone.data.pass_rate import Keep, PassRate, keep_by_pass_rate, parse_keep, rate_of
from whetstone.data.select import CaseRule, Selection, cut_cases, select


def sized(id: str, sizes: list[int], groups: list[CaseGroup] | None = None, **fields: Any) -> Problem:
    """A problem whose cases have inputs of these lengths; a case's output is its number."""
    cases = [StdinCase("x" * size, str(number)) for number, size in enumerate(sizes)]
    scoring = Scoring("groups", groups) if groups else Scoring()
    return Problem(id, fields.pop("statement", "?"), StdinTests(cases), scoring=scoring, **fields)


def kept(problem: Problem) -> list[int]:
    assert isinstance(problem.tests, StdinTests)
    return [int(case.output) for case in problem.tests.cases]


def taken(problems: list[Problem], **options: Any) -> list[str]:
    results = select(iter(problems), Selection(**options))
    return [r.id for r in results if isinstance(r, Problem)]


def test_cases_are_chosen_by_the_length_of_their_inputs() -> None:
    rules: dict[CaseRule, list[int]] = {
        "longest": [1, 3, 5],
        "shortest": [0, 2, 4],
    }
    for rule, expected in rules.items():
        assert kept(cut_cases(sized("p", [1, 9, 2, 7, 3, 8]), 3, rule, 0)) == expected


def test_random_cases_are_seeded_and_nested() -> None:
    problem = sized("p", [1] * 40)
    eight, sixteen = (kept(cut_cases(problem, n, "random", 3)) for n in (8, 16))
    assert eight == kept(cut_cases(problem, 8, "random", 3))
    assert set(eight) < set(sixteen)
    assert eight != kept(cut_cases(problem, 8, "random", 4))
    assert eight != kept(cut_cases(sized("q", [1] * 40), 8, "random", 3))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.data(),
    st.sampled_from(get_args(CaseRule)),
    st.integers(0, 14),
)
def test_any_cut_is_a_valid_problem_with_that_many_cases(
    sizes: list[int], data: st.DataObject, rule: CaseRule, bound: int
) -> None:
    labels = data.draw(st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes)))
    groups = [
        CaseGroup([n for n, label in enumerate(labels) if label == which], which + 1.0)
        for which in sorted(set(labels))
    ]
    problem = sized("p", sizes, groups)
    cut = cut_cases(problem, bound, rule, 1)
    numbers = kept(cut)
    assert len(numbers) == (min(bound, len(sizes)) if bound else len(sizes))
    assert numbers == sorted(set(numbers))
    where = {labels[number] for number in numbers}
    if len(numbers) >= len(groups):
        assert where == set(labels)
    assert len(cut.scoring.groups) == len(where)
    for group, which in zip(cut.scoring.groups, sorted(where), strict=True):
        assert group.weight == which + 1.0
        assert [labels[numbers[case]] for case in group.cases] == [which] * len(group.cases)


def test_calls_and_asserts_are_cut_and_test_functions_are_whole() -> None:
    calls = Problem("c", "?", CallTests([CallCase(0, ["x" * n]) for n in range(5)], "f"))
    cut = cut_cases(calls, 2, "longest", 0).tests
    assert isinstance(cut, CallTests)
    assert [len(case.args[0]) for case in cut.cases] == [3, 4]
    asserts = Problem("a", "?", AssertTests(asserts=["assert f(1)", "assert f(10000)", "assert f(100)"]))
    cut = cut_cases(asserts, 1, "longest", 0).tests
    assert isinstance(cut, AssertTests)
    assert cut.asserts == ["assert f(10000)"]
    check = Problem("k", "?", AssertTests(check="def check(c):\n assert c(1)\n assert c(2)", entry_point="f"))
    assert cut_cases(check, 1, "longest", 0) is check


def test_every_problem_comes_out_or_is_dropped_with_its_reason() -> None:
    problems = [
        sized("few", [1], source="mine"),
        Problem("call", "?", CallTests([CallCase(1)] * 3, "f"), source="mine"),
        sized("cpp", [1] * 3, language="cpp", source="mine"),
        sized("other", [1] * 3, source="other"),
        sized("unrated", [1] * 3, source="mine"),
        sized("hard", [1] * 3, source="mine", meta={"pass_rate": {"model": "m", "n": 8, "passed": 0}}),
        sized("good", [1] * 3, source="mine", meta={"pass_rate": {"model": "m", "n": 8, "passed": 4}}),
    ]
    selection = Selection(
        min_tests=2, kinds=("stdin",), languages=("python",), sources=("mine",), pass_rate=(0.1, 0.9)
    )
    results = list(select(iter(problems), selection))
    assert [r.id for r in results if isinstance(r, Problem)] == ["good"]
    assert {r.problem_id: r.reason for r in results if isinstance(r, ProblemDecision)} == {
        "few": "too_few_tests",
        "call": "kind",
        "cpp": "language",
        "other": "source",
        "unrated": "not_measured",
        "hard": "pass_rate_outside",
    }


def test_cut_tests_are_marked_with_their_numbers() -> None:
    results = list(select(iter([sized("p", [1] * 9)]), Selection(max_tests=4)))
    assert results[0] == ProblemDecision("p", "select", "mark", "tests_cut", "4 of 9 tests, longest", "")
    assert isinstance(results[1], Problem)
    assert case_count(results[1]) == 4


def test_a_draw_depends_on_seed_and_id_and_names_the_problems_left_out() -> None:
    problems = [sized(f"p/{n}", [1]) for n in range(50)]
    results = list(select(iter(problems), Selection(max_problems=10, seed=5)))
    drawn = [r.id for r in results if isinstance(r, Problem)]
    assert len(drawn) == 10
    assert drawn == sorted(drawn, key=lambda id: int(id[2:]))
    assert Counter(r.reason for r in results if isinstance(r, ProblemDecision)) == {"not_drawn": 40}
    assert taken(problems, max_problems=10, seed=6) != drawn
    # Another problem in the set takes at most one place.
    assert len(set(taken([*problems, sized("new", [1])], max_problems=10, seed=5)) & set(drawn)) >= 9


def test_orders() -> None:
    def rated(id: str, passed: int, **fields: Any) -> Problem:
        return sized(id, [1], meta={"pass_rate": {"model": "m", "n": 8, "passed": passed}}, **fields)

    by_rate = [rated("hard", 1), sized("unknown", [1]), rated("easy", 7), rated("never", 0)]
    assert taken(by_rate, order="difficulty") == ["easy", "hard", "never", "unknown"]
    by_length = [sized(str(n), [1], statement="w" * n) for n in (3, 1, 2)]
    assert taken(by_length, order="length") == ["1", "2", "3"]


def test_invalid_options_are_refused() -> None:
    invalid: list[tuple[dict[str, Any], str]] = [
        ({"max_tests": -1}, "max_tests"),
        ({"kinds": ("stdn",)}, "did you mean `stdin`"),
        ({"pass_rate": (0.9, 0.1)}, "pass_rate"),
    ]
    for options, words in invalid:
        with pytest.raises(ValidationError, match=words):
            Selection(**options)


def test_bounds_of_pass_rates() -> None:
    for text, n, least, most in (
        (None, 8, 1, 7),
        ("1..n-1", 4, 1, 3),
        ("0..n", 4, 0, 4),
        ("2..5", 8, 2, 5),
        ("1..n-2", 8, 1, 6),
    ):
        assert parse_keep(text, n) == Keep(least, most, n)
    for text, n in (("1-7", 8), ("5..3", 8), ("1..9", 8), (None, 1), ("1..n-9", 8)):
        with pytest.raises(UserError, match="--keep"):
            parse_keep(text, n)


def test_pass_rates_are_written_and_keep_problems_with_a_signal() -> None:
    rates = {
        "never": PassRate("m", 8, 0),
        "always": PassRate("m", 8, 8),
        "some": PassRate("m", 8, 3),
        "failed judge": PassRate("m", 0, 0),
        "half judged": PassRate("m", 4, 4),
    }
    problems = [sized(id, [1], meta={"difficulty": "easy"}) for id in [*rates, "absent"]]
    results = list(keep_by_pass_rate(rates, parse_keep(None, 8))(iter(problems)))
    by_id = {r.id: r for r in results if isinstance(r, Problem)}
    assert list(by_id) == ["some", "failed judge", "absent"]
    assert by_id["some"].meta == {"difficulty": "easy", "pass_rate": {"model": "m", "n": 8, "passed": 3}}
    assert rate_of(by_id["some"]) == PassRate("m", 8, 3)
    assert rate_of(by_id["absent"]) is None
    assert {r.problem_id: (r.action, r.reason) for r in results if isinstance(r, ProblemDecision)} == {
        "never": ("drop", "never_solved"),
        "always": ("drop", "always_solved"),
        "half judged": ("drop", "always_solved"),
        "failed judge": ("mark", "not_measured"),
        "absent": ("mark", "not_measured"),
    }


def test_bounds_of_n_replies_hold_for_fewer_judged_ones() -> None:
    keep = parse_keep("2..4", 8)
    assert [passed for passed in range(5) if keep.includes(PassRate("m", 4, passed))] == [1, 2]
