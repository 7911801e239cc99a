"""Judging a ``call`` case: arguments in, a plain value out, compared by value here."""

from __future__ import annotations

from typing import Any, cast

from whetstone.judge.boxes import Boxes, harness_job
from whetstone.judge.equality import equal, show
from whetstone.judge.outcome import COMPILE_ERROR, case, crashed, last_line, limit_exceeded, run_limits
from whetstone.judge.values import WireError, decode, encode
from whetstone.problem import CallCase, CallTests, Problem
from whetstone.sandbox import RunResult
from whetstone.verdict import CaseJudgement, Verdict


def judge_call(
    boxes: Boxes, problem: Problem, tests: CallTests, test: CallCase, source: str
) -> CaseJudgement:
    """Call the program's function with a case's arguments and judge what it returned. Raises SandboxFault."""
    limits = problem.limits
    payload = encode([source, tests.function, tests.class_, test.args, test.kwargs])
    job = harness_job("call", payload, run_limits(limits.cpu_s, limits.memory_mb, limits.output_mb))
    result = boxes.programs.run(job)
    failed = limit_exceeded(result)
    if failed is not None:
        return failed
    if result.result == COMPILE_ERROR:
        return case(result, Verdict.COMPILE_ERROR, "the program does not compile")
    return crashed(result) or _judge_answer(result, test.expected)


def _judge_answer(result: RunResult, expected: object) -> CaseJudgement:
    match _decoded(result.result):
        case ["value", value]:
            if equal(value, expected):
                return case(result, Verdict.ACCEPTED)
            return case(result, Verdict.WRONG_ANSWER, f"got {show(value)}, expected {show(expected)}")
        case ["unplain", str() as text]:
            return case(result, Verdict.WRONG_ANSWER, f"returned {text}")
        case ["raised", str() as text]:
            memory = text.startswith("MemoryError")
            return case(result, Verdict.MEMORY_LIMIT if memory else Verdict.RUNTIME_ERROR, text)
        case ["missing", str() as text]:
            return case(result, Verdict.RUNTIME_ERROR, f"the program defines no `{text}`")
        case _:
            said = last_line(result.stderr)
            reason = "the program ended before its function returned" + (f": {said}" if said else "")
            return case(result, Verdict.RUNTIME_ERROR, reason)


def _decoded(data: bytes) -> list[Any]:
    """The answer list; empty for bytes that are none."""
    try:
        answer = decode(data)
    except WireError:
        return []
    return cast("list[Any]", answer) if type(answer) is list else []
