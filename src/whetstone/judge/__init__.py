"""Problem + program → judgement. Acceptance needs positive evidence for every test."""

from whetstone.judge.api import AsyncJudge, Judge, Wishes
from whetstone.judge.extract import answer_part, extract_program, strip_thinking
from whetstone.problem import Problem, Program
from whetstone.verdict import CaseJudgement, Judgement, Verdict

__all__ = [
    "AsyncJudge",
    "CaseJudgement",
    "Judge",
    "Judgement",
    "Problem",
    "Program",
    "Verdict",
    "Wishes",
    "answer_part",
    "extract_program",
    "strip_thinking",
]
