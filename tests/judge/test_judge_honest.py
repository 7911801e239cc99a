"""Honest programs in the styles that people and models write, and the verdicts on honest mistakes."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

import pytest

from tests.judge.judge_problems import AMPLE_LIMITS, LIMITS, python, stdin_problem
from whetstone.core.errors import UserError
from whetstone.judge import Judge, Program, Verdict

pytestmark = [pytest.mark.process, pytest.mark.isolation]

SUM = stdin_problem(("3\n1 2 3\n", "6\n"), ("1\n5\n", "5\n"))

STDIN_STYLES = [
    "n = int(input())\nprint(sum(map(int, input().split())))",
    "import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])))",
    "import sys\ninput = sys.stdin.readline\nn = int(input())\nsys.stdout.write(str(sum(map(int, input().split()))))",
    "import sys\nlines = sys.stdin.buffer.read().split()\nsys.stdout.buffer.write(b'%d' % sum(map(int, lines[1:])))",
    "n = open(0).read().split()\nprint(sum(int(x) for x in n[1:]))",
    "import os\nprint(sum(map(int, os.read(0, 10**6).split()[1:])))",
    "import sys\nfor i, line in enumerate(sys.stdin):\n    if i:\n        print(sum(map(int, line.split())))",
    "def main():\n    input()\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()",
    "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\n"
    "def f(): input(); print(sum(map(int, input().split())))\n"
    "t = threading.Thread(target=f); t.start(); t.join()",
    "import io, os, sys\nsys.stdin = io.StringIO(os.read(0, 1000).decode())\n"
    "input()\nprint(sum(map(int, input().split())))\nsys.exit(0)",
    "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n"
    "input()\nprint(sum(A(int(x)).x for x in input().split()))",
    "input()\nprint(sum(map(int, input().split())), end='', flush=True)\nraise SystemExit",
]


@pytest.mark.parametrize("source", STDIN_STYLES)
def test_every_way_to_read_and_print_is_accepted(judge: Judge, source: str) -> None:
    judgement = judge.judge(SUM, python(source))
    assert judgement.accepted, judgement
    assert len(judgement.cases) == 2
    assert judgement.score == 1.0
    assert all(case.cpu_s > 0 and case.peak_bytes > 0 for case in judgement.cases)


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("print(7)", Verdict.WRONG_ANSWER),
        ("", Verdict.NO_CODE),
        (" \n\t", Verdict.NO_CODE),
        ("print(6", Verdict.COMPILE_ERROR),
        ("x = '\x00'", Verdict.COMPILE_ERROR),
        ("x = '\ud800'", Verdict.COMPILE_ERROR),
        ("print(6)\nprint(1 / 0)", Verdict.RUNTIME_ERROR),
        ("print(6)\nexit(1)", Verdict.RUNTIME_ERROR),
        ("print(6, flush=True)\nimport os\nos.abort()", Verdict.RUNTIME_ERROR),
        ("while True: pass", Verdict.TIME_LIMIT),
        ("x = bytearray(1 << 30)\nprint(6)", Verdict.MEMORY_LIMIT),
        ("while True: print('x' * 1000)", Verdict.OUTPUT_LIMIT),
    ],
)
def test_each_way_to_fail_has_its_verdict(judge: Judge, source: str, verdict: Verdict) -> None:
    limits = LIMITS if verdict is Verdict.TIME_LIMIT else AMPLE_LIMITS
    problem = stdin_problem(("3\n1 2 3\n", "6\n"), limits=limits)
    judgement = judge.judge(problem, python(source))
    assert judgement.verdict is verdict, judgement
    assert judgement.score == 0.0


def test_cases_are_judged_apart_and_the_score_is_their_share(judge: Judge) -> None:
    judgement = judge.judge(SUM, python("print(6)"))
    assert [case.verdict for case in judgement.cases] == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]
    assert judgement.verdict is Verdict.WRONG_ANSWER
    assert judgement.score == 0.5
    assert judgement.reason == "token 1: got '6', expected '5'"


def test_stopping_at_the_first_failure_runs_nothing_after_it() -> None:
    problem = stdin_problem(("1", "1"), ("2", "1"), ("3", "3"))
    with Judge(workers=1, stop_at_first_failure=True) as judge:
        judgement = judge.judge(problem, python("print(input())"))
    assert len(judgement.cases) == 2
    assert judgement.verdict is Verdict.WRONG_ANSWER


def test_bad_input_is_the_callers_error_and_no_verdict(judge: Judge) -> None:
    with pytest.raises(UserError, match="the judge runs python"):
        judge.judge(SUM, Program("cobol", "x"))
    with pytest.raises(UserError, match="tests"):
        judge.judge({"id": "x", "statement": ""}, python("x"))
    with pytest.raises(UserError, match="tier"):
        Judge(workers=1, minimum_tier="rot")
    assert judge.judge(SUM, None).verdict is Verdict.NO_CODE


POOL = """from concurrent.futures import ProcessPoolExecutor
import multiprocessing, os

def square(x):
    return x * x

if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool, ProcessPoolExecutor(2) as more:
        ok = pool.map(square, range(5)) == list(more.map(square, range(5))) == [0, 1, 4, 9, 16]
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"ok")
        os._exit(0)
    os.wait()
    print(os.read(read, 9).decode() if ok else "no")
"""


def test_processes_are_for_programs_to_use(judge: Judge) -> None:
    if judge.isolation == "restricted":
        pytest.skip("a program has one process on this tier")
    judgement = judge.judge(stdin_problem(("", "ok\n")), python(POOL))
    assert judgement.accepted, judgement.reason
