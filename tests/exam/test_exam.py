"""``whetstone exam``: it finds the defects of graders, passes this judge, and protects the machine."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from whetstone.cli.main import main
from whetstone.core.problem import NoTests, Problem, Program
from whetstone.testing.attacks.corpus import load_corpus
from whetstone_exam.exam.callable_target import CallableTarget
from whetstone_exam.exam.grading import GradedItem, Outcome, grade, run_exam
from whetstone_exam.exam.invariants import EVIDENCE, NO_FLIPS, OUT_OF_REACH, invariant_of
from whetstone_exam.exam.items import ExamItem, exam_items, sample_items
from whetstone_exam.exam.targets import Answer
from whetstone_exam.exam.wrong_programs import wrong_programs

GRADERS = "tests.exam.graders_under_test"
PROBLEM = Problem("p", "", NoTests())
ITEMS = exam_items(load_corpus())


def item(kind: Any = "hack", **changes: Any) -> ExamItem:
    return ExamItem(f"{kind}/a/b", kind, "a", "aim", PROBLEM, Program("python", "pass"), **changes)


def examine(
    capsys: pytest.CaptureFixture[str], out: Path, *arguments: str
) -> tuple[int, dict[str, Any], str]:
    status = main(["exam", *arguments, "--sections", "programs", "--json", str(out), "--replace"])
    return status, json.loads(out.read_text()), capsys.readouterr().out


# Grading


@pytest.mark.parametrize(
    ("kind", "answers", "outcome"),
    [
        ("hack", [False, False], Outcome.RIGHT),
        ("hack", [True], Outcome.ACCEPTED_HACK),
        ("honest", [True, True], Outcome.RIGHT),
        ("honest", [False], Outcome.REJECTED_HONEST),
        ("honest", [True, False], Outcome.FLIP),
        ("hack", [None, None], Outcome.BROKEN),
        ("honest", [None, None], Outcome.NO_ANSWER),
        ("hack", [None, False], Outcome.RIGHT),
        ("honest", [None, False], Outcome.REJECTED_HONEST),
    ],
)
def test_answers_are_graded(kind: str, answers: list[bool | None], outcome: str) -> None:
    assert grade(item(kind), [Answer(accepted) for accepted in answers]) == outcome


def test_a_hack_that_an_isolation_is_known_not_to_stop_is_told_apart() -> None:
    known = item(known={"restricted": "no namespaces"})
    assert grade(known, [Answer(True, isolation="restricted")]) == Outcome.KNOWN
    assert grade(known, [Answer(True, isolation="root")]) == Outcome.ACCEPTED_HACK
    assert grade(known, [Answer(None, unsupported=True)]) == Outcome.UNSUPPORTED
    assert grade(known, [Answer(None, withheld=True)]) == Outcome.WITHHELD


def test_a_sample_has_every_class_before_it_has_one_twice() -> None:
    classes = {(one.kind, one.class_name) for one in ITEMS}
    sample = sample_items(ITEMS, len(classes), 3)
    assert {(one.kind, one.class_name) for one in sample} == classes
    assert sample == sample_items(ITEMS, len(classes), 3)
    assert len(sample_items(ITEMS, 0, 3)) == len(ITEMS)
    assert len({one.id for one in ITEMS}) == len(ITEMS)


# This judge


@pytest.mark.extended
@pytest.mark.process
def test_this_judge_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, card, text = examine(capsys, tmp_path / "card.json", "self", "--items", "75", "--seed", "1")
    assert (status, card["failed"]) == (0, [])
    answered = card["hacks"] + card["honest_programs"] + card["wrong_programs"]
    assert answered + card["no_reward"] == 75
    assert card["cpu_s"] > 0
    assert 0 < card["latency_s"]["median"] <= card["latency_s"]["p95"]
    # Those are programs whose tests run in the program's own interpreter.
    assert (card["no_verdict"], card["failures_caused_by_hacks"]) == (0, 0)
    assert card["no_reward"] <= 3
    assert f"0 hacks accepted, of {card['hacks']}" in " ".join(text.split())


# Graders with defects


@pytest.mark.process
@pytest.mark.parametrize(
    ("grader", "class_name", "guarantee"),
    [("in_process", "forged_equality", OUT_OF_REACH), ("exit_status", "early_exit", EVIDENCE)],
)
@pytest.mark.usefixtures("protection")
def test_the_defect_of_a_grader_is_found_and_one_item_shows_it(
    grader: str, class_name: str, guarantee: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(CallableTarget(f"{GRADERS}:{grader}", workers=2, timeout_s=20)) as target:
        assert target.name == f"{GRADERS}:{grader} (1.0)"
        of_class = [one for one in ITEMS if one.class_name == class_name][:12]
        graded = run_exam(target, of_class, 1, lambda: None)
    hacked = [one.item for one in graded if one.outcome == Outcome.ACCEPTED_HACK]
    assert hacked, [(one.item.id, one.outcome) for one in graded]
    status, card, text = examine(
        capsys, tmp_path / "card.json", f"{GRADERS}:{grader}", "--item", hacked[0].id
    )
    assert (status, card["accepted_hacks"]) == (1, 1)
    assert card["failed"][0]["invariant"] == guarantee
    assert f"It examines this guarantee: {guarantee}" in text
    assert hacked[0].aim in text
    assert "A right judge rejects this program." in text
    assert "Answer: accepted (score 1)" in text


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_a_grader_that_leaves_tests_out_accepts_wrong_programs() -> None:
    wrong = wrong_programs(load_corpus().problems, 1, 0)
    assert len({one.id for one in wrong}) == len(wrong) > 30
    outcomes: dict[str, list[GradedItem]] = {}
    for grader in ("first_case", "in_process"):
        with closing(CallableTarget(f"{GRADERS}:{grader}", workers=2, timeout_s=20)) as target:
            outcomes[grader] = run_exam(target, wrong, 1, lambda: None)
    accepted = [one for one in outcomes["first_case"] if one.outcome == Outcome.ACCEPTED_WRONG]
    assert accepted
    assert {one.invariant for one in accepted} == {EVIDENCE}
    assert not [one for one in outcomes["in_process"] if one.outcome == Outcome.ACCEPTED_WRONG]


@pytest.mark.extended
@pytest.mark.process
def test_wrong_programs_depend_on_the_seed_alone() -> None:
    few = dict(list(load_corpus().problems.items())[:6])
    assert wrong_programs(few, 2, 1) == wrong_programs(few, 2, 1) != wrong_programs(few, 2, 2)
    assert wrong_programs(few, 0, 1) == []


def test_a_flip_breaks_the_guarantee_about_load_whatever_the_class() -> None:
    assert GradedItem(item(), Outcome.FLIP, []).invariant == NO_FLIPS


def test_every_class_of_the_corpus_has_a_guarantee() -> None:
    assert all(invariant_of(one.class_name) for one in ITEMS)


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_rejecting_all_and_guessing_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, card, text = examine(capsys, tmp_path / "a.json", f"{GRADERS}:rejects_all", "--items", "60")
    assert status == 1
    assert card["accepted_hacks"] == 0
    assert card["rejected_honest_programs"] == card["honest_programs"] > 0
    assert f"again: whetstone exam {GRADERS}:rejects_all --item " in text
    status, card, _ = examine(
        capsys, tmp_path / "b.json", f"{GRADERS}:guesses", "--items", "20", "--rounds", "6"
    )
    assert status == 1
    assert card["flips"] > 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("grader", "detail"),
    [
        ("dies", "the grader's process died"),
        ("hangs", "no answer within 1 s"),
        ("raises", "RuntimeError: no sandbox is left"),
    ],
)
@pytest.mark.usefixtures("protection")
def test_a_grader_that_gives_no_answer_gives_no_verdict(grader: str, detail: str) -> None:
    with closing(CallableTarget(f"{GRADERS}:{grader}", timeout_s=1 if grader == "hangs" else 120)) as target:
        answers = [target.submit(PROBLEM, Program("python", "pass")).result() for _ in range(2)]
    assert answers == [Answer(None, detail)] * 2


# Protection


@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_a_grader_cannot_write_files_or_see_processes_of_the_examiner(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine", encoding="utf-8")

    def answer(grader: str, text: str) -> bool | None:
        with closing(CallableTarget(f"{GRADERS}:{grader}")) as target:
            return target.submit(PROBLEM, Program("python", text)).result().accepted

    assert answer("can_write", str(mine)) is False
    assert mine.read_text(encoding="utf-8") == "mine"
    assert answer("can_signal", str(os.getpid())) is False
    assert answer("can_write_temporary_files", "") is True


@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_programs_that_exhaust_a_machine_are_not_given_to_a_grader() -> None:
    exhausting = [one for one in ITEMS if one.needs_sandbox]
    assert exhausting
    with closing(CallableTarget(f"{GRADERS}:rejects_all")) as target:
        assert run_exam(target, exhausting, 1, lambda: None) == []


# Bad input


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["judge"], "give `self`, the http:// address of a service, or module:function"),
        (["self", "--item", "hack/none"], "--list prints all"),
        (["self", "--sections", "programs,leak"], "no section 'leak'; did you mean `leaks`"),
        (["sandbox+http://127.0.0.1:1"], "sandboxfusion+http://HOST:PORT, scalebox+http://HOST:PORT"),
        ([f"{GRADERS}:in_process", "--tier", "root"], "--tier chooses the isolation of `self`"),
        (["no.such.module:f", "--unprotected"], "cannot be examined: ModuleNotFoundError"),
        ([f"{GRADERS}:no_such", "--unprotected"], "cannot be examined: AttributeError"),
    ],
)
def test_wrong_arguments_have_a_remedy(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exam", *arguments]) == 2
    assert error in capsys.readouterr().err
