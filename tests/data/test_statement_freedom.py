"""What a statement leaves to the program is read in it, its comparison is set, and the rest is not kept."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.clean_problems import SUM, SUM_CASES, problem, stdin
from whetstone.core.problem import Compare, Problem, Program, PythonChecker, StdinTests
from whetstone.data.validate.comparing import freedom_of, with_stated_comparison
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.references import reference_flags, try_references
from whetstone.data.validate.runs import Runs
from whetstone.data.validate.validator import Validator, settle
from whetstone.judge import Judge, Verdict
from whetstone.judge.answers.text import compare

STORY = (
    "A gardener plants n trees in a row; the i-th of them has the height h_i, and she looks at all of them. "
)
REALS = stdin(*[(f"{n}\n", f"{n / 7:.6f}\n") for n in range(1, 8)])
WORDS = stdin(*[(f"{n}\n", "YES\n" if n % 2 else "NO\n") for n in range(1, 8)])
DIRECTIONS = stdin(*[(f"{n}\n", "Left\n" if n % 2 else "Right\n") for n in range(1, 8)])
COUNTS = stdin(("1", "200 0.5"), ("2", "300 0.25"))
LETTERS = stdin(*[(f"{n}\n", "aBc\n" if n % 2 else "abC\n") for n in range(1, 8)])
POLICY = Policy()
SENTENCES = tomllib.loads(
    (Path(__file__).parent / "fixtures" / "statement_sentences.toml").read_text("utf-8")
)
SEVERAL, ANY_CASE = SENTENCES["several"], SENTENCES["any_case"]
TOLERANT = [each["sentence"] for each in SENTENCES["tolerance"]]


def test_sentences_that_allow_several_answers_any_case_or_an_error_are_recognised() -> None:
    def recognised(kind: str, group: str) -> list[str]:
        return [text for text in SENTENCES[group] if getattr(freedom_of(STORY + text), kind)]

    assert recognised("several", "several") == SEVERAL
    assert recognised("any_case", "any_case") == ANY_CASE
    for kind in ("several", "any_case"):
        assert recognised(kind, f"not_{kind}") == []
    assert recognised("tolerance", "no_tolerance") == []
    for each in SENTENCES["tolerance"]:
        tolerance = freedom_of(STORY + each["sentence"]).tolerance
        assert tolerance is not None, each
        assert (tolerance.abs or 0.0, tolerance.rel or 0.0) == pytest.approx((each["abs"], each["rel"]))


def test_every_sentence_is_recognised_in_every_context() -> None:
    """A sentence of one kind is not taken for another kind either, and line breaks change nothing."""
    for sentence in SEVERAL:
        assert freedom_of(f"{STORY}\n\nOutput\n\n{sentence}\n\nExample\n\n1 2").several
        assert not freedom_of(sentence).any_case
        assert freedom_of(sentence).tolerance is None
    for sentence in (*ANY_CASE, *TOLERANT):
        assert freedom_of(sentence.replace(" ", "\n", 3)) != freedom_of("")
        assert freedom_of(sentence).several == ""


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    freedom_of(text)


@pytest.mark.cost
def test_a_long_text_is_read_in_linear_time() -> None:
    """Each would take minutes if a pattern went back and forth over it."""
    pieces = ("print ", "if there are several ", "any order ", "absolute error ", "10 - ", "letters in ", "a")
    for piece in pieces:
        freedom_of(piece * 20_000)


@pytest.mark.parametrize(
    ("sentence", "tests", "wanted"),
    [
        ("You may print every letter in lowercase or uppercase.", DIRECTIONS, Compare("ignore_case")),
        ("Absolute or relative error is at most 1e-4 in your answer.", REALS, Compare("floats", 1e-4, 1e-4)),
        ("Your answer may have an absolute error of 0.01.", REALS, Compare("floats", 0.01, 1e-6)),
        # What is stricter than the default is not made stricter: expected outputs hold few digits.
        ("Your answer's absolute or relative error is at most 1e-9.", REALS, Compare()),
        # Of integers the default allows no error; the statement does.
        (
            "Your answer's absolute or relative error is at most 1e-6.",
            stdin(*SUM_CASES),
            Compare("floats", 1e-6, 1e-6),
        ),
        (
            "Print YES in any case, and the answer with an absolute error of at most 0.001.",
            stdin(("1", "YES\n0.5"), ("2", "NO")),
            Compare("kattis", 1e-3, 1e-6),
        ),
        # Words that differ in nothing but their case.
        ("You may print every letter in any case.", LETTERS, Compare()),
        # A count beside the numbers, of which the tolerance would take one for another.
        ("Your answer's relative error is at most 0.01.", COUNTS, Compare()),
        ("If there are several answers, print any.", REALS, Compare()),
        ("Print it.", REALS, Compare()),
    ],
)  # fmt: skip
def test_a_plain_rule_is_set(sentence: str, tests: StdinTests, wanted: Compare) -> None:
    after, flag = with_stated_comparison(problem("p", STORY + sentence, tests))
    assert after.compare == wanted
    assert (flag is None) == (wanted == Compare())


def test_a_comparison_that_was_chosen_stays() -> None:
    for mode in ("exact", "lines", "unordered_lines", "kattis", "grader:lcb"):
        one = problem("p", STORY + "Print each letter in any case.", DIRECTIONS, compare=Compare(mode))
        assert with_stated_comparison(one) == (one, None)


def test_a_checker_decides_always() -> None:
    checker = PythonChecker("def check(input, output, expected):\n    return True\n")
    text = STORY + "Print any letter in any case, or if there are several answers, any of them."
    one = problem("p", text, DIRECTIONS, checker=checker)
    assert with_stated_comparison(one) == (one, None)


@given(
    st.lists(st.sampled_from(["0.5", "12", "3.25", "1e-05", "YES", "no", "Left"]), min_size=1, max_size=5),
    st.sampled_from(TOLERANT + ANY_CASE),
)
def test_a_stated_comparison_accepts_all_that_was_accepted(tokens: list[str], sentence: str) -> None:
    one = problem("p", sentence, stdin(("1", " ".join(tokens))))
    after, _ = with_stated_comparison(one)
    expected = " ".join(tokens)
    for output in (expected, expected.replace(".5", ".5000004"), expected.upper(), expected + " 1"):
        before = compare(output.encode(), expected, one.compare)[0]
        assert not before or compare(output.encode(), expected, after.compare)[0]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1) as judge:
        yield judge


def kept(judge: Judge, one: Problem, policy: Policy = POLICY) -> tuple[Problem | None, dict[str, str]]:
    """What a validation keeps of a problem, and its marks and drops by reason."""
    outcome = Validator(Runs(judge, 1), policy).validate(one)
    settled = list(settle(one, outcome, policy))
    decisions = [item for item in settled if not isinstance(item, Problem)]
    problems = [item for item in settled if isinstance(item, Problem)]
    return (problems[0] if problems else None), {d.reason: d.action for d in decisions}


QUICK = Policy(mutants=0, repeats=1)
UPPER = "print('LEFT' if int(input()) % 2 else 'RIGHT')\n"


def test_a_set_comparison_saves_a_problem_that_was_refused(judge: Judge) -> None:
    one = problem("case", STORY + "Print each letter in any case.", DIRECTIONS, UPPER)
    after, said_of_it = kept(judge, one, QUICK)
    assert after is not None
    assert after.compare == Compare("ignore_case")
    assert after.meta["validation"]["compare_before"]["mode"] == "tokens"
    assert said_of_it == {"comparison_set": "mark", "confirmed": "keep"}
    assert judge.judge(after, Program("python", UPPER)).verdict is Verdict.ACCEPTED
    as_it_was = QUICK.with_values(ignore=["comparison_set"], mark=["any_case"])
    assert kept(judge, one, as_it_was)[1] == {"reference_fails": "drop", "any_case": "mark"}


def test_several_answers_are_dropped_and_kept_by_name(judge: Judge) -> None:
    one = problem("any", STORY + "Find any graph with these heights.", stdin(*SUM_CASES), SUM)
    assert kept(judge, one, QUICK) == (None, {"several_answers": "drop"})
    after, said_of_it = kept(judge, one, QUICK.with_values(mark=["several_answers"]))
    assert after is not None
    assert said_of_it == {"several_answers": "mark", "confirmed": "keep"}


def test_of_yes_and_no_only_one_is_right(judge: Judge) -> None:
    parity = "print('YES' if int(input()) % 2 else 'NO')\n"
    one = problem("yes", STORY + "Tell whether there is one; find any such tree.", WORDS, parity)
    assert kept(judge, one, QUICK)[1] == {"confirmed": "keep"}


PAIRS = stdin(*[(f"{n}\n", f"0 {n}\n") for n in range(1, 11)])
LEFT, RIGHT = "print(0, input())\n", "n = int(input())\nprint(*(0, n) if n < 7 else (n, 0))\n"
OTHER = "n = int(input())\nprint(*(0, n) if n < 8 else (n, 0))\n"


def found_in(judge: Judge, statement: str, tests: StdinTests, *references: str) -> set[str]:
    one = problem("p", statement, tests, *references)
    return {flag.reason for flag in reference_flags(one, try_references(one, Runs(judge, 1), QUICK))}


def test_references_that_answer_otherwise_prove_several_answers(judge: Judge) -> None:
    story = STORY + "Tell both heights."
    assert "several_answers" in found_in(judge, story, PAIRS, LEFT, RIGHT, OTHER)
    # One of many is a wrong program.
    assert found_in(judge, story, PAIRS, LEFT, LEFT, LEFT, RIGHT) == {
        "references_differ",
        "reference_removed",
    }


def test_references_that_agree_against_a_test_say_that_it_is_wrong(judge: Judge) -> None:
    odd = stdin(*[(f"{n}\n", f"0 {n}\n") for n in range(1, 10)], ("10\n", "4 6\n"))
    assert found_in(judge, STORY + "Tell both.", odd, LEFT, LEFT) == {"wrong_test"}
    swapped = "n = int(input())\nprint(*((0, n) if n < 10 else (n, 0)))\n"
    flags = found_in(judge, STORY + "Tell both.", odd, LEFT, swapped)
    assert flags == {"wrong_test", "several_answers"}


def test_a_single_number_has_one_value_whatever_references_say(judge: Judge) -> None:
    doubled = stdin(*[(f"{n}\n", f"{2 * n}\n") for n in range(1, 11)])
    wrong = "n = int(input())\nprint(2 * n if n < 8 else 0)\n"
    flags = found_in(judge, STORY + "Find a number.", doubled, "print(2 * int(input()))\n", wrong, wrong)
    assert flags == {"references_differ", "reference_removed"}


@pytest.mark.parametrize(("count", "reason"), [(1, "too_few_to_judge"), (5, "trivial_program_passes")])
def test_too_few_tests_are_not_called_a_trivial_pass(judge: Judge, count: int, reason: str) -> None:
    cases = [(f"{n}\n", "7\n") for n in range(count)]
    one = problem("few", STORY + "Print seven.", stdin(*cases), "input()\nprint(7)\n")
    outcome = Validator(Runs(judge, 1), QUICK).validate(one)
    dropped = QUICK.drops(outcome.flags)
    assert dropped is not None
    assert dropped.reason == reason
    assert ("1 test, " in dropped.detail) == (count == 1)


def test_the_corpus_is_large_and_has_no_sentence_twice() -> None:
    groups = [group for name, group in SENTENCES.items() if name != "tolerance"]
    sentences = [*TOLERANT, *(sentence for group in groups for sentence in group)]
    assert len(sentences) == len(set(sentences)) >= 90


def test_an_outcome_keeps_the_comparison_on_disk(judge: Judge) -> None:
    one = problem("case", STORY + "Print each letter in any case.", DIRECTIONS, UPPER)
    outcome = Validator(Runs(judge, 1), QUICK).validate(one)
    again = msgspec.json.decode(msgspec.json.encode(outcome), type=type(outcome))
    assert again == outcome
