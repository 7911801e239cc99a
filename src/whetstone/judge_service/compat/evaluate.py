"""POST /common_evaluate, /common_evaluate_batch and /submit: the program in a reply, judged."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from starlette.responses import Response

from whetstone.errors import UserError
from whetstone.judge.extract import extract_program, names_called
from whetstone.judge.languages.table import language_named
from whetstone.judge_service.calls import Call, Endpoint
from whetstone.judge_service.compat.budget import Budget, Judged, judged_within
from whetstone.judge_service.compat.schemas import (
    CommandRunResult,
    EvalResult,
    EvalTestCase,
    RunCodeResponse,
    SubmitRequest,
    TestConfig,
)
from whetstone.judge_service.compat.tables import SCALEBOX_MODE, problem_of, table_of
from whetstone.judge_service.refusal import Refused, bad_request, json_response
from whetstone.judge_service.visiting import asked_deadline
from whetstone.problem import CallTests, Compare, Problem, Program, StdinTests
from whetstone.verdict import CaseJudgement, Verdict

_How = Literal["fenced", "incomplete_fenced", "heuristic", "empty"]
_BUDGET_S = 300.0
_ANSWER_SLACK_S = 30.0
"""Beyond the budget for the cases: for their turn. The clients known wait 40 s longer than their budget."""
_SHOWN = 1000
"""Characters of a case's input and output that are shown of it, unless the whole is asked for."""


async def evaluate(call: Call) -> Response:
    """POST /common_evaluate, /common_evaluate_batch."""
    asked = await call.message(SubmitRequest)
    return json_response(await _evaluated(call, asked))


async def submit(call: Call) -> Response:
    """POST /submit: by the tests that are provided, or those of a dataset that is served here."""
    asked = await call.message(SubmitRequest)
    if asked.config.provided_data is not None:
        return json_response(await _evaluated(call, asked))
    problem = call.service.datasets.problem(asked.dataset, asked.id)
    _refuse_code(asked.config)
    language = _language(asked.config.language or problem.language)
    source, how = await asyncio.to_thread(_extracted, asked.completion, language, names_called(problem))
    return json_response(await _judged(call, asked, problem, Program(language, source), how))


async def _evaluated(call: Call, asked: SubmitRequest) -> EvalResult:
    config = asked.config
    _refuse_code(config)
    if not config.language:
        raise bad_request("config.language is missing: the language of the program")
    language = _language(config.language)
    table = await asyncio.to_thread(table_of, config.provided_data)
    names = [name for name in (table.fn_name, table.entry_point) if name]
    source, how = await asyncio.to_thread(_extracted, asked.completion, language, names)
    if config.extra.compat == "scalebox" and not min(len(table.input), len(table.output)) and not table.test:
        extra = {"compat": "scalebox"}  # all of no tests have passed
        return EvalResult(asked.id, True, source, extracted_type=how, extra=extra, verdict="accepted")
    name = f"{asked.dataset or 'request'}/{asked.id}"
    problem = await asyncio.to_thread(problem_of, config, table, source, name)
    return await _judged(call, asked, problem, Program(language, source), how)


async def _judged(
    call: Call, asked: SubmitRequest, problem: Problem, program: Program, how: Any
) -> EvalResult:
    service, extra = call.service, asked.config.extra
    service.check(problem)
    budget_s = extra.total_timeout or _BUDGET_S
    deadline = service.deadline(asked_deadline(call.request) or budget_s + _ANSWER_SLACK_S)
    service.gate.admit(call.visit.client, deadline)
    if extra.compat == "scalebox" and problem.checker is not None:
        judged = await _as_scalebox(call, deadline, problem, program, budget_s)
        if not extra.run_all_cases:
            judged.cases = _until_first_failure(judged.cases)
    else:
        limits = Budget(budget_s, extra.run_all_cases)
        judged = await judged_within(call, deadline, problem, program, limits)
    call.visit.more["verdict"] = judged.verdict.value
    shown = _Shown(problem, compiled=bool(language_named(program.language, "the program").run))
    tests = [shown.case(each, full=extra.return_full_case) for each in judged.cases]
    if extra.run_all_cases or not judged.cases:
        tests += [shown.not_run(judged, number) for number in range(len(tests), judged.total)]
    accepted = len(tests) == judged.total > 0 and all(each.passed for each in tests)
    said = {"compat": extra.compat} if extra.compat else None
    return EvalResult(
        *(asked.id, accepted, program.source),
        tests=tests,
        extracted_type=how,
        extra=said,
        verdict=judged.verdict.value,
        num_cases=judged.total,
    )


