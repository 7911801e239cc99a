"""A verifier answers for its cases: no case that it writes leaves it without a reward."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.environments.test_codegen_verifier import PROBLEM, drawn
from whetstone.core.problem import (
    CallCase,
    CallTests,
    Checker,
    Limits,
    Problem,
    Program,
    ProgramChecker,
    PythonChecker,
    StandardChecker,
    StdinCase,
    StdinTests,
)
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
from whetstone.environments.codegen_verifier import CaseTrials, VerifierTrial
from whetstone.judge.answers.responsibility import Blame, CheckerEvent, Event, decide_blame

RIGHT, WRONG = "print(2 * int(input()))\n", "print(int(input()) ** 2)\n"
STDIN = Problem(
    "twice",
    "Twice the number.",
    StdinTests([StdinCase(f"{x}\n", f"{2 * x}\n") for x in (0, 5, -3)]),
    limits=Limits(cpu_s=5.0, memory_mb=256, output_mb=1),
    references=[Program("python", RIGHT)],
    wrong=[Program("python", WRONG)],
)
CHECK = "def check(input, output, expected):\n    {}\n    return int(output) == int(expected)\n"


def python(on_unreadable: str) -> PythonChecker:
    """A checker that does something if the expected output is no number."""
    return PythonChecker(CHECK.format(f"if not expected.strip().lstrip('-').isdigit(): {on_unreadable}"))


def program(protocol: Any, on_unreadable: str) -> ProgramChecker:
    source = (
        "import os, sys\nexpected = open('answer.txt').read()\n"
        f"if not expected.strip().lstrip('-').isdigit(): {on_unreadable}\n"
        "os._exit(42 if sys.stdin.read().split() == expected.split() else 43)\n"
    )
    return ProgramChecker("python", source, protocol)


def case(given: str, out: str) -> str:
    return json.dumps({"inputs": [given], "outputs": [out]})


CHECKERS: dict[str, tuple[Checker, str]] = {
    "raises": (PythonChecker(CHECK.format("pass")), case("x", "y")),
    "raises on the expected output": (PythonChecker(CHECK.format("pass")), case("7", "fourteen")),
    "exits": (python("import sys; sys.exit(3)"), case("7", "no number")),
    "ends at once": (python("import os; os._exit(0)"), case("7", "no number")),
    "is killed": (python("import os; os.kill(os.getpid(), 9)"), case("7", "no number")),
    "returns no bool": (python("return 'yes'"), case("7", "no number")),
    "recurses": (python("check(input, output, expected)"), case("7", "no number")),
    "asks for memory": (python("return bool(bytearray(1 << 40))"), case("7", "no number")),
    "floods": (python("print('x' * (32 << 20))"), case("7", "no number")),
    "ends with an unknown code": (program("kattis", "os._exit(9)"), case("7", "no number")),
    "is killed as a program": (program("kattis", "os.kill(os.getpid(), 9)"), case("7", "no number")),
    "cannot read the expected output": (StandardChecker("rcmp6"), case("7", "no number")),
}


@pytest.mark.drawn(4)
@pytest.mark.process
@pytest.mark.parametrize("name", CHECKERS)
@pytest.mark.parametrize("variant", ["v3", "astraflow_v2"])
def test_cases_on_which_the_checker_fails_earn_nothing(name: str, variant: str) -> None:
    checker, reply = CHECKERS[name]
    problem = replace(STDIN, checker=checker)
    good = case("7", "14")
    groups, *_ = drawn([(WRONG, reply), (RIGHT, reply), (WRONG, good)], problem, retry=WRONG, variant=variant)
    # The coder's second program is wrong, too, so the variant pays the verifier for valid cases only.
    rewards = [sample.reward for sample in groups["verifier"].samples]
    assert rewards == [0.0, 0.0, 1.0]
    assert [sample.metrics["cases_valid"] for sample in groups["verifier"].samples] == [0.0, 0.0, 1.0]


@pytest.mark.drawn(4)
@pytest.mark.process
@pytest.mark.parametrize("literals", [True, False])
@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "9" * 5000, "[1e400]"])
def test_numbers_that_no_test_can_hold_earn_nothing(number: str, literals: bool) -> None:
    tests = CallTests([CallCase("6", ["3"]) if literals else CallCase(6, [3])], "f", literals=literals)
    problem = replace(PROBLEM, tests=tests)
    replies = [
        f'{{"inputs": [[{number}]], "outputs": [4]}}',
        f'{{"inputs": [[4]], "outputs": [{number}]}}',
    ]
    groups, *_ = drawn([(PROBLEM.wrong[0].source, reply) for reply in replies], problem, max_bytes=20_000)
    assert [sample.reward for sample in groups["verifier"].samples] == [0.0, 0.0]


OK = CaseJudgement(Verdict.ACCEPTED)
FAULTS_OF_THE_MACHINE = [
    "the machine was too busy: the program was ready and waited 9.0 of 9.5 s for a core",
    decide_blame("checker", Event(CheckerEvent.STOPPED, "it was ended: starved"), lambda: True, "").reason,
    "the sandbox failed: the fork-server ended",
    "the checker's sandbox failed: the fork-server ended",
    "not judged: its deadline passed after 9.0 s in the queue and 0.0 s of waiting for a core",
    "not judged: no server judged it: connection refused",
]


class _Script:
    """A judge that accepts the reference on the real tests, and has a script for everything else."""

    minimum_tier = "restricted"

    def __init__(self, **cases: list[CaseJudgement]) -> None:
        self.cases = cases

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        if problem.tests is STDIN.tests:
            return Judgement(Verdict.ACCEPTED, [OK], 1.0, "root")
        found = self.cases[program.source]
        first = next((c for c in found if c.verdict is not Verdict.ACCEPTED), OK)
        if any(c.verdict is Verdict.JUDGE_ERROR for c in found):
            first = next(c for c in found if c.verdict is Verdict.JUDGE_ERROR)
        score = None if first.verdict is Verdict.JUDGE_ERROR else float(first is OK)
        return Judgement(first.verdict, found, score, "root", first.reason)


def trial_of(
    reference: list[CaseJudgement], program: list[CaseJudgement], *, even_if_invalid: bool = False
) -> VerifierTrial:
    problem = replace(STDIN, references=[Program("python", "reference")])
    tests = StdinTests([StdinCase("1", "2"), StdinCase("3", "6")])
    judge: Any = _Script(reference=reference, program=program)
    truth = Judgement(Verdict.WRONG_ANSWER, [CaseJudgement(Verdict.WRONG_ANSWER)], 0.0, "root")
    tried = CaseTrials(judge).try_cases(problem, tests, "program", truth, even_if_invalid=even_if_invalid)
    return asyncio.run(tried)


@pytest.mark.parametrize("reason", FAULTS_OF_THE_MACHINE)
def test_a_failure_of_the_sandbox_is_unknown_unless_the_cases_are_wrong_anyway(reason: str) -> None:
    fault = CaseJudgement(Verdict.JUDGE_ERROR, reason=reason)
    bad = CaseJudgement(Verdict.WRONG_ANSWER, reason="the checker failed")
    assert trial_of([OK, fault], [OK, OK]).valid is None
    assert trial_of([OK, fault], [OK, OK], even_if_invalid=True).valid is None
    assert trial_of([fault, bad], [OK, OK]).valid is False
    assert trial_of([OK, OK], [OK, fault]).valid is None
    known = trial_of([OK, OK], [bad, fault])
    assert (known.valid, known.accepts_program, known.rejects_program) == (True, False, True)


def test_a_failure_of_the_checker_is_never_unknown() -> None:
    """Whatever it says: it may repeat words of the model."""
    unproved = "the checker does not even decide on the expected output"
    for event in set(CheckerEvent) - {CheckerEvent.STOPPED}:
        said = Event(event, "the machine was too busy")
        blame, reason = decide_blame("checker", said, lambda: False, unproved)
        if blame is not Blame.JUDGE:
            continue
        fault = CaseJudgement(Verdict.JUDGE_ERROR, reason=reason)
        assert trial_of([OK, fault], [OK, OK]).valid is False
        tried = trial_of([OK, OK], [OK, fault])
        assert (tried.valid, tried.accepts_program, tried.rejects_program) == (True, False, False)
        assert trial_of([fault, OK], [OK, fault], even_if_invalid=True).valid is False


def test_wrong_programs_that_could_not_be_run_leave_the_diagnosis_open() -> None:
    fault = CaseJudgement(Verdict.JUDGE_ERROR, reason=FAULTS_OF_THE_MACHINE[0])
    bad = CaseJudgement(Verdict.WRONG_ANSWER)
    judge: Any = _Script(unknown=[fault], refused=[bad], passed=[OK])
    for sources, rejected in [
        (["unknown", "refused"], True),
        (["unknown", "passed"], None),
        (["passed"], False),
    ]:
        wrong = [Program("python", source) for source in sources]
        tests = StdinTests([StdinCase("1", "2")])
        assert asyncio.run(CaseTrials(judge).reject_any(STDIN, tests, wrong)) is rejected
