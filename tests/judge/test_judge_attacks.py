"""Attacks on the judge that need more than a program and its verdict; see also ``tables/attacks.toml``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from whetstone.judge import Judge, Verdict
from whetstone.judge.values import WireError, decode

DATA = data_beside(__file__)

pytestmark = pytest.mark.isolation


LONG_LIST = "x = [" + ", ".join(f"'{n:x}'" for n in range(9000)) + "]"


@pytest.mark.parametrize("longer", ["", LONG_LIST], ids=["short", "too long to be handed out"])
def test_a_program_cannot_plant_code_for_its_later_cases(judge: Judge, longer: str):
    source = DATA["source"]
    program = python(f"{longer}\n{source}")
    for problem in (
        stdin_problem(*[("50\n", "12586269025\n")] * 4),
        call_problem("fib", *[([50], 12586269025)] * 4),
    ):
        assert Verdict.ACCEPTED not in [case.verdict for case in judge.judge(problem, program).cases]


def test_each_case_of_a_function_gets_the_program_that_was_given(judge: Judge):
    problem = call_problem("fib", ([1], "main.py"), ([2], "main.py"), ([3], "main.py"))
    source = "import os\ndef fib(n):\n    return os.path.basename(fib.__code__.co_filename)\n"
    for line in ("", LONG_LIST):
        assert judge.judge(problem, python(f"{source}{line}")).verdict is Verdict.ACCEPTED
    broken = judge.judge(problem, python("def fib(n): return n +"))
    assert broken.verdict is Verdict.COMPILE_ERROR


@pytest.mark.parametrize(
    "problem",
    [call_problem("f", ([1], 2)), assert_problem(asserts=["assert f(1) == 2"])],
    ids=["call", "assert"],
)
def test_a_reason_can_be_written_as_text(judge: Judge, problem: dict[str, Any]) -> None:
    judgement = judge.judge(problem, python("def f(x): raise ValueError('\\ud800')"))
    assert judgement.verdict is Verdict.RUNTIME_ERROR
    assert json.dumps(judgement.reason, ensure_ascii=False).encode()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("tag", [b"E", b"C", b"O"])
def test_empty_containers_cannot_fill_the_memory_of_their_reader(tag: bytes) -> None:
    """Nine bytes on the wire, many hundreds in memory."""
    empty = tag + bytes(8)
    assert len(decode(b"l" + (100).to_bytes(8, "little") + empty * 100)) == 100
    with pytest.raises(WireError, match="more than"):
        decode(b"l" + (700_000).to_bytes(8, "little") + empty * 700_000)


@pytest.mark.parametrize(
    "problem",
    [
        call_problem("f", ([1], 2)),
        assert_problem(asserts=["assert f(1) == 2"]),
        stdin_problem(("", "2")),
    ],
    ids=["call", "assert", "stdin"],
)
def test_a_text_too_long_to_be_carried_is_a_verdict(judge: Judge, problem: dict[str, Any]) -> None:
    """Longer than a message inside the judge may be: no reason to go without a verdict."""
    source = "#" + "x" * (65 << 20) + "\ndef f(x): return 2\nprint(2)"
    judgement = judge.judge(problem, python(source))
    assert judgement.verdict is Verdict.COMPILE_ERROR, judgement.reason


@pytest.mark.parametrize(
    "body",
    [
        "return type('x' * 10**6, (), {})()",
        "raise ValueError('\\x1b[2J\\n\\x07' + 'x' * 10**6)",
        "print('\\x1b]0;title\\x07' * 10**4, file=sys.stderr, flush=True); os._exit(1)",
        "os.write(7, b'l' + S(2) + text(b'raised') + text(b'\\n' * 10**6)); os._exit(0)",
    ],
)
def test_a_reason_is_one_short_line_whatever_a_program_puts_there(judge: Judge, body: str) -> None:
    """Reasons go to files, pages and terminals by the million."""
    source = (
        "import os, struct, sys\ndef S(n): return struct.pack('<Q', n)\n"
        f"def text(s): return b's' + S(len(s)) + s\ndef f(x): {body}"
    )
    problem = {**call_problem("f", ([1], 2)), "limits": {"cpu_s": 2.0, "output_mb": 2.0}}
    judgement = judge.judge(problem, python(source))
    assert judgement.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)
    for reason in (judgement.reason, judgement.cases[0].reason):
        assert 0 < len(reason) <= 10 * 500
        assert reason.isprintable()
