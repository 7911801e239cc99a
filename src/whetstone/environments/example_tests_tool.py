"""The tool ``run_tests``: a program is judged on the examples that the statement shows.

Hidden tests are never run. Results consist of fixed phrases, and of inputs and expected values that are in
the statement.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

from msgspec.structs import replace

from whetstone.core.problem import AssertTests, CallTests, Problem, Program, Scoring, StdinTests
from whetstone.core.verdict import Judgement, Verdict, is_fault_of_tests
from whetstone.environments.feedback import MOST_CASES, describe_case, describe_verdict
from whetstone.environments.shown_tests import ShownTests, shown_tests
from whetstone.environments.single_turn import assemble
from whetstone.environments.tool import Tool, ToolError, ToolFault, ToolSession

_MOST_SHOWN = 500


class RunTests(Tool):
    """Judges a program on the examples of the statement. It is offered only if there are any."""

    name = "run_tests"
    description = (
        "Runs a program on the examples of the problem, and returns which of them it passes. Further tests "
        "decide whether the program is right."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"program": {"type": "string", "description": "the whole source of the program"}},
        "required": ["program"],
        "additionalProperties": False,
    }
    # The judge has deadlines of its own. This is for a machine that is overloaded.
    timeout_s = 3600.0

    def is_offered(self, problem: Problem) -> bool:
        """See Tool."""
        return shown_tests(problem) is not None

    async def call(self, arguments: dict[str, Any], session: ToolSession) -> str:
        """See Tool."""
        problem = session.episode.problem
        tests = shown_tests(problem)
        assert tests is not None  # the tool was offered
        if not arguments["program"].strip():
            raise ToolError("the program is empty")
        # Completing a long program takes a moment. A thread keeps the event loop responsive.
        source = await asyncio.to_thread(assemble, problem, arguments["program"])
        program = Program(problem.language, source)
        shown = replace(problem, tests=tests, scoring=Scoring())
        judgement = await session.episode.judge(
            program, problem=shown, stop_at_first_failure=False, max_cases=None
        )
        # If a checker fails on an example, the model may have chosen the output. Its episode goes on.
        if judgement.verdict is Verdict.JUDGE_ERROR and not is_fault_of_tests(judgement):
            raise ToolFault(f"tool `run_tests`: {judgement.reason}")
        return _report(tests, judgement)


def _report(tests: ShownTests, judgement: Judgement) -> str:
    if judgement.verdict is Verdict.COMPILE_ERROR or not judgement.cases:
        return f"Examples: {describe_verdict(judgement.verdict)}."
    passed = sum(case.verdict is Verdict.ACCEPTED for case in judgement.cases)
    parts = [f"Examples: {passed} of {len(judgement.cases)} passed."]
    for case in judgement.cases[:MOST_CASES]:
        text = f"Example {case.index + 1}: {describe_case(case)}."
        failed = case.verdict is not Verdict.ACCEPTED
        parts.append(f"{text}\n{_example(tests, case.index)}" if failed else text)
    return "\n\n".join(parts)


def _example(tests: ShownTests, index: int) -> str:
    """Return an example as text. All of it is in the statement."""
    if isinstance(tests, AssertTests):
        return (tests.asserts or [])[index][:_MOST_SHOWN]
    if isinstance(tests, StdinTests):
        case = tests.cases[index]
        return f"Input:\n{case.input[:_MOST_SHOWN]}\nExpected output:\n{case.output[:_MOST_SHOWN]}"
    return _example_call(tests, index)


def _example_call(tests: CallTests, index: int) -> str:
    case = tests.cases[index]
    arguments, expected = (_as_text(value) for value in ([*case.args, *case.kwargs.values()], case.expected))
    name = f"{case.operations}, " if case.operations else ""
    return f"Arguments: {name}{arguments[:_MOST_SHOWN]}\nExpected: {expected[:_MOST_SHOWN]}"


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
