"""What a model is told of a verdict: words of closed lists and numbers, and nothing else of a judgement.

A judgement's reasons may quote what a hidden test expects, and an exception's text may hold whatever the
program put there, such as the test's input. Neither is repeated.
"""

from __future__ import annotations

import builtins
import re
from typing import Literal

from whetstone.verdict import CaseJudgement, Judgement, Verdict

Detail = Literal["cases", "verdict"]

_WORDS = {
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


def verdict_words(verdict: Verdict) -> str:
    """A verdict as a model is told it."""
    return _WORDS[verdict]


def feedback(judgement: Judgement, *, detail: Detail = "cases") -> str:
    """A judgement in a few lines. ``cases``: which tests failed, and how; ``verdict``: the verdict alone.

    No text that a test or a program made is in it: of an exception its class, if that is one of Python's own.
    """
    if detail == "verdict" or judgement.verdict in (Verdict.COMPILE_ERROR, Verdict.NO_CODE):
        return f"Verdict: {_WORDS[judgement.verdict]}."
    failed = [case for case in judgement.cases if case.verdict is not Verdict.ACCEPTED]
    lines = [f"Tests: {len(judgement.cases) - len(failed)} passed, {len(failed)} failed."]
    lines += [f"Test {case.index + 1}: {_of_case(case)}." for case in failed[:MOST_CASES]]
    if len(failed) > MOST_CASES:
        lines.append(f"And {len(failed) - MOST_CASES} more.")
    return "\n".join(lines if failed else [f"Verdict: {_WORDS[judgement.verdict]}."])


def _of_case(case: CaseJudgement) -> str:
    words = _WORDS[case.verdict]
    if case.verdict is Verdict.RUNTIME_ERROR:
        raised = [name for name in _CLASS.findall(case.reason) if name in _EXCEPTIONS]
        return f"{words} ({raised[-1]})" if raised else words
    return words
