"""Check that each language works on this machine, by judging a small program in it."""

from __future__ import annotations

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program, StdinCase, StdinTests
from whetstone.judge.api import Judge
from whetstone.judge.languages.language import SUM_INPUT, SUM_OUTPUT
from whetstone.judge.languages.table import LANGUAGES
from whetstone.judge.languages.toolchains import Availability, available_languages

SUM_PROBLEM = Problem(
    id="doctor/sum", statement="", tests=StdinTests(cases=[StdinCase(input=SUM_INPUT, output=SUM_OUTPUT)])
)


def probe_languages(judge: Judge) -> list[Availability]:
    """Return each language with its version, or with what is missing or does not work."""
    return [_probe(judge, found) if found.available else found for found in available_languages()]


def _probe(judge: Judge, availability: Availability) -> Availability:
    program = Program(availability.language, LANGUAGES[availability.language].probe_source)
    try:
        judged = judge.judge(SUM_PROBLEM, program)
    except UserError as error:
        return Availability(availability.language, False, str(error))
    if judged.accepted:
        return availability
    return Availability(
        availability.language,
        False,
        f"{availability.detail}, but a sum was judged {judged.verdict.value}: {judged.reason}",
    )
