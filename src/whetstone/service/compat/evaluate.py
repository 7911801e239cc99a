"""POST /common_evaluate_batch: judge the program in a reply.

The cases are judged within a budget of wall time. No case starts after it, and each started case is judged.
The judge gets the cases in pieces. Their size grows if the cases are fast, so little runs over the budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from starlette.responses import Response

from whetstone.core.errors import UserError
from whetstone.core.http.refusal import RequestRefused, bad_request, json_response
from whetstone.core.http.request_body import requested_deadline
from whetstone.core.problem import AssertTests, CallTests, Problem, Program, StdinTests
from whetstone.core.verdict import CaseJudgement, Judgement, Verdict, is_fault_of_tests
from whetstone.judge.extract import extract_program
from whetstone.judge.languages.table import language_named
from whetstone.service.case_parallel import slice_cases
from whetstone.service.compat.schemas import (
    CommandRunResult,
    EvalResult,
    EvalTestCase,
    RunCodeResponse,
    SubmitRequest,
)
from whetstone.service.compat.tables import build_problem, read_table
from whetstone.service.endpoint_app import EndpointCall, HttpEndpoint

# The cost of a case is unknown at first.
_FIRST_PIECE = 2


class CaseVerdicts(msgspec.Struct):
    """The started cases in order, the first verdict that is not acceptance, and the number of all cases."""

    cases: list[CaseJudgement]
    verdict: Verdict
    total: int
    reason: str = ""


async def judge_within(
    call: EndpointCall, deadline: float, problem: Problem, program: Program, budget_s: float, *, run_all: bool
) -> CaseVerdicts:
    """Judge the cases of ``problem`` in order, until the budget ends. Raises RequestRefused.

    budget_s: the wall time for all cases. run_all: judge the cases after a failed one.
    """
    loop = asyncio.get_running_loop()
    total = 1 if isinstance(problem.tests, AssertTests) else len(problem.tests.cases)
    result = CaseVerdicts([], Verdict.ACCEPTED, total)
    start_time, slowest_s, stops_early = loop.time(), 0.0, False
    size = total if 2 * total * problem.limits.cpu_s <= budget_s else _FIRST_PIECE
    while len(result.cases) < total:
        start, left_s = len(result.cases), budget_s - (loop.time() - start_time)
        if left_s <= 0 and start:
            break
        part = slice_cases(problem, start, start + size)
        options = {"stop_at_first_failure": stops_early or not run_all}
        judgement = await call.service.judged(call.visit.client, deadline, part, program, options)
        _check_judged(judgement, problem)
        if not judgement.cases:
            result.verdict, result.reason = judgement.verdict, judgement.reason
            break
        result.cases += [msgspec.structs.replace(c, index=c.index + start) for c in judgement.cases]
        failed = [c for c in judgement.cases if c.verdict is not Verdict.ACCEPTED]
        if failed and result.verdict is Verdict.ACCEPTED:
            result.verdict, result.reason = judgement.verdict, judgement.reason
        if (failed and not run_all) or any(c.verdict is Verdict.COMPILE_ERROR for c in failed):
            break
        # Cases that reach the time limit use up the budget, so after one the next pieces end at a failure.
        stops_early = stops_early or any(c.verdict is Verdict.TIME_LIMIT for c in failed)
        slowest_s = max(slowest_s, *(c.wall_s for c in judgement.cases))
        # At most a quarter of the rest of the budget, if all cases are as slow as the slowest.
        size = max(1, min(2 * size, int(left_s / (4 * slowest_s + 0.001))))
    return result


def _check_judged(judgement: Judgement, problem: Problem) -> None:
    """Raise RequestRefused for JUDGE_ERROR: it is no verdict on the program.

    Known clients retry after 504, but not after 422, which blames the tests.
    """
    if judgement.verdict is not Verdict.JUDGE_ERROR:
        return
    if is_fault_of_tests(judgement) or isinstance(problem.tests, AssertTests):
        raise RequestRefused(422, "judge_error", f"the tests themselves fail: {judgement.reason}")
    raise RequestRefused(504, "judge_error", f"the program could not be judged: {judgement.reason}", 1.0)


_Origin = Literal["fenced", "incomplete_fenced", "heuristic", "empty"]
_BUDGET_S = 300.0
# The time in the queue, in addition to the budget. Known clients wait 40 s longer than their budget.
_ANSWER_SLACK_S = 30.0
# The characters of a case's input and output in a response, unless `return_full_case` is set.
_SHOWN_CHARS = 1000


async def evaluate(call: EndpointCall) -> Response:
    """Serve POST /common_evaluate_batch."""
    request = await call.message(SubmitRequest)
    return json_response(await _evaluate(call, request))


async def _evaluate(call: EndpointCall, request: SubmitRequest) -> EvalResult:
    config = request.config
    if config.custom_extract_logic:
        raise RequestRefused(
            501,
            "not_served",
            "custom_extract_logic is code of the client, which this server does not run: extract the program "
            "in the client and send it in a fence",
        )
    if not config.language:
        raise bad_request("config.language is missing: the language of the program")
    language = _language_name(config.language)
    table = await asyncio.to_thread(read_table, config.provided_data)
    names = [name for name in (table.fn_name, table.entry_point) if name]
    source, origin = await asyncio.to_thread(_extract, request.completion, language, names)
    name = f"{request.dataset or 'request'}/{request.id}"
    problem = await asyncio.to_thread(build_problem, config, table, source, name)
    return await _judge(call, request, problem, Program(language, source), origin)


async def _judge(
    call: EndpointCall, request: SubmitRequest, problem: Problem, program: Program, origin: Any
) -> EvalResult:
    service, extra = call.service, request.config.extra
    service.check(problem)
    budget_s = extra.total_timeout or _BUDGET_S
    deadline = service.deadline(requested_deadline(call.request) or budget_s + _ANSWER_SLACK_S)
    service.gate.admit(call.visit.client, deadline)
    judged = await judge_within(call, deadline, problem, program, budget_s, run_all=extra.run_all_cases)
    call.visit.more["verdict"] = judged.verdict.value
    shown = _Shown(problem, compiled=bool(language_named(program.language, "the program").run))
    tests = [shown.case(each, full=extra.return_full_case) for each in judged.cases]
    if extra.run_all_cases or not judged.cases:
        tests += [shown.unstarted_case(judged, number) for number in range(len(tests), judged.total)]
    accepted = len(tests) == judged.total > 0 and all(each.passed for each in tests)
    return EvalResult(
        *(request.id, accepted, program.source),
        tests=tests,
        extracted_type=origin,
        verdict=judged.verdict.value,
        num_cases=judged.total,
    )


@dataclass(frozen=True)
class _Shown:
    """The results of cases in the form of these servers. Outputs of programs are not included."""

    problem: Problem
    compiled: bool
    """Whether the program's language has a compiler."""

    def case(self, judged: CaseJudgement, *, full: bool) -> EvalTestCase:
        """Return the result of a judged case."""
        return EvalTestCase(
            judged.verdict is Verdict.ACCEPTED,
            self._exec_info(judged),
            self._test_info(judged.index, full=full),
            judged.verdict.value,
            judged.cpu_s,
            judged.wall_s,
            judged.peak_bytes,
            judged.index,
        )

    def unstarted_case(self, judged: CaseVerdicts, number: int) -> EvalTestCase:
        """Return the result of a case that did not start: the time was up, or there was no program."""
        if judged.verdict in (Verdict.NO_CODE, Verdict.COMPILE_ERROR):
            case = CaseJudgement(judged.verdict, reason=judged.reason)
            info = self._exec_info(case) if judged.cases else RunCodeResponse("Failed", judged.reason)
            return EvalTestCase(False, info, verdict=judged.verdict.value, index=number)
        return EvalTestCase(False, RunCodeResponse("SandboxError", "Total Timeout"), index=number)

    def _exec_info(self, judged: CaseJudgement) -> RunCodeResponse:
        verdict = judged.verdict
        if verdict is Verdict.JUDGE_ERROR:
            return RunCodeResponse("SandboxError", judged.reason)
        if verdict is Verdict.COMPILE_ERROR and self.compiled:
            failed = CommandRunResult("Finished", return_code=1, stderr=judged.reason)
            return RunCodeResponse("Failed", "", compile_result=failed)
        if verdict is Verdict.TIME_LIMIT:
            run = _command_result(judged, "TimeLimitExceeded", None)
            return RunCodeResponse("Failed", "Case Timeout", run_result=run)
        # These servers compare outputs after a successful run. A wrong value fails in the process itself.
        printed = isinstance(self.problem.tests, StdinTests)
        wrong = verdict is Verdict.WRONG_ANSWER
        if verdict is Verdict.ACCEPTED or (wrong and printed):
            return RunCodeResponse("Success", run_result=_command_result(judged, "Finished", 0))
        message = "Wrong Answer" if wrong and isinstance(self.problem.tests, CallTests) else ""
        return RunCodeResponse("Failed", message, run_result=_command_result(judged, "Finished", 1))

    def _test_info(self, index: int, *, full: bool) -> dict[str, Any] | None:
        tests, most = self.problem.tests, None if full else _SHOWN_CHARS
        if isinstance(tests, StdinTests):
            case = tests.cases[index]
            return {"input": {"stdin": case.input[:most]}, "output": {"stdout": case.output[:most]}}
        if isinstance(tests, CallTests):
            call = tests.cases[index]
            function_fields = {"type": "function_call", "fn_name": tests.function}
            return {**function_fields, "input": call.args, "output": [call.expected]}
        return None


def _command_result(
    judged: CaseJudgement, status: Literal["Finished", "TimeLimitExceeded"], code: int | None
) -> CommandRunResult:
    return CommandRunResult(
        *(status, judged.wall_s, code, None, judged.reason), cpu_time=judged.cpu_s, peak_rss=judged.peak_bytes
    )


def _language_name(name: str) -> str:
    try:
        return language_named(name, "the program").name
    except UserError as error:
        raise RequestRefused(422, "unknown_language", str(error)) from None


def _extract(completion: str, language: str, names: Iterable[str]) -> tuple[str, _Origin]:
    """Return the program in a reply, and its origin."""
    source = extract_program(completion, "program", language, names) or ""
    if not source:
        return "", "empty"
    fences = completion.count("```") + completion.count("~~~")
    return source, "heuristic" if not fences else "incomplete_fenced" if fences % 2 else "fenced"


ENDPOINTS = (
    HttpEndpoint(
        *("POST", "/common_evaluate_batch", evaluate, "ScaleBox: judge by a table or a list."),
        *(SubmitRequest, EvalResult),
        refuses=(400, 500, 501),
        invalid_status=422,
    ),
)
