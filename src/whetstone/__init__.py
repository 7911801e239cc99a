"""Whetstone: reinforcement learning for code models, rewarded by tests you can trust.

The names below are imported on first use, so that ``import whetstone`` stays cheap. None of them loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whetstone.core.lazy import lazy_names

if TYPE_CHECKING:
    from whetstone.core.problem import Problem, Program
    from whetstone.core.verdict import Judgement, Verdict
    from whetstone.judge.api import Judge
    from whetstone.judge.async_judge import AsyncJudge
    from whetstone.service.async_client import AsyncJudgeClient
    from whetstone.service.client import JudgeClient

__version__ = "0.2.0"

__all__ = [
    "AsyncJudge",
    "AsyncJudgeClient",
    "Judge",
    "JudgeClient",
    "Judgement",
    "Problem",
    "Program",
    "Verdict",
]

__getattr__ = lazy_names(
    __name__,
    {
        "whetstone.core.problem": ("Problem", "Program"),
        "whetstone.core.verdict": ("Judgement", "Verdict"),
        "whetstone.judge.api": ("Judge",),
        "whetstone.judge.async_judge": ("AsyncJudge",),
        "whetstone.service.async_client": ("AsyncJudgeClient",),
        "whetstone.service.client": ("JudgeClient",),
    },
)
