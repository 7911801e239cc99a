"""Programs in every language may open their standard streams by name, as on any Unix."""

from __future__ import annotations

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import stdin_problem
from whetstone.core.errors import UserError
from whetstone.judge import Judge, Judgement, Program

DATA = data_beside(__file__)

LIMITS = {"cpu_s": 5.0, "memory_mb": 512.0, "output_mb": 1.0}

SUMS = DATA["sums"]


def judged(judge: Judge, language: str, source: str, wanted: str) -> Judgement:
    problem = {**stdin_problem(("3\n1 2 3\n", wanted)), "limits": LIMITS, "language": language}
    try:
        return judge.judge(problem, Program(language, source))
    except UserError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("language", SUMS)
def test_streams_have_their_names(judge: Judge, language: str) -> None:
    judgement = judged(judge, language, SUMS[language], "6")
    assert judgement.accepted, judgement


def test_the_names_of_the_streams_show_nothing_else(judge: Judge) -> None:
    if judge.isolation == "restricted":
        pytest.skip("this tier has no root of its own")
    source = DATA["source"]
    judgement = judged(judge, "bash", source, "end")
    assert judgement.accepted, judgement
