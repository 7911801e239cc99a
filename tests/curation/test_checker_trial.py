"""A checker is kept for what it shows: right ones are, wrong, lenient, hostile and stalling ones are not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.curation.checker_sources import CASES, COMPARES, REFUSED, REMEMBERS, RIGHT, STATEMENT, pair_problem
from tests.data.clean_problems import SUM, SUM_CASES, problem, stdin
from whetstone.core.problem import Compare, Problem, Program, PythonChecker
from whetstone.data.validate.policy import Policy
from whetstone.data.validate.runs import Runs
from whetstone.judge import Judge
from whetstone_curation.checkers.asking import LONGEST, checker_in, needs_checker, question
from whetstone_curation.checkers.trial import (
    GARBAGE,
    CheckerEvidence,
    CheckerRejected,
    changed_answers,
    invalid_answers,
    layouts,
    run_trial,
)

POLICY = Policy(judge_attempts=1, mutants=2)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=2) as judge:
        yield judge


def on_trial(judge: Judge, source: str, one: Problem | None = None) -> CheckerEvidence:
    return run_trial(one or pair_problem(), PythonChecker(source), Runs(judge, 1), POLICY)


@pytest.mark.parametrize("source", [RIGHT, REMEMBERS])
def test_a_right_checker_is_kept_with_its_evidence(judge: Judge, source: str) -> None:
    evidence = on_trial(judge, source)
    assert (evidence.references, evidence.cases, evidence.wrong) == (2, len(CASES), 1)
    assert evidence.layouts == 4 * 5
    assert evidence.trivial >= 4
    assert evidence.spoiled[0] >= evidence.spoiled[1] / 2 > 4
    assert evidence.freer == "what references[1] prints"
    assert evidence.summary().startswith("accepts 2 references on 4 cases and 20 layouts; refuses ")


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_checker_is_rejected_with_a_reason(judge: Judge, name: str) -> None:
    source, reason = REFUSED[name]
    with pytest.raises(CheckerRejected) as caught:
        on_trial(judge, source)
    assert caught.value.reason in ((reason,) if isinstance(reason, str) else reason), str(caught.value)
    assert str(caught.value)


def test_a_checker_that_only_compares_is_rejected_though_the_only_reference_passes(judge: Judge) -> None:
    one = msgspec.structs.replace(pair_problem(), references=pair_problem().references[:1])
    with pytest.raises(CheckerRejected) as caught:
        on_trial(judge, COMPARES, one)
    assert caught.value.reason == "no_freer"
    assert on_trial(judge, RIGHT, one).freer


def test_a_known_wrong_program_alone_can_reject_a_checker(judge: Judge) -> None:
    """Without it, the checker that forgets a rule passes: nothing else prints a zero."""
    forgets = REFUSED["forgets a rule"][0]
    assert on_trial(judge, forgets, msgspec.structs.replace(pair_problem(), wrong=[])).references == 2


def test_references_that_do_not_run_are_no_evidence(judge: Judge) -> None:
    broken = [Program("python", "print 1\n"), Program("python", "import no_such_module\n")]
    right = pair_problem().references
    one = msgspec.structs.replace(pair_problem(), references=[*broken, *right])
    assert on_trial(judge, RIGHT, one).references == 2
    with pytest.raises(CheckerRejected) as caught:
        on_trial(judge, RIGHT, msgspec.structs.replace(pair_problem(), references=broken))
    assert caught.value.reason == "no_reference_runs"


def test_problems_that_need_a_checker_are_told_from_others() -> None:
    assert needs_checker(pair_problem())
    assert not needs_checker(pair_problem(checker=PythonChecker(RIGHT)))
    assert not needs_checker(problem("sum", "Print the sum.", stdin(*SUM_CASES), SUM))
    # A plain rule is a comparison's business.
    cased = "Print the sum. You may print each letter in any case."
    assert not needs_checker(problem("case", cased, stdin(*SUM_CASES), SUM))
    assert needs_checker(problem("case", cased, stdin(*SUM_CASES), SUM, compare=Compare("exact")))
    marked = {"validation": {"flags": {"several_answers": "references answer otherwise"}}}
    assert needs_checker(problem("marked", "Print it.", stdin(*SUM_CASES), SUM, meta=marked))


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (f"Here:\n```python\n{RIGHT}```\n", ""),
        (f"<think>def check(a): ...</think>\n```python\n{RIGHT}```\nIt reads two numbers.", ""),
        ("I cannot do that.", "there is no program"),
        (
            "```python\ndef check(output):\n    return True\n```",
            "it defines no check(input, output, expected)",
        ),
        ("```python\ndef verify(input, output, expected):\n    return True\n```", "it defines no check"),
        ("```python\ndef check(input, output, expected:\n```", ""),
        (f"```python\ndef check(input, output, expected):\n    x = '{'a' * LONGEST}'\n```", "characters"),
        ("", "there is no program"),
    ],
)
def test_the_checker_in_a_reply(reply: str, why: str) -> None:
    source, reason = checker_in(reply)
    assert bool(source) != bool(reason)
    assert why in reason
    if "It reads" in reply:
        assert source.strip() == RIGHT.strip()


def test_the_question_holds_the_statement_and_short_samples() -> None:
    asked = question(pair_problem())
    assert STATEMENT in asked
    assert "Input:\n2\nOne right output:\n1 1" in asked
    long = problem("long", "x" * 100_000, stdin(("1" * 5000, "2")), SUM)
    assert len(question(long)) < 30_000
    assert "[cut: 80000 more characters]" in question(long)
    assert "{braces}" in question(problem("braces", "Print {braces} and {0}.", stdin(("1", "{}")), SUM))


@given(st.text("ab 1\n-", max_size=40), st.text(max_size=3))
def test_answers_are_other_texts_and_the_same_for_a_seed(text: str, seed: str) -> None:
    for answer in layouts(text):
        assert answer.text.split() == text.split()
        assert answer.text != text
    made = changed_answers(text, seed)
    assert made == changed_answers(text, seed)
    assert all(answer.text.split() != text.split() for answer in made)
    assert len({answer.text for answer in made}) == len(made)
    assert all(GARBAGE in answer.text or not answer.text for answer in invalid_answers(text))
