"""Test code that needs one interpreter with the program is refused with the reason, before anything runs."""

from __future__ import annotations

import pytest

from tests.beside import data_beside
from tests.judge.judge_problems import assert_problem, python
from whetstone.judge import Judge, Verdict
from whetstone.judge.kinds.assert_code import NotSeparable, refuse_inseparable

DATA = data_beside(__file__)

VALUE = DATA["value"]
CANNOT = DATA["cannot"]  # fmt: skip


@pytest.mark.drawn(4)
@pytest.mark.parametrize(("code", "why"), CANNOT.items())
def test_code_that_needs_one_interpreter_is_refused_unless_a_reference_passes(
    judge: Judge, code: str, why: str
) -> None:
    for program in (VALUE, "def V(x): pass"):  # whatever the program is
        named = judge.judge(assert_problem(asserts=[code]), python(program))
        assert named.verdict is Verdict.JUDGE_ERROR
        assert why in (named.reason or "")
    shared = judge.judge(assert_problem((VALUE,), asserts=[code]), python(VALUE))
    assert shared.shared_interpreter, shared.reason
    assert shared.verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    "code",
    [
        "class W:\n    pass\nassert kept(W) is W",
        "assert type(called(str)) is str and V(1).many.__class__ is list",
        "import inspect\ndef f(): pass\nassert inspect.isfunction(f) and called(str)",
        "from unittest.mock import patch\nwith patch('sys.stdout'):\n    V(1).say()",
        "class T:\n    def name(self): return self.__class__.__name__\nassert T().name()",
    ],
)
def test_code_that_needs_no_common_interpreter_is_not_refused(code: str) -> None:
    refuse_inseparable(code, frozenset({"V", "kept", "called"}))
    with pytest.raises(NotSeparable):
        refuse_inseparable(f"{code}\nclass X(V): pass", frozenset({"V"}))