async def _as_scalebox(
    call: Call, deadline: float, problem: Problem, program: Program, budget_s: float
) -> Judged:
    """By lines; the special judge is asked about outputs that these refuse, and refuses where it fails."""
    by_lines = msgspec.structs.replace(problem, checker=None, compare=Compare(SCALEBOX_MODE))
    judged = await judged_within(call, deadline, by_lines, program, Budget(budget_s, run_all=True))
    if all(case.verdict is not Verdict.WRONG_ANSWER for case in judged.cases):
        return judged
    limits = Budget(budget_s, run_all=True, failing_checker_refuses=True)
    by_checker = await judged_within(call, deadline, problem, program, limits)
    decided = {case.index: case for case in by_checker.cases}
    cases = [
        decided.get(case.index, case) if case.verdict is Verdict.WRONG_ANSWER else case
        for case in judged.cases
    ]
    failed = next((case for case in cases if case.verdict is not Verdict.ACCEPTED), None)
    verdict, reason = (failed.verdict, failed.reason) if failed else (Verdict.ACCEPTED, "")
    return Judged(cases, verdict, judged.total, reason)


def _until_first_failure(cases: list[CaseJudgement]) -> list[CaseJudgement]:
    passed = itertools.takewhile(lambda case: case.verdict is Verdict.ACCEPTED, cases)
    return cases[: len(list(passed)) + 1]


@dataclass(frozen=True)
class _Shown:
    """How those servers show the cases of a problem. What a program printed stays where it was compared."""

    problem: Problem
    compiled: bool
    """Whether the program's language has a compiler."""

    def case(self, judged: CaseJudgement, *, full: bool) -> EvalTestCase:
        """A case that was judged."""
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

    def not_run(self, judged: Judged, number: int) -> EvalTestCase:
        """A case that was not begun: time was up, or there was nothing to run."""
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
            run = _run(judged, "TimeLimitExceeded", None)
            return RunCodeResponse("Failed", "Case Timeout", run_result=run)
        # A wrong output is that of a program that ran well. A wrong value is found by who called for it.
        printed = isinstance(self.problem.tests, StdinTests)
        wrong = verdict is Verdict.WRONG_ANSWER
        if verdict is Verdict.ACCEPTED or (wrong and printed):
            return RunCodeResponse("Success", run_result=_run(judged, "Finished", 0))
        message = "Wrong Answer" if wrong and isinstance(self.problem.tests, CallTests) else ""
        return RunCodeResponse("Failed", message, run_result=_run(judged, "Finished", 1))

    def _test_info(self, index: int, *, full: bool) -> dict[str, Any] | None:
        tests, most = self.problem.tests, None if full else _SHOWN
        if isinstance(tests, StdinTests):
            case = tests.cases[index]
            return {"input": {"stdin": case.input[:most]}, "output": {"stdout": case.output[:most]}}
        if isinstance(tests, CallTests):
            call = tests.cases[index]
            named = {"type": "function_call", "fn_name": tests.function}
            return {**named, "input": call.args, "output": [call.expected]}
        return None


def _run(
    judged: CaseJudgement, status: Literal["Finished", "TimeLimitExceeded"], code: int | None
) -> CommandRunResult:
    return CommandRunResult(
        *(status, judged.wall_s, code, None, judged.reason), cpu_time=judged.cpu_s, peak_rss=judged.peak_bytes
    )


def _language(name: str) -> str:
    try:
        return language_named(name, "the program").name
    except UserError as error:
        raise Refused(422, "unknown_language", str(error)) from None


def _refuse_code(config: TestConfig) -> None:
    if config.custom_extract_logic:
        raise Refused(
            501,
            "not_served",
            "custom_extract_logic is a client's code, and this server runs none of it: extract the program "
            "yourself and send it in a fence",
        )


def _extracted(completion: str, language: str, names: Iterable[str]) -> tuple[str, _How]:
    """The program in a reply, and where it was found."""
    source = extract_program(completion, "program", language, names) or ""
    if not source:
        return "", "empty"
    fences = completion.count("```") + completion.count("~~~")
    return source, "heuristic" if not fences else "incomplete_fenced" if fences % 2 else "fenced"


ENDPOINTS = tuple(
    Endpoint(
        *("POST", path, handler, says, SubmitRequest, EvalResult),
        refuses=refuses,
        invalid_status=422,
    )
    for path, handler, says, refuses in (
        ("/common_evaluate", evaluate, "ScaleBox: judge by a list of cases.", (400, 500, 501)),
        ("/common_evaluate_batch", evaluate, "ScaleBox: judge by a table of cases.", (400, 500, 501)),
        ("/submit", submit, "SandboxFusion: judge by provided data, or a dataset.", (400, 404, 500, 501)),
    )
)
