"""A Python program that does not compile says where and why, in every kind of test alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import python
from whetstone.judge import Judge, Verdict

DATA = data_beside(__file__)

TALK = "def interact(input, read, write):\n    return read() == input\n"
# A test that needs one interpreter, which its reference shows.
FORGEABLE = {"asserts": ["assert f.__code__.co_argcount == 1"]}
KINDS: dict[str, dict[str, Any]] = DATA["kinds"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import os\nx = = 1\n", "invalid syntax (main.py, line 2)"),
        ("def f(x):\nreturn x", "expected an indented block after function definition on line 1 (main.py, "),
        ("x = '\0'", "null bytes"),
        ("def f(x):\n    return x\nprint(“hi”)", "(U+201C) (main.py, line 3)"),
        ("# coding: nonsense\n", "unknown encoding"),
        ("\n" * 6 + "break", "'break' outside loop (main.py, line 7)"),
    ],
)
def test_the_reason_names_the_line_and_the_error(judge: Judge, kind: str, source: str, why: str) -> None:
    for _ in range(2):  # also where the program was compiled before
        judgement = judge.judge(KINDS[kind], python(source))
        assert (judgement.verdict, len(judgement.cases)) == (Verdict.COMPILE_ERROR, 1)
        assert why in judgement.reason
        assert judgement.reason.startswith("the program does not compile: ")
        assert judgement.reason.isprintable()
        assert "secret" not in judgement.reason


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_reason_is_cut(judge: Judge, kind: str) -> None:
    name = "é" * 100_000
    judgement = judge.judge(KINDS[kind], python(f"def g({name}, {name}): pass"))
    assert judgement.verdict is Verdict.COMPILE_ERROR
    assert 100 < len(judgement.reason) <= 500


def test_a_program_that_claims_not_to_compile_only_loses(judge: Judge) -> None:
    """It may write what a harness would answer: that refuses it, in words that any terminal can show."""
    forger = "import os\nfor fd in range(3, 30):\n    try: os.write(fd, b'compile_error: \\x1b[2J')\n"
    forger += "    except OSError: pass\nos._exit(1)\ndef f(x): return x\n"
    for problem in KINDS.values():
        judgement = judge.judge(problem, python(forger))
        assert judgement.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR), judgement
        assert judgement.reason.isprintable()
