"""Call tests of datasets: the comparison that the statement names, nodes, and results in an argument."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from whetstone.core.problem import CallCase, CallTests, Compare, Problem, Program
from whetstone.data.sources.source import import_rows
from whetstone.data.sources.table import source_named
from whetstone.data.validate.comparing import with_stated_comparison
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.runs import Runs
from whetstone.data.validate.validator import Validator
from whetstone.judge import Judge

STORY = "You are given a list of numbers. "


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1) as judge:
        yield judge


def called(statement: str, *expected: Any, references: tuple[str, ...] = ()) -> Problem:
    cases = [CallCase(expected=value, args=[number]) for number, value in enumerate(expected)]
    programs = [Program("python", source) for source in references]
    return Problem("t/called", statement, CallTests(cases, function="f"), references=programs)


@pytest.mark.parametrize(
    ("sentence", "expected", "compare"),
    [
        ("You may return the answer in any order.", [1, 2], Compare("values", order="any")),
        ("Return the answer in **any order**.", [[1], [2]], Compare("values", order="any")),
        ("The order of the output does not matter.", ["a", "b"], Compare("values", order="any")),
        ("Answers within 10^-5 of the actual answer will be accepted.", 2.5, Compare("values", abs=1e-5)),
        ("Answers within `10-5` of the actual answer will be accepted.", [2.5], Compare("values", abs=1e-5)),
        (
            "Return the area with an absolute or relative error of at most 10^-6.",
            2.5,
            Compare("values", abs=1e-6, rel=1e-6),
        ),
        ("Print the word in any case.", "Left", Compare("values", any_case=True)),
        ("Return the answer in any order.", 3, Compare()),
        ("The numbers are given in any order. Sort them.", [1, 2], Compare()),
        ("Answers within 10^-5 of the actual answer will be accepted.", [2, 2.5], Compare()),
    ],
)
def test_the_statement_sets_the_comparison_of_values(sentence: str, expected: Any, compare: Compare) -> None:
    changed, flag = with_stated_comparison(called(STORY + sentence, expected))
    assert changed.compare == compare
    assert (flag is not None) == (compare != Compare())


def validated(judge: Judge, problem: Problem) -> tuple[Compare | None, dict[str, str]]:
    outcome = Validator(Runs(judge, 1), Policy(mutants=0, repeats=1)).validate(problem)
    return outcome.compare, {flag.reason: flag.detail for flag in outcome.flags}


@pytest.mark.process
def test_disagreeing_references_set_the_comparison_under_which_they_agree(judge: Judge) -> None:
    rows = [[[n, 1], [2, n]] for n in range(6)]
    given = "def f(n): return [[n, 1], [2, n]]"
    turned = "def f(n): return [[n, 1], [2, n]] if n < 3 else [[2, n], [n, 1]]"
    swapped = "def f(n): return [[n, 1], [2, n]] if n < 3 else [[2, n], [1, n]]"
    compare, flags = validated(judge, called(STORY, *rows, references=(given, turned, turned)))
    assert compare == Compare("values", order="any")
    assert "3 references then agree" in flags["comparison_set"]
    assert "several_answers" not in flags
    assert validated(judge, called(STORY, *rows, references=(given, swapped, turned)))[0] == Compare(
        "values", order="all"
    )
    # With the sentence, one reference is enough.
    stated = STORY + "Return the rows in any order."
    assert validated(judge, called(stated, *rows, references=(swapped,)))[0] == Compare("values", order="all")
    # Numbers that differ are wrong answers under every comparison.
    wrong = "def f(n): return [[n, 1], [2, n]] if n < 3 else [[n, 2], [2, n]]"
    assert validated(judge, called(STORY, *rows, references=(given, wrong, wrong)))[0] is None


LEETCODE = {
    "task_id": "t",
    "prompt": "from typing import *",
    "entry_point": "Solution().f",
    "problem_description": "Return the nodes.",
    "starter_code": "class Solution:\n    def f(self, head):\n        ",
    "completion": "class Solution:\n    def f(self, head):\n        return head\n",
}
LIVECODEBENCH = {
    "question_title": "t",
    "question_id": "t",
    "platform": "leetcode",
    "contest_id": "c",
    "contest_date": "2024-01-01",
    "difficulty": "easy",
    "private_test_cases": "[]",
    "metadata": '{"func_name": "f"}',
}


def imported(name: str, row: dict[str, Any]) -> Problem:
    found = list(import_rows(source_named(name), [("row 1", row)]))
    assert isinstance(found[0], Problem), found
    return found[0]


@pytest.mark.parametrize(
    ("asserts", "nodes"),
    [
        (
            [
                "is_same_list(candidate(head = list_node([1, 2])), list_node([1, 2]))",
                "candidate(head = None) == None",
            ],
            {"head": "ListNode", "return": "ListNode"},
        ),
        (["candidate(head = tree_node([1, None, 2])) == [[1], [2]]"], {"head": "TreeNode"}),
        (["candidate(head = [list_node([1]), list_node([2])]) == 3"], {"head": "list[ListNode]"}),
    ],
)
def test_asserts_on_nodes_become_call_tests(asserts: list[str], nodes: dict[str, str]) -> None:
    test = "def check(candidate):\n" + "".join(f"    assert {line}\n" for line in asserts)
    tests = imported("leetcode", LEETCODE | {"test": test}).tests
    assert isinstance(tests, CallTests)
    assert tests.nodes == nodes


@pytest.mark.process
@pytest.mark.parametrize(
    ("statement", "starter", "given", "wanted", "program"),
    [
        ("Sort nums in place.", "self, nums: List[int]) -> None", "[3, 1]", "[1, 3]", "nums.sort()"),
        (
            "Turn the list.",
            "self, head: Optional[ListNode]) -> Optional[ListNode]",
            "[1, 2]",
            "[2, 1]",
            "return ListNode(head.next.val, ListNode(head.val))",
        ),
        (
            "Return all in any order.",
            "self, nums: List[int]) -> List[int]",
            "[3, 1]",
            "[1, 3]",
            "return nums",
        ),
        (
            "Answers within 10^-5 of the actual answer are accepted.",
            "self, n: int) -> float",
            "2",
            "1.41421",
            "return n ** 0.5",
        ),
    ],
)
def test_problems_of_livecodebench_accept_every_answer_of_their_statements(
    judge: Judge, statement: str, starter: str, given: str, wanted: str, program: str
) -> None:
    head = f"class Solution:\n    def f({starter}:\n        "
    tests = [{"input": given, "output": wanted, "testtype": "functional"}]
    row = LIVECODEBENCH | {"starter_code": head, "public_test_cases": json.dumps(tests)}
    problem = imported("livecodebench", row | {"question_content": statement})
    assert judge.judge(problem, Program("python", head + program)).accepted
    assert not judge.judge(problem, Program("python", head + "return [0]")).accepted
