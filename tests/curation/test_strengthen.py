"""New tests refuse wrong programs that the old ones accept, and no right one; an interrupted run resumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Problem,
    Program,
    StdinCase,
    StdinTests,
    case_count,
)
from whetstone.data.card import read_card
from whetstone.data.dataset import load_problems
from whetstone.data.decisions import read_decisions
from whetstone.data.files import write_problems
from whetstone.data.validate.runs import Runs
from whetstone.judge import Judge
from whetstone_curation.audit.labelled_programs import GivenPrograms
from whetstone_curation.strengthen.answers import Answers
from whetstone_curation.strengthen.asserts import read_asserts, with_asserts, written_assert
from whetstone_curation.strengthen.choice import CandidateTest, affordable
from whetstone_curation.strengthen.evidence import evidence_of
from whetstone_curation.strengthen.forms import AddedTests, LabelledInput, with_added
from whetstone_curation.strengthen.lines import layout_of
from whetstone_curation.strengthen.strengthener import Effort, Strengthener, StrengthenOutcome
from whetstone_curation.strengthen.whole_set import journal_path, strengthen_set

EFFORT = Effort(inputs=40, mutants=12, tests=12)

LARGEST = Problem(
    "stdin/largest",
    "The first line has n (1 <= n <= 100), the second n integers. Print the largest.",
    StdinTests(
        [StdinCase("3\n1 5 2\n", "5\n"), StdinCase("4\n7 1 9 3\n", "9\n"), StdinCase("2\n4 -6\n", "4\n")]
    ),
    references=[Program("python", "input()\nprint(max(map(int, input().split())))\n")],
    wrong=[Program("python", "input()\nprint(max(0, *map(int, input().split()[:4])))\n")],
)
DISTINCT = Problem(
    "call/distinct",
    "How many different numbers are in the list?",
    CallTests([CallCase(3, [[1, 2, 3]]), CallCase(2, [[-4, 7]]), CallCase(0, [[]])], "distinct"),
    references=[Program("python", "def distinct(xs):\n    return len(set(xs))\n")],
    wrong=[Program("python", "def distinct(xs):\n    return len(xs)\n")],
)
CHECK = """METADATA = {}


def check(candidate):
    assert candidate("abc") == "cba"
    assert candidate("Hello") == "olleH"
