"""Problem + program → judgement. Acceptance needs positive evidence for every test."""

from whetstone.judge.api import AsyncJudge, Judge
from whetstone.judge.extract import answer_part, extract_program, names_called, strip_thinking
from whetstone.judge.options import JudgeOptions
from whetstone.problem import Problem, Program
from whetstone.verdict import CaseJudgement, Judgement, Verdict

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
