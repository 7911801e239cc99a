"""What a problem sets for the results of calls: comparison, checker, place of the result, nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import LIMITS, call_problem, python, stdin_problem
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, problem_from
from whetstone.judge import Judge, Verdict

DATA = data_beside(__file__)
COMPARED: list[dict[str, Any]] = DATA["compared"]
JUDGED: list[dict[str, Any]] = DATA["judged"]
REFUSED: list[dict[str, Any]] = DATA["refused"]


def _value(text: str) -> Any:
    return msgspec.json.decode(text)


def _problem(judged: dict[str, Any]) -> dict[str, Any]:
    problem: dict[str, Any] = {"id": "t/call", "statement": "", "limits": LIMITS}
    problem["tests"] = {"kind": "call", **_value(judged["tests"])}
    return problem | _value(judged.get("fields", "{}"))


@pytest.mark.process
def test_each_comparison_accepts_exactly_the_allowed_answers(judge: Judge) -> None:
    for row in COMPARED:
        problem = call_problem("f", ([], _value(row["expected"])))
        for returned, verdict in [
            *((one, Verdict.ACCEPTED) for one in row["right"]),
            *((one, Verdict.WRONG_ANSWER) for one in row["wrong"]),
        ]:
            program = python(f"def f():\n    return {returned}\n")
            set_by_problem = judge.judge(problem | {"compare": {"mode": "values", **row["compare"]}}, program)
            assert set_by_problem.verdict is verdict, (row, returned, set_by_problem.reason)
        # The first right answer needs the comparison.
        program = python(f"def f():\n    return {row['right'][0]}\n")
        assert judge.judge(problem, program).verdict is Verdict.WRONG_ANSWER, row


@pytest.mark.process
@pytest.mark.parametrize("judged", JUDGED, ids=[row["name"] for row in JUDGED])
def test_results_are_read_where_the_tests_say(judge: Judge, judged: dict[str, Any]) -> None:
    problem = _problem(judged)
    for program in judged["right"]:
        found = judge.judge(problem, python(program))
        assert found.accepted, (program, found.reason)
    for program in judged["wrong"]:
        found = judge.judge(problem, python(program))
        assert found.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR), program


@pytest.mark.process
@pytest.mark.parametrize("judged", JUDGED, ids=[row["name"] for row in JUDGED])
def test_shared_processes_give_the_same_verdicts(judged: dict[str, Any]) -> None:
    problem = _problem(judged)
    problem["tests"]["cases"] *= 2
    with Judge(workers=1, fork_per_case=False) as judge:
        for program in (judged["right"][0], judged["wrong"][0]):
            assert judge.judge(problem, python(program)).accepted == (program in judged["right"])


@pytest.mark.parametrize("refused", REFUSED, ids=[row["why"] for row in REFUSED])
def test_fields_without_effect_are_refused_with_a_remedy(refused: dict[str, Any]) -> None:
    kind: str = refused.get("kind", "call")
    problem = stdin_problem(("1", "1")) if kind == "stdin" else call_problem("f", ([1], 1))
    if kind == "operations":
        case = {"operations": ["A", "put"], "args": [[], [1]], "expected": [None, None]}
        problem["tests"] = {"kind": "call", "class": "A", "cases": [case]}
    problem["tests"] |= _value(refused.get("tests", "{}"))
    with pytest.raises(UserError, match=refused["why"]):
        problem_from(problem | _value(refused.get("fields", "{}")))


def test_problems_without_the_new_fields_are_stored_as_before() -> None:
    stored = msgspec.to_builtins(problem_from(call_problem("f", ([1], 1))))
    assert stored["tests"].keys() == {"kind", "cases", "function", "class", "literals"}
    assert stored["compare"].keys() == {
        *("mode", "abs", "rel", "case_sensitive", "space_change_sensitive", "oracle")
    }
    assert msgspec.convert(stored, Problem) == problem_from(call_problem("f", ([1], 1)))


@pytest.mark.process
def test_a_checker_of_values_that_fails_counts_against_the_program_only_with_evidence(judge: Judge) -> None:
    problem = call_problem("f", ([3], 9))
    problem["checker"] = {
        "type": "python",
        "source": "def check(input, output, expected):\n    return output % input['args'][0] == 0\n",
    }
    assert judge.judge(problem, python("def f(x): return 12")).accepted
    assert judge.judge(problem, python("def f(x): return 4")).verdict is Verdict.WRONG_ANSWER
    nonsense = judge.judge(problem, python("def f(x): return None"))
    assert nonsense.verdict is Verdict.WRONG_ANSWER
    assert "works otherwise" in nonsense.reason
    problem["tests"]["cases"][0]["expected"] = None
    assert judge.judge(problem, python("def f(x): return None")).verdict is Verdict.JUDGE_ERROR
    # A reference that the checker accepts shows that it works.
    problem["references"] = [{"language": "python", "source": "def f(x): return 3"}]
    assert judge.judge(problem, python("def f(x): return None")).verdict is Verdict.WRONG_ANSWER