"""
REVERSED = Problem(
    "assert/reversed",
    "Return the text backwards.",
    AssertTests(check=CHECK, entry_point="backwards"),
    references=[Program("python", "def backwards(text):\n    return text[::-1]\n")],
    wrong=[Program("python", "def backwards(text):\n    return text[4::-1]\n")],
)
MEANS = Problem(
    "assert/mean",
    "The mean of a list of numbers.",
    AssertTests(
        asserts=["assert mean([2, 4]) == 3.0", "assert mean([1, 2]) == 1.5", "assert mean([5]) == 5"]
    ),
    references=[Program("python", "def mean(xs):\n    return sum(xs) / len(xs)\n")],
    wrong=[Program("python", "def mean(xs):\n    return (xs[0] + xs[-1]) / 2\n")],
)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Judge(workers=1) as judge:
        yield Runs(judge, 3)


@pytest.fixture(scope="module")
def strengthener(runs: Runs) -> Iterator[Strengthener]:
    with Answers() as answers:
        yield Strengthener(runs, answers, EFFORT)


@pytest.mark.drawn(2)
@pytest.mark.process
@pytest.mark.parametrize("problem", [LARGEST, DISTINCT, REVERSED, MEANS], ids=lambda p: p.id)
def test_a_wrong_program_that_was_accepted_is_rejected_and_the_right_one_is_not(
    problem: Problem, runs: Runs, strengthener: Strengthener
) -> None:
    assert runs.run(problem, problem.wrong[0]).accepted
    made = strengthener.strengthen(problem)
    stronger = with_added(problem, made.added)
    assert not runs.run(stronger, problem.wrong[0]).accepted
    assert runs.run(stronger, problem.references[0]).accepted
    assert made.evidence is not None
    assert made.evidence.wrong == (1, 0, 1)
    assert 0 < made.added.count == made.evidence.added == len(made.evidence.why) <= EFFORT.tests
    assert (
        isinstance(problem.tests, AssertTests)
        or case_count(stronger) == case_count(problem) + made.added.count
    )
    # Another right program, which adds up in another order.
    if problem is MEANS:
        other = "def mean(xs):\n    return sum(x / len(xs) for x in reversed(xs))\n"
        assert runs.run(stronger, Program("python", other)).accepted


@pytest.mark.extended
@pytest.mark.process
def test_inputs_without_one_answer_of_all_references_are_no_tests(strengthener: Strengthener) -> None:
    plain = "def half(n):\n    return n // 2\n"
    other = "def half(n):\n    assert n < 25\n    return n // 2 + (n % 5 == 1 and n > 8)\n"
    cases = [CallCase(n // 2, [n]) for n in (4, 7, 13, 20)]
    problem = Problem("two", "Half of n.", CallTests(cases, "half"), references=[Program("python", plain)])
    alone = strengthener.strengthen(problem)
    asked = {case.args[0] for case in alone.added.call}
    assert any(n >= 25 or (n % 5 == 1 and n > 8) for n in asked)
    both = Problem(
        "two",
        "Half of n.",
        CallTests(cases, "half"),
        references=[Program("python", plain), Program("python", other)],
    )
    made = strengthener.strengthen(both)
    assert made.evidence is not None
    assert made.evidence.references == 2
    assert made.evidence.invalid > 0
    assert all(n < 25 and (n % 5 != 1 or n <= 8) for n in (case.args[0] for case in made.added.call))


@pytest.mark.process
def test_asserts_of_truth_are_made_for_answers_that_are_no_plain_values(
    runs: Runs, strengthener: Strengthener
) -> None:
    asserts = ["assert not has_b('ac')", "assert has_b('abbba')", "assert has_b('cab')"]
    problem = Problem(
        "truth",
        "Whether a text has an a followed by a b.",
        AssertTests(asserts=asserts),
        references=[Program("python", "import re\ndef has_b(text):\n    return re.search('ab', text)\n")],
    )
    lines = strengthener.strengthen(problem).added.asserts
    assert {line.startswith("assert not ") for line in lines} == {True, False}


@pytest.mark.process
def test_inputs_that_a_check_computes_are_recorded(runs: Runs, strengthener: Strengthener) -> None:
    check = (
        "def check(candidate):\n    for size in range(5, 9):\n        items = [size, 9 - size]\n"
        "        assert candidate(items) == sum(items)\n"
    )
    problem = Problem(
        "loop",
        "The sum of a list.",
        AssertTests(check=check, entry_point="total"),
        references=[Program("python", "def total(items):\n    return sum(items)\n")],
        wrong=[Program("python", "def total(items):\n    return sum(set(items))\n")],
    )
    assert runs.run(problem, problem.wrong[0]).accepted
    stronger = with_added(problem, strengthener.strengthen(problem).added)
    assert not runs.run(stronger, problem.wrong[0]).accepted
    assert runs.run(stronger, problem.references[0]).accepted


@pytest.mark.process
def test_an_empty_input_is_a_test_only_if_given_inputs_or_mutants_need_it(strengthener: Strengthener) -> None:
    def empties(source: str, cases: list[CallCase]) -> int:
        tests = CallTests(cases, "first")
        made = strengthener.strengthen(
            Problem("e", "The first.", tests, references=[Program("python", source)])
        )
        return sum(not case.args[0] for case in made.added.call)

    cases = [CallCase(xs[0], [xs]) for xs in ([3, 1], [2, 2, 5], [7], [9, 4, 4, 8])]
    assert empties("def first(xs):\n    return sum(xs[:1])\n", cases) == 0
    assert empties("def first(xs):\n    if not xs:\n        return 0\n    return xs[0]\n", cases) == 1
    # Without its first statement the reference fails on an empty list.
    assert empties("def first(xs):\n    if not xs:\n        return xs\n    return xs[0]\n", cases) == 1


@pytest.mark.extended
@pytest.mark.process
def test_marks_are_inputs_only_if_the_reference_has_code_for_them(strengthener: Strengthener) -> None:
    keep = "def f(text):\n    made = ''\n    for c in text:\n        {}\n    return made\n"
    handled = keep.format(
        "if c in 'abcdefghijklmnopqrstuvwxyz':\n            made += chr((ord(c) - 93) % 26 + 97)\n"
        "        else:\n            made += c"
    )
    plain = keep.format("made += chr((ord(c) - 93) % 26 + 97)")
    for source, expected in ((handled, True), (plain, False)):
        problem = Problem(
            "call/shifted",
            "Shift each letter by four.",
            CallTests([CallCase("ewhjklnop", ["asdfghjkl"]), CallCase("kj", ["gf"])], "f"),
            references=[Program("python", source)],
        )
        added = strengthener.strengthen(problem).added.call
        assert any(set(case.args[0]) & {*"0123456789.,-!?"} for case in added) == expected


def test_a_slow_reference_gets_fewer_candidates_of_every_kind() -> None:
    case = LabelledInput([1], 2, AddedTests(call=[CallCase(2, [1])]))
    fast = [CandidateTest(case, 0.01) for _ in range(900)]
    assert affordable(fast) == fast
    slow = [CandidateTest(case, 0.06, wide=number >= 300) for number in range(400)]
    kept = affordable(slow)
    assert 0 < sum(each.cpu_s for each in kept) < 3
    assert {each.wide for each in kept} == {False, True}


@pytest.mark.process
def test_an_input_with_a_tie_is_no_test(strengthener: Strengthener) -> None:
    """The number that occurs most often: several may do so, and the given lists have one."""
    source = "def most(xs):\n    return max(xs, key=xs.count)\n"
    given_lists = [[4, 4, 1], [2, 7, 7, 3], [5, 1, 5], [9, 3, 9, 3, 9], [8, 6, 6]]
    cases = [CallCase(max(xs, key=xs.count), [xs]) for xs in given_lists]
    tests = CallTests(cases, "most")
    made = strengthener.strengthen(
        Problem("t", "The most frequent.", tests, references=[Program("python", source)])
    )
    assert made.added.call
    for [xs] in (case.args for case in made.added.call):
        assert max(xs, key=xs.count) == max(sorted(xs), key=xs.count) == max(xs[::-1], key=xs.count)


HALVES = Problem(
    "halves",
    "Half of n.",
    CallTests([CallCase(n // 2, [n]) for n in (4, 7, 13, 20)], "half"),
    references=[Program("python", "def half(n):\n    return n // 2\n")],
)
STRICT = "def half(n):\n    assert n < 25\n    return n // 2\n"
WRONG = "def half(n):\n    assert n < 25\n    return n // 2 + (n % 5 == 1 and n > 8)\n"


@pytest.mark.process
def test_samples_vote_on_inputs_and_those_that_most_contradict_are_rejected(
    runs: Runs, strengthener: Strengthener
) -> None:
    samples = [Program("python", STRICT + "#" * number) for number in range(3)]
    programs = GivenPrograms(
        [], [], [*samples, Program("python", WRONG), Program("python", "def half(n): 1")]
    )
    made = strengthener.strengthen(HALVES, programs=programs)
    assert made.evidence is not None
    assert made.evidence.samples == 4  # the tests reject the fifth
    assert made.evidence.disputed > 0
    stronger = with_added(HALVES, made.added)
    assert runs.run(stronger, samples[0]).accepted
    assert not runs.run(stronger, Program("python", WRONG)).accepted


@pytest.mark.process
def test_a_quarter_of_the_samples_refuses_inputs_of_a_kind_that_is_not_given(
    runs: Runs, strengthener: Strengthener
) -> None:
    natural = "def half(n):\n    assert n >= 0\n    return n // 2\n"
    samples = [Program("python", f"def half(n): return n // 2#{number}") for number in range(4)]
    refusing = [Program("python", natural + "#" * number) for number in range(2)]
    made = strengthener.strengthen(HALVES, programs=GivenPrograms([], [], [*samples, *refusing]))
    assert made.evidence is not None
    assert made.evidence.disputed > 0
    assert runs.run(with_added(HALVES, made.added), refusing[0]).accepted


@pytest.mark.process
def test_correct_programs_pass_every_new_test_and_wrong_ones_are_rejected(
    runs: Runs, strengthener: Strengthener
) -> None:
    programs = GivenPrograms([Program("python", STRICT)], [Program("python", WRONG)], [])
    made = strengthener.strengthen(HALVES, programs=programs)
    assert made.evidence is not None
    assert (made.evidence.references, made.evidence.wrong) == (2, (1, 0, 1))
    stronger = with_added(HALVES, made.added)
    assert runs.run(stronger, programs.correct[0]).accepted
    assert not runs.run(stronger, programs.wrong[0]).accepted


@pytest.mark.process
def test_new_inputs_are_accepted_by_the_validator(strengthener: Strengthener) -> None:
    stdin = "n = int(input())\nassert n == len(input().split()) and n % 2 == 0\n"
    call = "def valid(xs):\n    return len(xs) % 2 == 0\n"
    even = [
        StdinCase("2\n1 2\n", "2\n"),
        StdinCase("4\n1 9 3 2\n", "9\n"),
        StdinCase("6\n4 6 1 2 3 3\n", "6\n"),
    ]
    by_program = Problem("v1", "", StdinTests(even), references=LARGEST.references,
                         meta={"input_validator": {"language": "python", "source": stdin}})  # fmt: skip
    tests = CallTests([CallCase(2, [[1, 2]]), CallCase(4, [[1, 2, 3, 4]]), CallCase(0, [[]])], "distinct")
    by_function = Problem("v2", "", tests, references=DISTINCT.references,
                          meta={"input_validator": {"language": "python", "source": call}})  # fmt: skip
    one, other = strengthener.strengthen(by_program), strengthener.strengthen(by_function)
    assert one.added.stdin
    assert all(int(case.input.split()[0]) % 2 == 0 for case in one.added.stdin)
    assert other.added.call
    assert all(len(case.args[0]) % 2 == 0 for case in other.added.call)


@pytest.mark.process
def test_an_input_is_valid_with_the_arguments_of_one_group(strengthener: Strengthener) -> None:
    source = "import sys\nleast, most = map(int, sys.argv[1:])\nassert least <= int(input()) <= most\n"
    validator = {"language": "python", "source": source, "arguments": [["50", "60"], ["1", "9"]]}
    cases = [StdinCase(f"{n}\n", f"{2 * n}\n") for n in (2, 7, 54)]
    doubling = Problem(
        "doubling",
        "",
        StdinTests(cases),
        references=[Program("python", "print(2 * int(input()))")],
        meta={"input_validator": validator},
    )
    numbers = {int(case.input) for case in strengthener.strengthen(doubling).added.stdin}
    assert numbers & {*range(1, 10)}
    assert numbers & {*range(50, 61)}
    assert numbers <= {*range(1, 10), *range(50, 61)}
    without = {**validator, "arguments": [["1", "9"]]}
    misread = strengthener.strengthen(msgspec.structs.replace(doubling, meta={"input_validator": without}))
    assert untouched(misread) == "validator_fails"
    assert "rejects 1 of 3 given inputs" in misread.detail


def untouched(made: StrengthenOutcome) -> str:
    assert made.evidence is None
    assert made.added.count == 0
    return made.reason


@pytest.mark.process
def test_problems_with_several_answers_or_no_reference_stay_as_they_are(strengthener: Strengthener) -> None:
    several = Problem(
        "s", "Print any permutation of the numbers.", LARGEST.tests, references=LARGEST.references
    )
    assert untouched(strengthener.strengthen(several)) == "several_answers"
    marked = Problem("m", "", LARGEST.tests, references=LARGEST.references,
                     meta={"validation": {"flags": {"several_answers": "by references"}}})  # fmt: skip
    assert untouched(strengthener.strengthen(marked)) == "several_answers"
    wrong = Problem("w", "", LARGEST.tests, references=[Program("python", "print(5)\n")])
    assert untouched(strengthener.strengthen(wrong)) == "no_reference"
    unread = Problem("u", "", AssertTests(unittest="import unittest\n"), references=LARGEST.references)
    assert untouched(strengthener.strengthen(unread)) == "tests_not_read"


@pytest.mark.process
def test_a_list_that_was_a_set_is_no_answer(strengthener: Strengthener) -> None:
    source = "def words(text):\n    return list(set(text.split()))\n"
    tests = CallTests([CallCase(["a"], ["a a"]), CallCase(["bc"], ["bc"]), CallCase([], [""])], "words")
    made = strengthener.strengthen(Problem("sets", "", tests, references=[Program("python", source)]))
    assert all(len(case.expected) < 2 or case.expected == sorted(case.expected) for case in made.added.call)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["3\n1 2 3\n", "1\n9\n"], [[1, 2, 3]]),
        (["2 3\n1 2 3\n4 5 6\n", "1 2\n7 8\n"], [[[1, 2, 3], [4, 5, 6]]]),
        (["2\n3\n1 2 3\n1\n5\n", "1\n2\n9 9\n"], [[([1, 2, 3],), ([5],)]]),
        (["3\na 1\nb 2\nc 3\n", "1\nz 9\n"], [[("a", 1), ("b", 2), ("c", 3)]]),
        (["4 2\n1 2\n3 4\n", "3 1\n2 3\n"], [4, [(1, 2), (3, 4)]]),
        (["3 3\n#.#\n...\n###\n", "2 4\n....\n#.#.\n"], [["#.#", "...", "###"]]),
        (["hello world\n", "a b c\n"], ["hello world"]),
    ],
)
def test_lengths_are_left_out_of_an_input_and_written_again(texts: list[str], values: list[object]) -> None:
    layout = layout_of(texts)
    assert layout is not None
    assert layout.read(texts[0]) == values
    assert [layout.write(layout.read(text)) for text in texts] == texts


def test_no_layout_that_loses_tokens_is_accepted() -> None:
    assert layout_of(["2\n1 2 3\n", "7\n1\n2\n3\n"]) is None
    lead = layout_of(["007 1\n", "1 2\n"])
    assert lead is None or lead.write(lead.read("007 1\n")).split() == ["007", "1"]


@pytest.mark.parametrize(
    ("there", "value", "written"),
    [
        ("assert f(1) == 2", 5, "assert f(7) == 5"),
        ("assert f(1) is True", False, "assert f(7) is False"),
        ("assert not f(1)", True, "assert f(7)"),
        ("assert set(f(1)) == {2}", {3}, "assert set(f(7)) == {3}"),
        ("assert abs(f(1) - 2.5) < 1e-6", 4, "assert math.isclose(f(7), 4, rel_tol=1e-06, abs_tol=1e-06)"),
        ("assert math.isclose(f(1), 2.5, rel_tol=0.01)", 4.0, "assert math.isclose(f(7), 4.0, rel_tol=0.01)"),
        ("assert f(1) == 2", 0.1, "assert math.isclose(f(7), 0.1, rel_tol=1e-06, abs_tol=1e-06)"),
        ("assert f(1) == 2", float("nan"), None),
        ("assert f(1) == 2", {"a": [0.5]}, None),
    ],
)
def test_a_new_assert_compares_as_those_that_are_there(
    there: str, value: object, written: str | None
) -> None:
    found = read_asserts(AssertTests(asserts=[there]), "f")
    assert found is not None
    assert found[1] == [[1]]
    assert written_assert(found[0], [7], value) == written


def test_new_asserts_stand_at_the_end_of_check() -> None:
    assert isinstance(REVERSED.tests, AssertTests)
    code = with_asserts(REVERSED.tests, ["assert math.isclose(candidate('x'), 1.0)"]).check or ""
    assert code.startswith("import math\nMETADATA")
    assert code.rstrip().endswith("== \"olleH\"\n    assert math.isclose(candidate('x'), 1.0)")


@pytest.mark.extended
@pytest.mark.process
def test_the_decisions_and_the_card_of_a_set_describe_its_new_tests(tmp_path: Path) -> None:
    problems = [
        Problem(f"p/{n}", "", CallTests([CallCase(n + 1, [1]), CallCase(n + 2, [2])], "add"),
                references=[Program("python", f"def add(x):\n    return x + {n}\n")])
        for n in range(3)
    ]  # fmt: skip
    problems.append(Problem("p/none", "", LARGEST.tests))
    source, out = tmp_path / "raw.jsonl", tmp_path / "strong"
    write_problems(source, problems)
    effort = Effort(inputs=30, mutants=6, tests=6)
    with Judge(workers=1) as judge:
        tally = strengthen_set(source, out, judge, effort, len(problems), workers=1)
    assert (tally.problems, tally.stronger) == (4, 3)
    assert not journal_path(out).exists()
    made = load_problems(out)
    assert [problem.id for problem in made] == [problem.id for problem in problems]
    card = read_card(out)
    assert card is not None
    assert len(card.strengthened) == sum(evidence_of(problem) is not None for problem in made) == 3
    decisions = {d.problem_id: d.reason for d in read_decisions(out / "decisions.jsonl")}
    assert decisions == {"p/none": "no_reference"} | {f"p/{n}": "strengthened" for n in range(3)}
