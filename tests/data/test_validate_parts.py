"""The parts of validation: words of statements, mutants, shared tests, limits, policies."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.clean_problems import SUM, SUM_CASES, problem, stdin
from whetstone.core.errors import UserError
from whetstone.core.problem import CallCase, CallTests, Limits, Problem, Program
from whetstone.core.verdict import CaseJudgement
from whetstone.data.builtin import shipped_problems
from whetstone.data.validate.cases import case_flags
from whetstone.data.validate.comparing import statement_flags
from whetstone.data.validate.mutants import OPERATORS, mutants
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.references import MOST_MEMORY_MB, Cost, cost_of, limits_for
from whetstone.data.validate.runs import Runs
from whetstone.data.validate.shared_tests import SharedTests
from whetstone.data.validate.strength import trivial_programs
from whetstone.data.validate.whole_set import ValidationTally
from whetstone.judge import Judgement, Verdict

POLICY = Policy()
LONG = "Given a tree with n vertices, colour its edges so that every path of two edges has two colours. "


def said(text: str, **fields: object) -> set[str]:
    return {flag.reason for flag in statement_flags(problem("p", text, stdin(("1", "1")), **fields))}


def test_a_statement_may_allow_more_than_its_tests_can_decide() -> None:
    for text, reason in (
        ("If there are multiple solutions, print any of them.", "several_answers"),
        ("This is an interactive problem.", "interactive_statement"),
        ("Don't forget to flush the output after each line.", "interactive_statement"),
        ("You can print each letter in any case (upper or lower).", "any_case"),
        ("Absolute or relative error of your answer should not exceed 10^{-4}.", "float_tolerance"),
        ("The tree is shown in the figure below.", "image_in_statement"),
        ("Each <image> is one of the four colours.", "image_in_statement"),
        ("See https://example.org/a/b.png for an example.", "image_in_statement"),
    ):
        assert said(LONG + text) == {reason}, text


def test_similar_sentences_of_a_statement_are_no_defect() -> None:
    for text in (
        "If there are multiple answers, print the lexicographically smallest one.",
        "This problem is not interactive.",
        "In any case, at most one of them is black.",
        "Your answer may have an absolute or relative error of at most 10^{-9}.",
        "Draw a straight flush from an interactive deck of cards.",
        "Figure out the figures: 1, 2 and 3.",
    ):
        assert said(LONG + text) == set(), text


EXAMPLES = {
    "boundary": "a < b",
    "comparison": "a == b",
    "operator": "a + b",
    "operands": "a - b",
    "constant": "f(7)",
    "index": "a[i]",
    "condition": "x = a and b",
    "statement": "while a:\n    a += b",
    "leaving": "for a in b:\n    f(a)",
    "call": "min(a, b)",
}


def test_every_kind_of_change_makes_a_mutant() -> None:
    assert EXAMPLES.keys() == OPERATORS.keys()
    for name, source in EXAMPLES.items():
        assert any(mutant.change.startswith(f"{name}, ") for mutant in mutants(source, 100, "")), name


REFERENCES = [p.references[0].source for p in shipped_problems("builtin:all")]


@given(st.sampled_from(REFERENCES), st.integers(0, 30), st.text(max_size=5))
def test_mutants_are_different_programs_and_the_same_for_a_seed(source: str, count: int, seed: str) -> None:
    made = [mutant.source for mutant in mutants(source, count, seed)]
    assert made == [mutant.source for mutant in mutants(source, count, seed)]
    assert len(made) <= count
    trees = {ast.dump(ast.parse(one)) for one in made}
    assert len(trees) == len(made)
    assert ast.dump(ast.parse(source)) not in trees


def test_code_that_decides_nothing_is_not_mutated() -> None:
    source = (
        'import sys\n"""n < 3"""\nsys.setrecursionlimit(10 ** 6)\nLARGE = 10 ** 9 + 1000003\n'
        "def f(n: 'int' = None) -> 'int':\n    '''1 + 2'''\n\nif __name__ == '__main__':\n    f(LARGE)\n"
    )
    kept = ("import sys", "n < 3", "setrecursionlimit(10 ** 6)", "1 + 2", "if __name__ == '__main__':")
    made = mutants(source, 100, "")
    assert made
    assert all(text in mutant.source for mutant in made for text in kept)


def test_text_that_cannot_be_parsed_has_no_mutants() -> None:
    for source in ("print 1", "", "x = 1" * 100_000, "(" * 5000, "\0"):
        assert mutants(source, 5, "") == []


def counted(problems: list[Problem]) -> SharedTests:
    shared = SharedTests()
    for one in problems:
        shared.add(one)
    return shared


def flagged(shared: SharedTests, problems: list[Problem]) -> list[str]:
    return [one.id for one in problems if list(shared.flags(one))]


EXTRA = [(f"{n} {n} {n} {n} {n}\n", f"extra {n}\n") for n in range(100, 112)]


def mixed_up(count: int, extra: int, source: str = "mixed") -> list[Problem]:
    own = [stdin((f"own {i} of {source}\n", f"{i}\n"), *EXTRA[:extra]) for i in range(count)]
    return [problem(f"{source}-{i}", LONG, tests, source=source) for i, tests in enumerate(own)]


def test_tests_that_many_unrelated_problems_share_are_seen() -> None:
    problems = [*mixed_up(30, 12), *mixed_up(30, 0, "good")]
    assert flagged(counted(problems), problems) == [f"made/mixed-{i}" for i in range(30)]


def test_few_problems_few_tests_and_short_tests_in_common_are_no_defect() -> None:
    groups = [mixed_up(5, 12), mixed_up(30, 2), [*mixed_up(6, 12), *mixed_up(194, 0)][::-1]]
    groups.append([problem(f"{i}", LONG, stdin(*SUM_CASES)) for i in range(50)])
    for problems in groups:
        distinct = [problem(f"{i}", LONG, one.tests, source="mixed") for i, one in enumerate(problems)]
        assert flagged(counted(distinct), distinct) == []


def test_equal_numbers_are_no_contradiction_and_a_checker_allows_any() -> None:
    calls = CallTests([CallCase(1, [2]), CallCase(1.0, [2]), CallCase(True, [2])], "f")
    reals = stdin(("1", "0.5"), ("1", "0.50"), ("1\r\n", "0.5"), ("1\n", "0.500"))
    for tests, count in ((calls, 2), (reals, 2)):
        flags = {flag.reason: flag.detail for flag in case_flags(problem("p", LONG, tests), POLICY)}
        assert "contradictory_tests" not in flags
        assert flags["duplicate_tests"].count(",") == count - 1


@given(st.floats(0.01, 100), st.floats(1, 10_000), st.floats(0, 1000), st.floats(0, 100_000))
def test_limits_are_raised_within_bounds_and_never_lowered(
    cpu_s: float, memory_mb: float, used_s: float, used_mb: float
) -> None:
    before = Limits(cpu_s, memory_mb)
    after = limits_for(before, Cost(used_s, used_mb), POLICY)
    assert before.cpu_s <= after.cpu_s <= max(before.cpu_s, POLICY.most_cpu_s)
    assert before.memory_mb <= after.memory_mb <= max(before.memory_mb, MOST_MEMORY_MB)
    rounded = 1 - 1e-9
    assert after.cpu_s >= rounded * min(4 * used_s, POLICY.most_cpu_s)
    assert after.memory_mb >= rounded * min(2 * used_mb, MOST_MEMORY_MB)


def test_cases_that_shared_a_process_count_as_their_sum() -> None:
    cases = [CaseJudgement(Verdict.ACCEPTED, cpu_s=0.5, peak_bytes=1 << 20) for _ in range(4)]
    alone = Judgement(Verdict.ACCEPTED, cases, 1.0, "root")
    shared = Judgement(Verdict.ACCEPTED, cases, 1.0, "root", shared_process=True)
    assert (cost_of([alone]), cost_of([alone, shared])) == (Cost(0.5, 1.0), Cost(2.0, 1.0))


class Failing:
    """A judge that fails so many times, and accepts then."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def judge(self, problem: Problem, program: Program, **wishes: object) -> Judgement:
        self.failures -= 1
        if self.failures >= 0:
            return Judgement(Verdict.JUDGE_ERROR, [], None, "root", "it failed")
        return Judgement(Verdict.ACCEPTED, [CaseJudgement(Verdict.ACCEPTED)], 1.0, "root")


