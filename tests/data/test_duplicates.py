"""``duplicates``: the same problem from two sources is found, problems that only look alike stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from whetstone.core.problem import (
    CallCase,
    CallTests,
    Problem,
    Program,
    StandardChecker,
    StdinCase,
    StdinTests,
)
from whetstone.data.dataset import open_problems, transform
from whetstone.data.decisions import ProblemDecision, read_decisions
from whetstone.data.duplicates import Deduplication, DuplicateMatch, drop_duplicates, find_duplicates
from whetstone.data.files import write_problems

STORY = (
    "Polycarp has n boxes in a row, and the i-th box weighs a_i grams. He carries them one after another "
    "to the other end of the yard, and wants to know the {what} of all weights. Help him to find it. "
    "The first line holds n (1 <= n <= {bound}), the second the n weights."
)


def stdin_problem(
    id: str, statement: str, cases: Sequence[tuple[str, str]], *, checker: bool = False, references: int = 0
) -> Problem:
    return Problem(
        id=id,
        statement=statement,
        tests=StdinTests([StdinCase(given, expected) for given, expected in cases]),
        checker=StandardChecker("wcmp") if checker else None,
        references=[Program("python", f"print({n})") for n in range(references)],
        source=id.partition("/")[0],
    )


def found(*problems: Problem, near: float = 0.8) -> list[DuplicateMatch]:
    return find_duplicates(lambda: problems, Deduplication(near=near))


def story(id: str, what: str = "sum", bound: int = 100, *, cases: Sequence[tuple[str, str]] = ()) -> Problem:
    own = [(f"1\n{len(id)}{what}{bound}", "1")]
    return stdin_problem(id, STORY.format(what=what, bound=bound), cases or own)


def test_a_statement_that_came_from_two_sources_is_a_duplicate_whatever_its_tests() -> None:
    one = stdin_problem("apps/7", STORY.format(what="sum", bound=100), [("1\n5\n", "5"), ("2\n1 2", "3")])
    other = stdin_problem(
        "taco/7",
        "<p>" + STORY.format(what="**sum**", bound="$100$").upper().replace("<=", "\\le") + "</p>",
        [("1\n9\n", "9")],
    )
    assert found(one, other) == [DuplicateMatch("taco/7", "apps/7", "same_statement", 1.0, "taco")]


def test_the_same_tests_under_another_statement_are_a_duplicate() -> None:
    cases = [(f"3\n{n} {n} {n}\n", f"{3 * n}\n") for n in range(8)]
    one = stdin_problem("a/1", "Add up the numbers that are given to you, please.", cases)
    other = stdin_problem(
        "b/1", "Wie gross ist die Summe der drei Zahlen?", [(i.replace("\n", "\r\n"), o) for i, o in cases]
    )
    assert [(m.id, m.kept, m.rule) for m in found(one, other)] == [("b/1", "a/1", "same_tests")]


def test_near_statements_with_a_common_case_are_a_duplicate_that_names_the_similarity() -> None:
    one = story("a/1", cases=[("2\n1 2\n", "3\n"), ("1\n7\n", "7\n")])
    other = stdin_problem("b/1", one.statement.replace("Polycarp", "Monocarp"), [("2\n1 2\n", "3\n")])
    [match] = found(one, other)
    assert (match.id, match.kept, match.rule) == ("b/1", "a/1", "near_duplicate")
    assert match.similarity is not None
    assert 0.8 <= match.similarity < 1
    assert [m.rule for m in found(one, other, near=0.99)] == []


def test_near_statements_with_the_same_words_need_no_common_case() -> None:
    one = story("a/1")
    sentences = one.statement.split(". ")
    other = stdin_problem("b/1", ". ".join([sentences[-1], *sentences[:-1]]), [("1\n1", "1"), ("1\n2", "2")])
    assert [(m.id, m.kept, m.rule) for m in found(one, other)] == [("a/1", "b/1", "near_duplicate")]


def test_a_template_with_other_content_is_marked_and_stays() -> None:
    for one, other in (
        (story("a/1", "sum"), story("b/1", "product")),
        (story("a/1", bound=100), story("b/1", bound=100000)),
        (story("a/1", "largest"), story("b/1", "smallest")),
        (story("a/1", "number"), story("b/1", "number of odd ones")),
    ):
        assert [match.rule for match in found(one, other)] == ["similar_statement"]


def test_a_common_input_with_two_answers_says_that_problems_differ_unless_a_checker_decides() -> None:
    cases = [("1\n7\n", "7\n"), ("3\n1 1 2\n", "4\n")]
    one, other = (
        story("a/1", "sum", cases=cases),
        story("b/1", "product", cases=[cases[0], (cases[1][0], "2")]),
    )
    assert [m.rule for m in found(one, other)] == ["similar_statement"]
    several = stdin_problem("b/1", other.statement, [cases[0], (cases[1][0], "2")], checker=True)
    assert [m.rule for m in found(one, several)] == ["near_duplicate"]


def test_a_statement_that_leaves_everything_to_the_starter_is_not_the_problem() -> None:
    def completes(id: str, what: str) -> Problem:
        starter = f'def f(xs):\n    """Return {what}."""\n'
        tests = CallTests([CallCase(len(what), [[len(what)]])], "f")
        return Problem(id, "Complete the function below as its docstring says.", tests, starter=starter)

    problems = completes("a/1", "the sum of all xs"), completes("a/2", "all xs in reverse")
    assert [m for m in found(*problems) if m.rule != "similar_statement"] == []
    assert [m.rule for m in found(problems[0], completes("a/3", "the sum of all xs"))] == ["same_statement"]


def test_short_statements_and_small_tests_are_shared_by_chance() -> None:
    one = stdin_problem("a/1", "See the picture.", [("1", "1"), ("2", "2")])
    other = stdin_problem("b/1", "See the picture.", [("5", "1")])
    third = stdin_problem("c/1", "Print what you read.", [("1", "1"), ("2", "2")])
    assert found(one, other, third) == []


def test_the_better_problem_is_kept_wherever_it_stands() -> None:
    statement = STORY.format(what="sum", bound=9)
    one_case: dict[str, Any] = {"cases": [("1", "1")]}
    qualities: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"cases": [("1", "1"), ("2", "2")]}, {"checker": True, "references": 2}),
        ({"checker": True}, {"references": 2}),
        ({"references": 1}, {}),
    ]
    for better, worse in qualities:
        first = stdin_problem("x/1", statement, **(one_case | worse))
        second = stdin_problem("y/1", statement, **(one_case | better))
        assert [(m.id, m.kept) for m in found(first, second)] == [("x/1", "y/1")]
        assert [(m.id, m.kept) for m in found(second, first)] == [("x/1", "y/1")]


def test_of_equal_ones_the_earlier_source_and_then_the_smaller_id_is_kept() -> None:
    z2, z1, a1 = (story(id) for id in ("z/2", "z/1", "a/1"))
    same = [stdin_problem(p.id, p.statement, [("1", "1")]) for p in (z2, z1, a1)]
    assert [(m.id, m.kept) for m in found(*same)] == [("z/2", "z/1"), ("a/1", "z/1")]


def test_similarity_is_not_carried_on_from_neighbour_to_neighbour() -> None:
    words = STORY.format(what="sum", bound=9).split()

    def changed(id: str, count: int, tests: int) -> Problem:
        text = " ".join([*(chr(97 + n) * 4 for n in range(count)), *words[count:]])
        return stdin_problem(id, text, [("1\n1", "1"), *((f"{id} {n}", "1") for n in range(tests))])

    best, middle, far = changed("a/1", 0, 9), changed("a/2", 4, 5), changed("a/3", 8, 1)
    assert [(m.id, m.kept) for m in found(middle, far)] == [("a/3", "a/2")]
    assert [(m.id, m.kept) for m in found(best, middle, far)] == [("a/2", "a/1")]


def test_a_copy_of_a_dropped_problem_is_dropped_with_it() -> None:
    cases = [(f"1\n{n}", str(n)) for n in range(6)]
    best = stdin_problem("a/1", STORY.format(what="sum", bound=9), [*cases, ("7", "7")])
    copy = stdin_problem("b/1", best.statement, cases)
    copy_of_copy = stdin_problem("c/1", "Something else entirely is written here, in other words.", cases)
    assert {(m.id, m.kept, m.rule) for m in found(copy, copy_of_copy, best)} == {
        ("b/1", "a/1", "same_statement"),
        ("c/1", "a/1", "same_tests"),
    }


def test_a_function_and_its_asserts_in_another_set_are_the_same_problem() -> None:
    cases = [CallCase(n * (n + 1) // 2, [n]) for n in range(9)]
    one = Problem("a/1", "Sum of the numbers up to n.", CallTests(cases, "total"), source="a")
    other = Problem("b/1", "Return the n-th triangular number.", CallTests(cases[::-1], "tri"), source="b")
    assert [(m.id, m.kept, m.rule) for m in found(one, other)] == [("b/1", "a/1", "same_tests")]


def test_the_step_drops_with_a_decision_for_each_and_keeps_the_rest(tmp_path: Path) -> None:
    source = tmp_path / "all.jsonl"
    problems = [story("a/1"), story("b/1"), story("c/1", "product"), story("d/1", bound=7)]
    problems[1] = stdin_problem("b/1", problems[0].statement, [("1\n3", "3")])
    write_problems(source, problems)
    matches = find_duplicates(lambda: open_problems(source), Deduplication())
    counts = transform(source, tmp_path / "out.jsonl", drop_duplicates(matches))
    assert (counts.read, counts.kept, counts.dropped) == (4, 3, 1)
    assert [p.id for p in open_problems(tmp_path / "out.jsonl")] == ["a/1", "c/1", "d/1"]
    decisions = {d.problem_id: d for d in read_decisions(tmp_path / "out.decisions.jsonl")}
    assert decisions["b/1"] == ProblemDecision(
        "b/1",
        "dedupe",
        "drop",
        "same_statement",
        "the statement of a/1, which is kept; similarity of the statements 1.00",
        "b",
    )
    assert decisions["c/1"].action == "mark"
    assert "a/1" in decisions["c/1"].detail


def test_no_shipped_problem_is_a_duplicate() -> None:
    matches = find_duplicates(lambda: open_problems("builtin:all"), Deduplication())
    assert [m for m in matches if m.rule != "similar_statement"] == []


def test_an_invalid_threshold_is_refused() -> None:
    for near in (0.0, 1.1, -1):
        with pytest.raises(ValidationError, match="near"):
            found(near=near)
