"""The asserts of a list: run in turn against the program imported once, as plain Python runs them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import AMPLE_LIMITS, LIMITS, assert_problem, python
from whetstone.judge import Judge, Verdict

DATA = data_beside(__file__)

COUNT = 4
ADD = assert_problem(asserts=[f"assert add({n}, {n + 1}) == {2 * n + 1}" for n in range(COUNT)])


def verdicts(judge: Judge, source: str, problem: dict[str, Any] = ADD) -> list[str]:
    return [case.verdict.value for case in judge.judge(problem, python(source)).cases]


def test_every_assert_has_its_own_verdict(judge: Judge) -> None:
    assert verdicts(judge, "def add(a, b): return a + b") == ["accepted"] * COUNT
    assert verdicts(judge, "def add(a, b): return 3") == [
        "wrong_answer",
        "accepted",
        "wrong_answer",
        "wrong_answer",
    ]
    assert verdicts(judge, "def add(a, b): return a + b if a != 2 else a / 0") == [
        "accepted",
        "accepted",
        "runtime_error",
        "accepted",
    ]


def test_the_program_is_imported_once_and_keeps_its_state(judge: Judge) -> None:
    imported_once = "import math\nmath.n = getattr(math, 'n', -1) + 1\nn = math.n\n"
    assert verdicts(judge, imported_once + "def add(a, b): return a + b + n") == ["accepted"] * COUNT
    counting = "calls = []\ndef add(a, b):\n    calls.append(a)\n    return a + b + len(calls) - 1"
    assert verdicts(judge, counting) == ["accepted"] + ["wrong_answer"] * (COUNT - 1)


def test_a_refused_assert_is_not_tried_again(judge: Judge) -> None:
    """A program that guesses by its process would otherwise have two guesses for every assert."""
    guess = "import os\ndef add(a, b): return a + b + (os.getpid() * 7919 + a) % 2"
    for _ in range(8):
        judged = judge.judge(ADD, python(guess))
        assert not judged.accepted
        assert {case.verdict for case in judged.cases} <= {Verdict.ACCEPTED, Verdict.WRONG_ANSWER}
        # All four stem from one process, whose number decides between two patterns.
        assert [case.verdict.value[0] for case in judged.cases] in (list("awaw"), list("wawa"))


@pytest.mark.parametrize(
    ("when_two", "verdict"),
    DATA["ends_the_process"],
)
def test_an_assert_that_ends_the_process_costs_only_itself(judge: Judge, when_two: str, verdict: str) -> None:
    source = f"def add(a, b):\n    if a == 2:\n        {when_two}\n    return a + b"
    problem = {**ADD, "limits": LIMITS if verdict == "time_limit" else AMPLE_LIMITS}
    assert verdicts(judge, source, problem) == ["accepted", "accepted", verdict, "accepted"]


def test_asserts_together_keep_the_limits_of_one(judge: Judge) -> None:
    """Each is within its limit; all together are not, and none is to suffer from that."""
    burn = "import time\ndef add(a, b):\n    end = time.process_time() + 0.2\n"
    burn += "    while time.process_time() < end: pass\n    return a + b"
    judged = judge.judge(ADD, python(burn))
    assert judged.accepted
    assert all(0.1 < case.cpu_s < 0.5 for case in judged.cases)


def test_a_program_that_does_not_compile_says_so_once(judge: Judge) -> None:
    assert verdicts(judge, "def add(a, b) return a + b") == ["compile_error"]