def test_a_judge_that_fails_is_called_again() -> None:
    for failures, verdict in ((2, Verdict.ACCEPTED), (3, Verdict.JUDGE_ERROR)):
        runs = Runs(Failing(failures), 3)
        assert runs.run(problem("p", LONG, stdin(*SUM_CASES), SUM), Program("python", SUM)).verdict is verdict


def test_an_invalid_policy_is_refused() -> None:
    for values, words in (
        ({"fewest_test": 8}, "did you mean `fewest_tests`?"),
        ({"drop": ["flakey"]}, "unknown reason `flakey`; did you mean `flaky`?"),
        ({"drop": ["flaky"], "mark": ["flaky"]}, "mark flaky: drop has it too; name it once"),
        ({"repeats": 0}, "`repeats`: Input should be greater than or equal to 1"),
    ):
        with pytest.raises(UserError) as caught:
            Policy().with_values(**values)
        assert words in str(caught.value)


def test_trivial_programs_are_python_and_each_is_there_once() -> None:
    for one in shipped_problems("builtin:all"):
        sources = [trivial.program.source for trivial in trivial_programs(one)]
        assert len(sources) >= 2
        assert len(set(sources)) == len(sources)
        for source in sources:
            ast.parse(source)


def test_every_validation_counts_for_itself() -> None:
    first = ValidationTally()
    first.drops["wrong_test"] += 1
    first.marks["few_tests"] += 1
    assert (ValidationTally().drops, ValidationTally().marks) == ({}, {})
