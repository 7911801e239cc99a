"""The feedback that a model gets about a verdict. It consists of fixed phrases and numbers only.

A judgement's reason may quote the expected output of a hidden test. The text of an exception may hold
anything that the program put there, such as the test's input. Neither is repeated.
"""

from __future__ import annotations

import builtins
import re
from typing import Literal

from whetstone.core.verdict import CaseJudgement, Judgement, Verdict

Detail = Literal["cases", "verdict"]

_DESCRIPTIONS = {
    Verdict.ACCEPTED: "passed",
    Verdict.WRONG_ANSWER: "wrong answer",
    Verdict.RUNTIME_ERROR: "the program failed",
    Verdict.TIME_LIMIT: "the time limit was exceeded",
    Verdict.MEMORY_LIMIT: "the memory limit was exceeded",
    Verdict.OUTPUT_LIMIT: "the program put out too much",
    Verdict.COMPILE_ERROR: "the program does not compile",
    Verdict.NO_CODE: "there is no program in the reply",
    Verdict.JUDGE_ERROR: "the test could not be run",
}
_EXCEPTIONS = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
}
_CLASS = re.compile(r"(?:^|\n)(\w+)(?=:|\s*$)")
MOST_CASES = 8


def describe_verdict(verdict: Verdict) -> str:
    """Return the phrase for a verdict."""
    return _DESCRIPTIONS[verdict]


def feedback(judgement: Judgement, *, detail: Detail = "cases") -> str:
    """Describe a judgement in a few lines. ``cases``: which tests failed, and how; ``verdict``: the verdict
    alone.

    It contains no text that a test or a program made. Of an exception it names the class, if it is a builtin.
    """
    if detail == "verdict" or judgement.verdict in (Verdict.COMPILE_ERROR, Verdict.NO_CODE):
        return f"Verdict: {_DESCRIPTIONS[judgement.verdict]}."
    failed = [case for case in judgement.cases if case.verdict is not Verdict.ACCEPTED]
    lines = [f"Tests: {len(judgement.cases) - len(failed)} passed, {len(failed)} failed."]
    lines += [f"Test {case.index + 1}: {describe_case(case)}." for case in failed[:MOST_CASES]]
    if len(failed) > MOST_CASES:
        lines.append(f"And {len(failed) - MOST_CASES} more.")
    return "\n".join(lines if failed else [f"Verdict: {_DESCRIPTIONS[judgement.verdict]}."])


def describe_case(case: CaseJudgement) -> str:
    """Return the phrase for a case, and the class of a builtin exception."""
    text = _DESCRIPTIONS[case.verdict]
    if case.verdict is Verdict.RUNTIME_ERROR:
        raised = [name for name in _CLASS.findall(case.reason) if name in _EXCEPTIONS]
        return f"{text} ({raised[-1]})" if raised else text
    return text
