"""The cases of a program over idle workers: what comes out is what one worker finds, in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.service.service_process import ServiceProcess, service
from whetstone.core.problem import Problem, Scoring, StdinCase, StdinTests, problem_from
from whetstone.core.verdict import CaseJudgement
from whetstone.judge import Judge, Judgement, Program, Verdict
from whetstone.service.case_parallel import goes_on, joined, parts_of

CASES = 40
READS = "n = int(input())\n"
PROGRAMS = {
    "right": "print(2 * n)\n",
    "wrong in both halves": "print(2 * n if n not in (3, 30) else 0)\n",
    "wrong in the second half": "print(2 * n if n != 30 else 0)\n",
    "crashes early, wrong late": "assert n != 3\nprint(2 * n if n < 35 else 0)\n",
    "leaves": "print(2 * n)\nif n == 25: exit(3)\n",
    "does not compile": "print(\n",
    "nothing": "",
}


def doubles(**more: Any) -> dict[str, Any]:
    cases = [{"input": f"{n}\n", "output": f"{2 * n}\n"} for n in range(CASES)]
    limits = {"cpu_s": 5.0, "memory_mb": 256, "output_mb": 1}
    tests = {"kind": "stdin", "cases": cases}
    return {"id": "t/doubles", "statement": "", "tests": tests, "limits": limits, **more}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with service(tmp_path_factory.mktemp("spread"), workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def alone() -> Iterator[Judge]:
    with Judge(workers=1) as judge:
        yield judge


def told(judgement: Judgement) -> Any:
    """All that does not depend on the clock."""
    cases = [(case.index, case.verdict, case.reason) for case in judgement.cases]
    return judgement.verdict, judgement.score, judgement.reason, cases, judgement.environment


@pytest.mark.process
@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_workers_give_the_judgement_of_one(
    pair: ServiceProcess, alone: Judge, name: str, stop: bool
) -> None:
    halves = [{"cases": [*range(20), 39], "weight": 1}, {"cases": [*range(20, 40)], "weight": 3}]
    problem = doubles(scoring={"mode": "groups", "groups": halves})
    source = READS + PROGRAMS[name] if PROGRAMS[name] else ""
    spread = pair.metric("whetstone_judge_spread_programs_total")
    asked = {"problem": problem, "program": {"language": "python", "source": source}}
    status, said = pair.ask("POST", "/v1/judge", {**asked, "options": {"stop_at_first_failure": stop}})
    assert status == 200, said
    assert pair.metric("whetstone_judge_spread_programs_total") == spread + 1
    expected = alone.judge(problem, Program("python", source), stop_at_first_failure=stop)
    assert told(msgspec.convert(said, Judgement)) == told(expected)
    assert pair.metric("whetstone_judge_running_programs") == 0


@pytest.mark.process
def test_few_cases_a_subset_and_compiled_programs_stay_together(pair: ServiceProcess) -> None:
    spread = pair.metric("whetstone_judge_spread_programs_total")
    few = doubles(tests={"kind": "stdin", "cases": doubles()["tests"]["cases"][:15]})
    right = {"language": "python", "source": READS + PROGRAMS["right"]}
    assert pair.ask("POST", "/v1/judge", {"problem": few, "program": right})[1]["score"] == 1
    subset = {"problem": doubles(), "program": right, "options": {"max_cases": 20}}
    assert len(pair.ask("POST", "/v1/judge", subset)[1]["cases"]) == 20
    assert pair.metric("whetstone_judge_spread_programs_total") == spread


@pytest.mark.process
def test_a_program_that_sleeps_through_its_clock_is_not_run_on_cases_behind(alone: Judge) -> None:
    problem = problem_from(doubles())
    parts = parts_of(problem, 2)
    fine = [CaseJudgement(Verdict.ACCEPTED, index=n) for n in range(CASES // 2)]
    slept = CaseJudgement(Verdict.TIME_LIMIT, cpu_s=0.1, index=CASES // 2 - 1)
    worked = CaseJudgement(Verdict.TIME_LIMIT, cpu_s=5.1, index=CASES // 2 - 1)

    def first(last: CaseJudgement) -> Judgement:
        return Judgement(Verdict.TIME_LIMIT, [*fine[:-1], last], 0.95, "root")

    assert not goes_on(parts[0], first(slept), stop_at_first_failure=False)
    assert goes_on(parts[0], first(worked), stop_at_first_failure=False)
    cut = joined(problem, parts, [first(slept)], {})
    assert (cut.verdict, len(cut.cases), cut.score) == (Verdict.TIME_LIMIT, 20, 19 / CASES)
    lost = Judgement(Verdict.JUDGE_ERROR, [], None, "root", "no worker")
    assert joined(problem, parts, [first(worked), lost], {}).verdict is Verdict.JUDGE_ERROR


def test_parts_are_all_cases_once_and_in_order() -> None:
    tests = StdinTests([StdinCase(str(n), str(n)) for n in range(23)])
    parts = parts_of(Problem("t/p", "", tests, scoring=Scoring()), 3)
    inputs = [case.input for part in parts for case in part.tests.cases]  # type: ignore
    assert inputs == [str(n) for n in range(23)]
