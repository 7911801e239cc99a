"""``contamination``: what a benchmark holds is found by each rule, what only sounds like it stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Problem,
    Program,
    StdinCase,
    StdinTests,
    Tests,
)
from whetstone.data.benchmark_index import BenchmarkIndex
from whetstone.data.contamination import (
    Contamination,
    ContaminationMatch,
    Thresholds,
    drop_contaminated,
    find_contamination,
)
from whetstone.data.dataset import open_problems, transform
from whetstone.data.decisions import ProblemDecision, read_decisions
from whetstone.data.files import write_problems

DOCSTRING = (
    "Given a list of the heights of the towers of a harbour town, count how many towers see the morning sun "
    "first, which are those that are strictly taller than every tower that stands to the east of them."
)
SOLUTION = (
    "def sunny_towers(heights):\n    seen = 0\n    tallest = float('-inf')\n    for h in reversed(heights):\n"
    "        if h > tallest:\n            tallest = h\n            seen += 1\n    return seen\n"
)
OTHER_TESTS = StdinTests([StdinCase("1", "1")])
TARGET = Problem(
    "Towers/0",
    f'def sunny_towers(heights):\n    """ {DOCSTRING}\n    >>> sunny_towers([3, 1, 2])\n    2\n    """\n',
    AssertTests(
        check="def check(candidate):\n    assert candidate([3, 1, 2]) == 2\n    assert candidate([]) == 0\n"
        "    assert candidate([5, 5, 5]) == 1\n    assert candidate([4, 3, 2, 1]) == 4\n",
        entry_point="sunny_towers",
    ),
    references=[Program("python", SOLUTION)],
)
BOILERPLATE = "Write a function that takes a list of integers and returns the {} of the list."
BENCHMARK = [
    TARGET,
    *(
        Problem(
            f"Common/{n}", BOILERPLATE.format(word), CallTests([CallCase(n, [[n, n + 1]])], f"common_{n}")
        )
        for n, word in enumerate(["sum", "product", "mean", "median", "mode", "range", "maximum"])
    ),
]


def held(
    *problems: Problem, thresholds: Thresholds | None = None, benchmark: Sequence[Problem] = BENCHMARK
) -> Contamination:
    limits = thresholds or Thresholds()
    index = BenchmarkIndex(limits.ngram)
    index.add("bench", benchmark)
    return find_contamination(lambda: problems, index, limits)


def only(found: Contamination) -> ContaminationMatch:
    [match] = found.found.values()
    assert match.benchmark == "bench"
    return match


def task(statement: str, tests: Tests = OTHER_TESTS, *references: str) -> Problem:
    programs = [Program("python", source) for source in references]
    return Problem("set/1", statement, tests, references=programs, source="set")


CHANGED = " ".join("other" if n % 12 == 5 else word for n, word in enumerate(DOCSTRING.split()))
WITHIN = f"Solve this task in Python.\n\n{DOCSTRING}\n\nRead the heights from standard input, print it."
REWORDED = (
    "You are supplied an array of the heights of the towers in a harbour city. Tally the towers that are "
    "strictly taller than each tower standing east of them, and therefore spot the morning sun first."
)
TWO_CASES = ["assert sunny_towers([3,1,2]) == 2", "assert sunny_towers([5, 5, 5]) == 1"]
RENAMED = SOLUTION.replace("sunny_towers", "solve").replace("heights", "a").replace("tallest", "m")


def test_a_copy_is_found_by_the_rule_for_the_copied_part() -> None:
    for copy, rules, detail in (
        (task(TARGET.statement.replace("\n", "\r\n").replace("    ", "\t")), ["same_statement"], ""),
        (task(WITHIN), ["ngrams"], "runs of 8 words"),
        (task(CHANGED), ["ngrams", "similar_statement"], ""),
        (
            task("Wie viele Tuerme sehen die Sonne?", AssertTests(asserts=TWO_CASES)),
            ["same_tests"],
            "2 of 4 cases",
        ),
        (task("Other.", OTHER_TESTS, "print(0)", f"# mine\nimport sys\n{RENAMED}"), ["same_solution"], ""),
    ):
        match = only(held(copy))
        assert match.benchmark_id == "Towers/0"
        assert match.rule in rules
        assert detail in match.detail
    match = only(held(task(REWORDED), thresholds=Thresholds(overlap=1.0)))
    assert (match.benchmark_id, match.rule) == ("Towers/0", "reworded")


def test_few_cases_short_solutions_and_common_words_are_no_evidence() -> None:
    renamed = AssertTests(asserts=[line.replace("sunny_towers", "ramp") for line in TWO_CASES])
    assert held(task("Return the longest ramp.", renamed)).found == {}
    common = BOILERPLATE.format("variance") + " Use the unbiased estimate, and raise no error."
    assert held(task(common)).found == {}
    adds = [Program("python", "def add(a, b):\n return a + b")]
    short = Problem("B/0", "Add.", OTHER_TESTS, references=adds)
    mine = task("Sum of two.", CallTests([CallCase(3, [1, 2])], "f"), "def f(x, y):\n    return x + y\n")
    assert held(mine, benchmark=[short]).found == {}


def test_words_that_are_everywhere_in_the_set_convict_nobody() -> None:
    opening = "You are a careful engineer and will be paid by the number of tests that your program passes. "
    bench = Problem("B/1", opening + "Turn the matrix by ninety degrees.", OTHER_TESTS)
    tests = [StdinTests([StdinCase(str(n), str(n))]) for n in range(60)]
    problems = [
        Problem(f"set/{n}", f"{opening} Print item {n} of {'xyzuvw'[n % 6] * (n + 1)}.", tests[n])
        for n in range(60)
    ]
    assert held(*problems, benchmark=[bench]).found == {}
    assert [m.rule for m in held(problems[0], benchmark=[bench]).found.values()] == ["ngrams"]


def test_longer_runs_of_words_convict_less() -> None:
    usual = Thresholds(similar=1.0, reworded=2.0, together=9.0)
    strict = Thresholds(ngram=13, similar=1.0, reworded=2.0, together=9.0)
    assert [m.rule for m in held(task(CHANGED), thresholds=usual).found.values()] == ["ngrams"]
    assert held(task(CHANGED), thresholds=strict).found == {}


def test_near_misses_are_reported_the_nearest_first() -> None:
    words = DOCSTRING.split()
    half = " ".join(words[: len(words) // 2]) + " and then something of its own follows, in other words."
    third = " ".join(words[: len(words) // 3]) + " and then something of its own follows, in other words."
    problems = [Problem(f"set/{n}", text, OTHER_TESTS) for n, text in enumerate((third, half, "Unrelated."))]
    found = held(*problems, thresholds=Thresholds(overlap=0.9, reworded=2.0))
    assert found.found == {}
    assert [m.problem_id for m in found.near_misses] == ["set/1", "set/0"]
    assert all(m.measure < m.threshold for m in found.near_misses)


RARE_CASES = [([813, 77, 4096], 19), ([250, 31, 8], 731), ([66, 12], 905), ([401, 3, 58], 77)]


def asserting(name: str, cases: Sequence[tuple[list[int], int]]) -> AssertTests:
    return AssertTests(asserts=[f"assert {name}({given}) == {expected}" for given, expected in cases])


CARGO = Problem("B/0", "Weigh the cargo.", asserting("weigh_cargo", RARE_CASES))


def test_half_of_the_cases_are_found_under_another_name_story_and_kind() -> None:
    match = only(held(task("Ein Fischer zählt.", asserting("f", RARE_CASES[1:3])), benchmark=[CARGO]))
    assert (match.benchmark_id, match.rule) == ("B/0", "shared_cases")
    assert match.detail.startswith("2 of 4 cases, ")
    lines = [
        StdinCase(f"{len(given)}\n{' '.join(map(str, given))}\n", f"{expected}\n")
        for given, expected in reversed(RARE_CASES)
    ]
    assert only(held(task("Read and print.", StdinTests(lines)), benchmark=[CARGO])).rule == "shared_cases"


ANSWERS = {7: True, 12: False, 33: True, 9: True}
PALINDROME = Problem(
    "Palindrome/0",
    "Say whether the digits of a number read alike from both ends.",
    AssertTests(asserts=[f"assert same({n}) == {answer}" for n, answer in ANSWERS.items()]),
)
UNIT_TEST = """
import unittest
class Test(unittest.TestCase):
    def test(self):
        self.assertTrue(mirror(7))
        self.assertFalse(mirror(12))
        self.assertEqual(mirror(33), True)
        self.assertEqual(True, mirror(9))
