"""Forms of pytest in imported tests: they work as in pytest, or the row is dropped."""

from __future__ import annotations

import pytest

from whetstone.core.problem import Problem, Program
from whetstone.data.sources.pytest_tests import pytest_tests
from whetstone.data.sources.source import Skip
from whetstone.judge import Judge, Verdict

PROGRAM = """
class Odd(ValueError):
    pass


def half(n):
    if n % 2:
        raise Odd(f"{n} is odd")
    return n / 2
"""
WRONG = "def half(n):\n    return n\n\n\nclass Odd(ValueError):\n    pass\n"
FROM = "import pytest\nfrom solution import half, Odd\n\n"
WORKING = {
    "param": "@pytest.mark.parametrize('n, h', [pytest.param(4, 2, id='four'), (6, 3)])\n"
    "def test_half(n, h):\n    assert half(n) == h\n",
    "param of one": "@pytest.mark.parametrize('n', [pytest.param(4, id='four'), 6])\n"
    "def test_half(n):\n    assert half(n) == n / 2\n",
    "param in a list of the module": "CASES = [pytest.param(4, 2), pytest.param(6, 3)]\n"
    "@pytest.mark.parametrize(('n', 'h'), CASES, ids=['a', 'b'])\ndef test_half(n, h):\n"
    "    assert half(n) == h\n",
    "raises as a call": "def test_half():\n    pytest.raises(Odd, half, 3)\n",
    "raises as a call with names": "def test_half():\n"
    "    pytest.raises(ValueError, half, n=3).match('odd')\n",
    "type": "def test_half():\n    with pytest.raises(ValueError) as info:\n"
    "        half(3)\n    assert info.type is Odd\n",
    "text": "def test_half():\n    with pytest.raises(Odd) as info:\n        half(3)\n"
    "    assert '3 is odd' in str(info)\n",
    "match": "def test_half():\n    with pytest.raises(Odd) as info:\n        half(3)\n"
    "    assert info.match('^3')\n"
    "    assert info.typename == 'Odd' and str(info.value) == '3 is odd'\n",
    "several classes": "def test_half():\n"
    "    with pytest.raises((KeyError, Odd), match='odd'):\n        half(3)\n",
    "approx": "def test_half():\n    assert half(4) == pytest.approx(2.05, abs=0.1)\n"
    "    assert half(4) != pytest.approx(2 + 1e-6, abs=1e-9)\n"
    "    assert half(8) != pytest.approx(2, rel=0.1)\n"
    "    assert float('nan') == pytest.approx(float('nan'), nan_ok=True)\n"
    "    assert half(4) == pytest.approx(2)\n",
}
DROPPED = {
    "marks of a param": "@pytest.mark.parametrize('n', [pytest.param(3, marks=pytest.mark.xfail)])\n"
    "def test_half(n):\n    half(n)\n",
    "indirect parameters": "@pytest.mark.parametrize('n', [4], indirect=True)\n"
    "def test_half(n):\n    half(n)\n",
    "parameters of a class": "@pytest.mark.parametrize('n', [4])\nclass TestHalf:\n"
    "    def test_half(self, n=1):\n        half(n)\n",
    "a skipped class": "@pytest.mark.skip\nclass TestHalf:\n    def test_half(self):\n        half(1)\n",
    "a traceback": "def test_half():\n    with pytest.raises(Odd) as info:\n"
    "        half(3)\n    assert info.traceback\n",
    "an older form": "def test_half():\n    with pytest.raises(expected_exception=Odd):\n        half(3)\n",
    "a check": "def test_half():\n    with pytest.raises(Odd, check=lambda e: True):\n        half(3)\n",
    "fixtures": "def test_half(tmp_path):\n    half(2)\n",
    "skip": "def test_half():\n    pytest.skip('later')\n",
    "warns": "def test_half():\n    with pytest.warns(UserWarning):\n        half(2)\n",
    "unknown keywords": "def test_half():\n    assert half(4) == pytest.approx(2, **{'rel': 1})\n",
    "a mark in the parameters": "@pytest.mark.parametrize('n', [pytest.importorskip('numpy')])\n"
    "def test_half(n):\n    half(2)\n",
}


@pytest.fixture(scope="module")
def judge():
    with Judge(workers=1) as judge:
        yield judge


@pytest.mark.process
def test_forms_of_pytest_work(judge: Judge) -> None:
    for form, module in WORKING.items():
        problem = Problem("p", "", pytest_tests(FROM + module))
        assert judge.judge(problem, Program("python", PROGRAM)).verdict is Verdict.ACCEPTED, form
        refused = judge.judge(problem, Program("python", WRONG)).verdict
        assert refused in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR), form


def reason_of(module: str) -> str:
    with pytest.raises(Skip) as dropped:
        pytest_tests(module)
    return dropped.value.reason


def test_forms_that_need_pytest_itself_are_dropped() -> None:
    assert [form for form, module in DROPPED.items() if reason_of(FROM + module) != "needs_pytest"] == []
    for module in (
        "import pytest\n@pytest.mark.skip\ndef test_a(): pass",
        "def test_a(tmp_path): pass",
        "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self): pass",
        "def test_a():\n    import solution\n    solution.f()",
        "async def test_a(): pass",
    ):
        assert reason_of(module) == "needs_pytest"
    for module in ("def helper(): pass", "def test_a(:"):
        assert reason_of(module) == "malformed_tests"
