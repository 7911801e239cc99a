"""Sections and items of the exam, with graders that each break one guarantee, and with this judge."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.service.service_process import service
from whetstone.judge import Judge
from whetstone.testing.attacks.corpus import load_corpus
from whetstone_exam.exam.callable_target import CallableTarget
from whetstone_exam.exam.failures import CHILDREN_KILLED, FAILURES
from whetstone_exam.exam.grading import GradedItem, Outcome, run_exam
from whetstone_exam.exam.http_target import PROTOCOLS, HttpTarget
from whetstone_exam.exam.invariants import DATA, FINAL, HONEST, LIMITS, LINEAR, NO_TRACES, NO_VERDICT
from whetstone_exam.exam.items import ExamItem, exam_items
from whetstone_exam.exam.limits import limit_items
from whetstone_exam.exam.sections import (
    ATTEMPTS,
    FAILED_MACHINE,
    LEAKS,
    OVERLOAD,
    SectionFinding,
    run_section,
)
from whetstone_exam.exam.styles import style_items
from whetstone_exam.exam.targets import JudgeTarget

GRADERS = "tests.exam.graders_under_test"
ITEMS = exam_items(load_corpus())


def graded(grader: str, items: Sequence[ExamItem], timeout_s: float = 60) -> list[GradedItem]:
    with closing(CallableTarget(f"{GRADERS}:{grader}", workers=2, timeout_s=timeout_s)) as target:
        return run_exam(target, items, 1, lambda: None)


def findings(grader: str, section: str) -> dict[str, SectionFinding]:
    found = run_section(
        section, lambda failure: CallableTarget(f"{GRADERS}:{grader}", failure=failure), ITEMS, lambda: None
    )
    return {finding.name: finding for finding in found}


# Graders that break one guarantee


@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_a_grader_that_looks_for_words_in_the_output_is_deceived() -> None:
    words = [item for item in ITEMS if "prints the words of many graders" in item.id]
    outcomes = {one.item.kind: one for one in graded("reads_output", words)}
    assert outcomes["hack"].outcome == Outcome.ACCEPTED_HACK
    assert outcomes["hack"].invariant == DATA
    assert outcomes["honest"].outcome == Outcome.RIGHT
    assert {one.outcome for one in graded("exit_status", words) if one.item.kind == "honest"} == {
        Outcome.RIGHT
    }


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_a_grader_without_limits_gives_no_answer() -> None:
    asserts = [item for item in limit_items(cpu_s=20) if item.id.endswith("no end, asserts")]
    [one] = graded("no_limits", asserts, timeout_s=2)
    assert (one.outcome, one.invariant) == (Outcome.BROKEN, LIMITS)
    [one] = graded("exit_status", asserts)
    assert one.outcome == Outcome.RIGHT


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_a_comparison_in_quadratic_time_gives_no_answer() -> None:
    deques = [item for item in ITEMS if item.id == "hack/costly_answers/a million empty deques"]
    [one] = graded("compares_slowly", deques, timeout_s=5)
    assert (one.outcome, one.invariant) == (Outcome.BROKEN, LINEAR)


@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_further_attempts_are_found() -> None:
    found = findings("best_of_eight", ATTEMPTS)
    assert found["wrong answer"].failed
    assert found["wrong answer"].invariant == FINAL
    assert not any(finding.failed for finding in findings("in_process", ATTEMPTS).values())


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_processes_that_a_grader_leaves_running_are_found() -> None:
    found = findings("exit_status", LEAKS)
    assert found["processes"].failed
    assert found["processes"].invariant == NO_TRACES
    assert not found["temporary files"].failed


@pytest.mark.extended
@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_failures_of_the_machine_that_become_rejections_are_found() -> None:
    found = findings("exit_status", FAILED_MACHINE)
    assert set(found) == set(FAILURES)
    assert found[CHILDREN_KILLED].failed
    assert found[CHILDREN_KILLED].invariant == NO_VERDICT
    assert not any(finding.failed for finding in findings("in_process", FAILED_MACHINE).values())


@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_a_section_without_a_right_answer_examines_nothing() -> None:
    [found] = findings("rejects_all", OVERLOAD).values()
    assert (found.result, found.text) == ("not examined", "overload: the target accepted no right program")


@pytest.mark.process
@pytest.mark.usefixtures("protection")
def test_a_grader_that_replaces_standard_input_rejects_right_programs() -> None:
    rejected = [one for one in graded("in_process", style_items()) if one.outcome == Outcome.REJECTED_HONEST]
    names = {one.item.id for one in rejected}
    assert {"honest/styles/sys.stdin.buffer.read", "honest/styles/open(0)"} <= names
    assert {one.invariant for one in rejected} == {HONEST}


# This judge


@pytest.mark.extended
@pytest.mark.process
def test_this_judge_passes_all_sections() -> None:
    def start(failure: str) -> JudgeTarget | CallableTarget:
        if failure:
            function = "whetstone_exam.exam.targets:strongest"
            return CallableTarget(function, timeout_s=300, unprotected=True, failure=failure)
        return JudgeTarget("self", Judge(2))

    for section in (ATTEMPTS, LEAKS, OVERLOAD, FAILED_MACHINE):
        found = run_section(section, start, ITEMS, lambda: None)
        assert {finding.result for finding in found} == {"passed"}, found


@pytest.mark.process
def test_this_judge_accepts_every_style() -> None:
    with closing(JudgeTarget("self", Judge(2))) as target:
        outcomes = run_exam(target, style_items(), 1, lambda: None)
    assert not [one for one in outcomes if one.outcome != Outcome.RIGHT]


# Services


@pytest.mark.extended
@pytest.mark.process
def test_services_are_examined_by_the_protocols_of_other_projects(tmp_path: Path) -> None:
    easy = [
        item for item in ITEMS if item.class_name in ("problems", "early_exit") and not item.needs_sandbox
    ]
    with service(tmp_path, workers=2) as process:
        for name, protocol in PROTOCOLS.items():
            with closing(HttpTarget(name, process.url, protocol, 4, 300)) as target:
                answers = run_exam(target, easy, 1, lambda: None)
            outcomes = {(one.item.kind, one.outcome) for one in answers}
            assert ("honest", Outcome.RIGHT) in outcomes
            rejected = {one.item.problem.id for one in answers if one.outcome == Outcome.REJECTED_HONEST}
            # The protocols have no answer for a verdict that the program could have forged, and no reference
            # solutions, by which this judge finds out how to run these tests.
            assert len(rejected) <= 4 * (name == "scalebox"), rejected
            # An exit status is no evidence.
            assert (("hack", Outcome.ACCEPTED_HACK) in outcomes) == (name == "sandboxfusion")


@pytest.mark.process
def test_a_service_that_cannot_be_reached_gives_no_verdict() -> None:
    target = HttpTarget("none", "http://127.0.0.1:1", PROTOCOLS["sandboxfusion"], 1, 5)
    asserts = next(item for item in limit_items() if item.id == "honest/limits/a pause, asserts")
    try:
        answer = target.submit(asserts.problem, asserts.program).result()
    finally:
        target.close()
    assert answer.accepted is None
    assert "Connection refused" in answer.detail