"""


def test_most_of_the_cases_convict_however_little_each_says() -> None:
    three_and_another = CallTests([CallCase(n != 12, [n]) for n in (7, 12, 33, 44)], "f")
    three = StdinTests([StdinCase("12", "no"), StdinCase("33", "yes"), StdinCase("9", "yes")])
    for tests in (three_and_another, three, AssertTests(unittest=UNIT_TEST)):
        found = only(held(task("A lighthouse keeper asks for a lamp.", tests), benchmark=[PALINDROME]))
        assert (found.benchmark_id, found.rule) == ("Palindrome/0", "shared_cases")


def test_few_of_many_cases_that_say_little_convict_nobody() -> None:
    cases = [CallCase(True, [7]), CallCase(False, [12]), CallCase(True, [33])]
    others = [CallCase(n % 2 == 0, [n]) for n in range(100, 105)]
    found = held(task("Whether a year is dry.", CallTests([*cases, *others], "dry")), benchmark=[PALINDROME])
    assert not found.found
    twice = [CallCase(True, [7])] * 3
    assert not held(task("Whether a year is dry.", CallTests(twice, "dry")), benchmark=[PALINDROME]).found


def test_one_case_of_many_and_cases_that_any_problem_has_are_no_evidence() -> None:
    mine = asserting("f", [RARE_CASES[0], ([1], 1), ([2], 4), ([3], 9)])
    assert held(task("Something else.", mine), benchmark=[CARGO]).found == {}
    small = [([1, 2, 3], 3), ([1], 1), ([2, 2], 2)]
    original = Problem("B/0", "Weigh the cargo.", asserting("weigh_cargo", small))
    assert held(task("Length of a list.", asserting("f", small[:2])), benchmark=[original]).found == {}


def test_a_short_solution_convicts_where_the_statement_agrees() -> None:
    source = "def ferry(tons, fee):\n    total = tons * fee + 7\n    return total\n"
    original = Problem(
        "B/0",
        "What does the ferry to the island cost for a freight of so many tons at that fee for each ton?",
        CallTests([CallCase(19, [3, 4])], "ferry_cost"),
        references=[Program("python", source)],
    )
    copied = source.replace("ferry", "solve").replace("tons", "a").replace("fee", "b").replace("total", "c")
    near = (
        "Cost of the ferry to the island: the freight is in tons, and a fee is paid besides the seven coins."
    )
    found = held(task(near, OTHER_TESTS, copied), benchmark=[original])
    assert only(found).rule == "together"
    assert "likeness" in only(found).detail
    assert "the solution, names aside" in only(found).detail
    assert held(task("Something else.", OTHER_TESTS, copied), benchmark=[original]).found == {}
    assert held(task(near), benchmark=[original]).found == {}


def test_the_step_says_which_problem_which_rule_and_how_much(tmp_path: Path) -> None:
    source = tmp_path / "set.jsonl"
    write_problems(source, [task(DOCSTRING), Problem("set/2", "Unrelated.", OTHER_TESTS)])
    found = held(*open_problems(source))
    counts = transform(source, tmp_path / "out.jsonl", drop_contaminated(found.found))
    assert (counts.kept, counts.dropped) == (1, 1)
    assert list(read_decisions(tmp_path / "out.decisions.jsonl")) == [
        ProblemDecision(
            "set/1",
            "decontaminate",
            "drop",
            "contaminated",
            "bench Towers/0, ngrams: 32 of 32 runs of 8 words (1.00)",
            "set",
        )
    ]


def test_a_clean_set_loses_nothing() -> None:
    index = BenchmarkIndex(8)
    index.add("bench", BENCHMARK)
    found = find_contamination(lambda: open_problems("builtin:all"), index, Thresholds())
    assert found.found == {}
    assert found.checked > 600


def test_invalid_thresholds_are_refused() -> None:
    invalid: list[dict[str, Any]] = [{"ngram": 3}, {"overlap": 0.0}, {"similar": 1.2}, {"reworded": 0.0}]
    invalid.append({"together": float("nan")})
    for options in invalid:
        with pytest.raises(ValidationError, match=next(iter(options))):
            Thresholds(**options)


def test_a_benchmark_without_problems_is_refused() -> None:
    with pytest.raises(UserError, match="--against empty: contains no problems"):
        BenchmarkIndex(8).add("empty", [])
