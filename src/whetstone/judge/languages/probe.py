"""Whether each language works here: found out by judging a small program in it."""

from __future__ import annotations

from whetstone.errors import UserError
from whetstone.judge.api import Judge
from whetstone.judge.languages.language import SUM_INPUT, SUM_OUTPUT
from whetstone.judge.languages.table import LANGUAGES
from whetstone.judge.languages.toolchains import Availability, available_languages
from whetstone.problem import Problem, Program, StdinCase, StdinTests

SUM_PROBLEM = Problem(
    id="doctor/sum", statement="", tests=StdinTests(cases=[StdinCase(input=SUM_INPUT, output=SUM_OUTPUT)])
)


def probe_languages(judge: Judge) -> list[Availability]:
    """Every language with its version, or with what is missing or does not work."""
    return [found if not found.available else _tried(judge, found) for found in available_languages()]


def _tried(judge: Judge, found: Availability) -> Availability:
    program = Program(found.language, LANGUAGES[found.language].proof)
    try:
        judged = judge.judge(SUM_PROBLEM, program)
    except UserError as error:
        return Availability(found.language, False, str(error))
    if judged.accepted:
        return found
    return Availability(
        found.language, False, f"{found.detail}, but a sum was judged {judged.verdict.value}: {judged.reason}"
    )
