"""Programs meet in our judge what they meet in the official graders; no expected value meets them.

The verdicts written here are those of the graders themselves (see benchmarks/official.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from whetstone.core.problem import CallCase, CallTests, Problem, StdinCase, StdinTests
from whetstone.judge import Judge
from whetstone.judge.calling import Caller
from whetstone_graders import COMPARISONS, evalplus, livecodebench
from whetstone_graders.evalplus import EvalPlusTask
from whetstone_graders.form import OfficialForm


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=2, stop_at_first_failure=True, comparisons=COMPARISONS) as judge:
        yield judge


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with Caller() as caller:
        yield caller


def _accepts(judge: Judge, form: OfficialForm | None, code: str) -> bool:
    assert form is not None
    judged = judge.judge(form.problem, form.program(code))
    assert judged.score is not None, judged.reason
    return judged.accepted


_LINES = Problem(
    "lines",
    "",
    StdinTests([StdinCase("3\n1\n2\n3\n", "6\n"), StdinCase("1\n-5\n", "-5\n")]),
    source="livecodebench",
)
_SUM = "print(sum(int(x) for x in {}.split()[1:]))"
_LOOP = "n = int({0}())\nprint(sum(int({0}()) for _ in range(n)))"


@pytest.mark.parametrize(
    ("code", "accepted"),
    [
        (_LOOP.format("input"), True),
        (_SUM.format("sys.stdin.read()"), True),
        ("import sys\ninput = sys.stdin.readline\n" + _LOOP.format("input"), True),
        ("import sys\ninput = sys.stdin.buffer.readline\n" + _LOOP.format("input"), False),
        ("import sys\nprint(sum([int(x) for x in sys.stdin][1:]))", False),
        ("from sys import stdin\n" + _SUM.format("stdin.read()"), True),
        ("from sys import stdin\n" + _SUM.format("stdin.buffer.read()"), False),
        (_SUM.format("open(0).read()"), False),
        ("import sys\nsys.stdout.buffer.write(b'6')", False),
        (_LOOP.format("input") + "\nraise SystemExit(3)", True),
        (_LOOP.format("input") + "\nquit()", False),
        (_LOOP.format("input") + "\n1 // 0", False),
        (_LOOP.format("input") + "\nreturn", True),
        ("class Solution: pass\n" + _LOOP.format("input"), False),
        ("t = 0\ndef add(x):\n    global t\n    t += x\n" + _LOOP.format("input") + "\nadd(1)", False),
        ("def main():\n    n = int(input())\n    print(sum(int(input()) for _ in range(n)), '')\n"
         "if __name__ == '__main__':\n    main()", True),
        ("import resource\n" + _LOOP.format("input"), False),
        ("import os\nos.getcwd()\n" + _LOOP.format("input"), False),
        ("print(6) if int(input()) == 3 else print('-5.00')", True),
        ("print(6) if int(input()) == 3 else print('-5.0000001')", False),
        ("print(", False),
    ],
)  # fmt: skip
def test_livecodebench_programs_that_print(judge: Judge, code: str, accepted: bool) -> None:
    assert _accepts(judge, livecodebench.official_form(_LINES), code) is accepted


_PAIRS = Problem(
    "pairs",
    "",
    CallTests(
        [CallCase(expected=[[0, 1], [1, 0]], args=[2]), CallCase(expected=[[0, 0]], args=[1])],
        "f",
        "Solution",
    ),
    source="livecodebench",
)
_METHOD = "class Solution:\n    calls = 0\n    def f(self, n):\n        {}\n"


@pytest.mark.parametrize(
    ("code", "accepted"),
    [
        (_METHOD.format("return [[i, n - 1 - i] for i in range(n)]"), True),
        (_METHOD.format("return tuple([i, n - 1 - i] for i in range(n))"), True),
        (_METHOD.format("return [(i, n - 1 - i) for i in range(n)]"), False),
        (_METHOD.format("return map(lambda i: [i, n - 1 - i], range(n))"), False),
        (_METHOD.format("self.calls += 1; return self.calls < 2 and [[0, 1], [1, 0]]"), False),
        (_METHOD.format("return [[floor(i), n - 1 - i] for i in range(n)]"), True),
        (_METHOD.format("time.time(); return [[i, n - 1 - i] for i in range(n)]"), False),
        ("def f(n: List[int]): return [[i, n - 1 - i] for i in range(n)]", True),
        ("class E(list):\n    def __eq__(self, o): return True\n" + _METHOD.format("return E()"), False),
    ],
)  # fmt: skip
def test_livecodebench_functions(judge: Judge, code: str, accepted: bool) -> None:
    assert _accepts(judge, livecodebench.official_form(_PAIRS), code) is accepted


def _task(
    reference: str, base: list[list[object]], entry: str = "f", dataset: str = "humaneval"
) -> EvalPlusTask:
    return EvalPlusTask(dataset, entry, reference, base, [[7]], 0)


_HALF = "def f(x):\n    return x / 4 if x < 5 else (x, 10**9)"
_PLUS = Problem("half", "", CallTests([CallCase(expected=0)], "f"), source="humanevalplus")


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "accepted"),
    [
        (_HALF, True),
        ("def f(x):\n    return x / 4 + 1e-7 if x < 5 else (x, 10**9)", True),
        ("def f(x):\n    return x / 4 + 1e-5 if x < 5 else (x, 10**9)", False),
        # Base inputs expect floats, so that a tolerance holds there; for plus inputs it begins anew.
        ("def f(x):\n    return x / 4 if x < 5 else (x, 10**9 + 1)", False),
        ("def f(x):\n    return x / 4 if x < 5 else [x, 10**9]", False),
        (
            "def f(x, s=[]):\n    s.append(x)\n    return x / 4 + len(s) - 1 if x < 5 else (x, 10**9)",
            False,
        ),
        (
            "from fractions import Fraction as Q\ndef f(x): return Q(int(x), 4) if x < 5 else (x, 10**9)",
            True,
        ),
        ("print(1)\nx = input\ndef f(x):\n    print(x)\n    return x / 4 if x < 5 else (x, 10**9)", True),
        ("def f(x):\n    input()\n    return x / 4", False),
        ("def f(x):\n    open('/dev/null')\n    return x / 4 if x < 5 else (x, 10**9)", False),
        (_HALF + "\nif __name__ == '__main__':\n    1 // 0", True),
        (_HALF + "\nimport sys\nsys.exit(0)", False),
        ("def g(x): return 1", False),
        ("import os\nos._exit(0)", False),
    ],
)
def test_evalplus_programs(judge: Judge, caller: Caller, code: str, accepted: bool) -> None:
    form = evalplus.official_form(_PLUS, _task(_HALF, [[1.0], [2.0]]), caller)
    assert _accepts(judge, form, code) is accepted


@pytest.mark.process
def test_evalplus_tolerance_stays_on_for_integers_after_a_float(judge: Judge, caller: Caller) -> None:
    floats_first = _task("def f(x):\n    return x / 4 if x < 5 else 10**9", [[1.0], [7]])
    integers_first = _task(floats_first.reference, [[7], [1.0]])
    off_by_one = "def f(x):\n    return x / 4 if x < 5 else 10**9 + (1 if x != 8 else 0)"
    forms = [
        evalplus.official_form(_PLUS, EvalPlusTask("humaneval", "f", t.reference, t.base, [[8]], 0), caller)
        for t in (floats_first, integers_first)
    ]
    assert [_accepts(judge, form, off_by_one) for form in forms] == [True, False]


@pytest.mark.process
def test_evalplus_special_rules_come_with_the_dataset(judge: Judge, caller: Caller) -> None:
    reference = "import re\ndef check_str(s):\n    return re.search('a', str(s))"
    task = _task(reference, [["ba"], ["b"]], "check_str", "mbpp")
    form = evalplus.official_form(_PLUS, task, caller)
    assert _accepts(judge, form, "def check_str(s):\n    return 'a' in str(s)")
    assert _accepts(judge, form, "def check_str(s):\n    return object() if 'a' in str(s) else None")
    assert not _accepts(judge, form, "def check_str(s):\n    return object()")
    pair = _task("def Diff(x):\n    return [1, x]", [[2]], "Diff", "mbpp")
    form = evalplus.official_form(_PLUS, pair, caller)
    assert _accepts(judge, form, "def Diff(x):\n    return (y for y in (x, 1, x))")
    floats = evalplus.official_form(
        _PLUS, _task("def Diff(x): return [x / 4]", [[2]], "Diff", "mbpp"), caller
    )
    assert _accepts(judge, floats, "def Diff(x): return [x / 4 + 1e-7]")
    assert not _accepts(judge, floats, "def Diff(x): return (x / 4 + 1e-7,)")


@pytest.mark.process
def test_an_endless_call_ends_when_its_own_time_is_over(
    judge: Judge, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evalplus, "SECONDS", 0.2)
    form = evalplus.official_form(_PLUS, _task("def f(x): return x", [[1]]), caller)
    judged = judge.judge(form.problem, form.program("def f(x):\n    while True: pass"))
    assert not judged.accepted
    assert "TimeoutException" in judged.reason


@pytest.mark.process
def test_no_expected_value_is_in_the_program_or_its_arguments(caller: Caller) -> None:
    form = evalplus.official_form(_PLUS, _task("def f(x):\n    return x + 86371452", [[1]]), caller)
    tests = form.problem.tests
    assert isinstance(tests, CallTests)
    assert tests.cases[0].expected == [None, "86371453"]
    given = [form.program("def f(x): return x").source, *map(repr, (case.args for case in tests.cases))]
    assert not any("8637145" in text for text in given)
