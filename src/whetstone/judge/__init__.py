"""Judge a program on a problem. It is accepted only with evidence for every test.

The names are imported when they are first used. A worker of the judge needs none of them, and ``Judge`` needs
neither asyncio nor the extraction of programs from replies.
"""

from typing import TYPE_CHECKING

from whetstone.core.lazy import lazy_names

if TYPE_CHECKING:
    from whetstone.core.problem import Problem, Program
    from whetstone.core.verdict import CaseJudgement, Judgement, Verdict
    from whetstone.judge.api import Judge
    from whetstone.judge.async_judge import AsyncJudge
    from whetstone.judge.extract import answer_part, extract_program, names_called, strip_thinking
    from whetstone.judge.options import JudgeOptions

__all__ = [
    "AsyncJudge",
    "CaseJudgement",
    "Judge",
    "JudgeOptions",
    "Judgement",
    "Problem",
    "Program",
    "Verdict",
    "answer_part",
    "extract_program",
    "names_called",
    "strip_thinking",
]

__getattr__ = lazy_names(
    __name__,
    {
        "whetstone.judge.api": ["Judge"],
        "whetstone.judge.async_judge": ["AsyncJudge"],
        "whetstone.judge.extract": ["answer_part", "extract_program", "names_called", "strip_thinking"],
        "whetstone.judge.options": ["JudgeOptions"],
        "whetstone.core.problem": ["Problem", "Program"],
        "whetstone.core.verdict": ["CaseJudgement", "Judgement", "Verdict"],
    },
)
