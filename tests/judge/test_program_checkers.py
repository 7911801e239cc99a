"""Checkers: a Python function, or a program in three protocols; and what it means when one fails."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import python, stdin_problem
from whetstone.judge import Judge, Judgement, Verdict

TEXTS: dict[str, str] = data_beside(__file__)["texts"]
TESTLIB_LIKE = TEXTS["testlib_like"]
KATTIS_LIKE = TEXTS["kattis_like"]
SCALEBOX_LIKE = TEXTS["scalebox_like"]
PROTOCOLS = {"testlib": TESTLIB_LIKE, "kattis": KATTIS_LIKE, "scalebox": SCALEBOX_LIKE}
# Sums to the input: the expected output is one of many right answers.
CASE = ("4", "2 2")


def checked(judge: Judge, protocol: str, source: str, printed: str, language: str = "python") -> Judgement:
    checker: dict[str, Any] = {
        "type": "program",
        "language": language,
        "source": source,
        "protocol": protocol,
    }
    if protocol == "kattis":
        checker["arguments"] = ["case_sensitive"]
    return judge.judge(stdin_problem(CASE, checker=checker), python(f"print({printed!r})"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_program_decides_by_its_exit_code(judge: Judge, protocol: str) -> None:
    assert checked(judge, protocol, PROTOCOLS[protocol], "1 3").accepted
    assert checked(judge, protocol, PROTOCOLS[protocol], "2 2").accepted
    for wrong in ("1 2", "", "x"):
        assert checked(judge, protocol, PROTOCOLS[protocol], wrong).verdict is Verdict.WRONG_ANSWER


def test_an_exception_while_reading_the_output_refuses_it(judge: Judge) -> None:
    """In every form of checker in Python, as long as it decides on the expected output."""
    reading = "def check(input, output, expected):\n    return sum(map(int, output.split())) == int(input)\n"
    problem = stdin_problem(CASE, checker={"type": "python", "source": reading})
    assert judge.judge(problem, python("print('x')")).verdict is Verdict.WRONG_ANSWER
    parsing = "import sys\nnumbers = [int(w) for w in open(sys.argv[2]).read().split()]\n"
    parsing += "sys.exit(sum(numbers) != 4)"
    assert checked(judge, "testlib", parsing, "1 3").accepted
    refused = checked(judge, "testlib", parsing, "x")
    assert (refused.verdict, "raised ValueError" in refused.reason) == (Verdict.WRONG_ANSWER, True)
    always = parsing.replace("sys.argv[2]", "'nowhere'")
    assert checked(judge, "testlib", always, "x").verdict is Verdict.JUDGE_ERROR


def test_the_files_of_a_checker_hold_the_bytes_that_were_printed(judge: Judge) -> None:
    source = "import sys\nsys.exit(open('answer.txt', 'rb').read() != bytes([0, 255, 13, 10]))"
    checker = {"type": "program", "language": "python", "source": source, "protocol": "scalebox"}
    problem = stdin_problem(CASE, checker=checker)
    printer = "import sys; sys.stdout.buffer.write(bytes([0, 255, 13, 10]))"
    assert judge.judge(problem, python(printer)).accepted
    assert not judge.judge(problem, python(printer.replace("255", "254"))).accepted


CPP = TEXTS["cpp"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")
def test_a_checker_in_cpp(judge: Judge) -> None:
    assert checked(judge, "testlib", CPP, "1 3", "cpp").accepted
    assert checked(judge, "testlib", CPP, "1 1", "cpp").verdict is Verdict.WRONG_ANSWER
    assert checked(judge, "testlib", CPP, "x", "cpp").verdict is Verdict.WRONG_ANSWER
    segfault = "int main(int, char**) { volatile int* p = nullptr; return *p; }"
    assert checked(judge, "testlib", segfault, "1 3", "cpp").verdict is Verdict.JUDGE_ERROR
    broken = checked(judge, "scalebox", "int main( {", "1 3", "cpp")
    assert (broken.verdict, "does not compile" in broken.reason) == (Verdict.JUDGE_ERROR, True)
