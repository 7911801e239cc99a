"""Honest programs in the styles that people and models write, and the verdicts on honest mistakes."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

from typing import Any

import pytest

from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from whetstone.core.errors import UserError
from whetstone.judge import Judge, Judgement, Program, Verdict

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
    problem = stdin_problem(("3\n1 2 3\n", "6\n"))
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


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x): return x + 1", 2),
        ("def f(x): return (1, 2)", [1, 2]),
        ("def f(x): return x / 3", 1 / 3),
        ("def f(x):\n    yield 1\n    yield 2", [1, 2]),
        ("def f(x): return map(str, [x])", ["1"]),
        ("def f(x): return {x: 'a'}.items()", [[1, "a"]]),
        ("def f(x): return {1: 2}", {"1": 2}),
        ("def f(x): return 10 ** 5000 % 7 + len(str(10 ** 5000))", 10**5000 % 7 + 5001),
        ("def f(x): return 2 ** 200", 2**200),
        ("def f(x): print('noise'); return None", None),
        ("from collections import Counter\ndef f(x): return Counter('aab')", {"a": 2, "b": 1}),
        ("f = lambda x: float('nan')", float("nan")),
        ("def f(x):\n    return g(x)\ndef g(x):\n    return x if x > 900 else g(x + 1)", 901),
    ],
)
def test_a_returned_value_counts_by_value(judge: Judge, source: str, expected: Any) -> None:
    judgement = judge.judge(call_problem("f", ([1], expected)), python(source))
    assert judgement.accepted, judgement


def test_arguments_are_fresh_for_every_case(judge: Judge) -> None:
    problem = call_problem("f", ([[1]], 1), ([[1]], 1))
    assert judge.judge(problem, python("def f(x): x.append(1); return len(x) - 1")).accepted


def test_a_method_of_a_class_is_called_with_leetcodes_names_at_hand(judge: Judge) -> None:
    source = (
        "class Solution:\n    def f(self, nums: List[int]) -> Optional[int]:\n"
        "        return heappop(nums) + math.inf * 0 if not nums else Counter(nums).most_common(1)[0][0]"
    )
    problem = call_problem("f", ([[2, 2, 1]], 2), **{"class": "Solution"})
    assert judge.judge(problem, python(source)).accepted


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("def f(x): return '2'", Verdict.WRONG_ANSWER),
        ("def f(x): return object()", Verdict.WRONG_ANSWER),
        ("def f(x):\n    while True: yield 1", Verdict.WRONG_ANSWER),
        ("def g(x): return 2", Verdict.RUNTIME_ERROR),
        ("def f(): return 2", Verdict.RUNTIME_ERROR),
        ("def f(x): raise ValueError('no')", Verdict.RUNTIME_ERROR),
        ("def f(x) return 2", Verdict.COMPILE_ERROR),
        ("def f(x):\n    while True: pass", Verdict.TIME_LIMIT),
        ("def f(x): return [0] * 10**9", Verdict.MEMORY_LIMIT),
        ("def f(x): return f(x)", Verdict.RUNTIME_ERROR),
    ],
)
def test_a_failed_call_has_its_verdict(judge: Judge, source: str, verdict: Verdict) -> None:
    judgement = judge.judge(call_problem("f", ([1], 2)), python(source))
    assert judgement.verdict is verdict, judgement


CHECK = assert_problem(check="def check(f):\n    assert f(2) == 4\n    assert f(3) == 9", entry_point="sq")


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("def sq(x): return x * x", Verdict.ACCEPTED),
        ("def sq(x): return 4", Verdict.WRONG_ANSWER),
        ("def sq(x): return None.x", Verdict.RUNTIME_ERROR),
        ("def square(x): return x * x", Verdict.RUNTIME_ERROR),
        ("def sq(x): return x * x\nraise ValueError", Verdict.RUNTIME_ERROR),
        ("def sq(x): return x *", Verdict.COMPILE_ERROR),
        ("def sq(x):\n    while True: pass", Verdict.TIME_LIMIT),
        ("def sq(x): return bytearray(1 << 30)", Verdict.MEMORY_LIMIT),
        ("def sq(x):\n    while True: print('x' * 1000)", Verdict.OUTPUT_LIMIT),
    ],
)
def test_a_check_function_has_its_verdicts(judge: Judge, source: str, verdict: Verdict) -> None:
    judgement = judge.judge(CHECK, python(source))
    assert judgement.verdict is verdict, judgement
    assert not judgement.shared_interpreter


UNITTEST = """
import unittest

class TestStack(unittest.TestCase):
    def setUp(self):
        self.stack = Stack()

    def test_push_and_pop(self):
        self.stack.push(1)
        self.stack.push([2])
        self.assertEqual(self.stack.pop(), [2])
        self.assertEqual(len(self.stack), 1)
        self.assertIsInstance(self.stack, Stack)

    def test_empty(self):
        with self.assertRaises(IndexError):
            self.stack.pop()
        with self.assertRaisesRegex(Empty, "nothing"):
            self.stack.peek()

    def test_equality_and_text(self):
        other = Stack()
        self.assertEqual(self.stack, other)
        other.push(1)
        self.assertNotEqual(self.stack, other)
        self.assertEqual(str(other), "Stack(1)")
        self.assertEqual([x for x in other], [1])
        self.assertIn(1, other)

if __name__ == "__main__":
    unittest.main()
"""
STACK = """
class Empty(Exception):
    pass

class Stack:
    def __init__(self): self.items = []
    def push(self, x): self.items.append(x)
    def pop(self): return self.items.pop()
    def peek(self): raise Empty("nothing here")
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __eq__(self, other): return self.items == other.items
    def __str__(self): return f"Stack({', '.join(map(str, self.items))})"
"""


def test_unit_tests_meet_the_classes_of_a_program(judge: Judge) -> None:
    problem = assert_problem(unittest=UNITTEST)
    assert judge.judge(problem, python(STACK)).accepted
    wrong = judge.judge(problem, python(STACK.replace("items.pop()", "items.pop(0)")))
    assert wrong.verdict is Verdict.WRONG_ANSWER
    assert (
        judge.judge(problem, python(STACK.replace("raise Empty", "raise KeyError"))).verdict
        is not Verdict.ACCEPTED
    )


PROXY_ASSERTS = [
    ("assert f([3, 1]) == [1, 3]", "f = sorted"),
    ("x = [3, 1]\nf(x)\nassert x == [1, 3]", "def f(x): x.sort()"),
    ("x = [[2, 2], [1]]\ny = x[0]\nf(x)\nassert x == [[1], [2, 2, 0]] and x[1] is y",
     "def f(x): x.reverse(); x[1].append(0)"),
    ("d = {'a': {1}}\nf(d)\nassert d == {'a': {1, 2}, 'b': 0}", "def f(d): d['a'].add(2); d['b'] = 0"),
    ("assert f(lambda a: a + 1, 2) == 3", "def f(g, x): return g(x)"),
    ("assert f(len, 'abc') == 3 and f(int, '3') == 3", "def f(g, x): return g(x)"),
    ("try:\n    f(-1)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'neg'",
     "def f(x): raise ValueError('neg')"),
    ("try:\n    f(0)\nexcept AssertionError:\n    pass\nelse:\n    assert False", "def f(x): assert x"),
    ("assert f(1)(2) == 3", "def f(a): return lambda b: a + b"),
    ("assert list(f(3)) == [0, 1, 2]", "def f(n): yield from range(n)"),
    ("g = f()\nassert next(g) == 0 and next(g) == 1", "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1"),
    ("assert f('a1') and not f('a')", "import re\ndef f(s): return re.search('[0-9]', s)"),
    ("assert f().x == 5 and f().double() == 10",
     "class A:\n    x = 5\n    def double(self): return 2 * self.x\ndef f(): return A()"),
    ("assert f(1) == P(1, 2) and f(1) != P(1, 3) and len({f(1), P(1, 2)}) == 1",
     "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int\n    y: int\ndef f(x): return P(x, 2)"),
    ("assert f() is Color.RED and f() == Color.RED and Color.RED != Color.BLUE",
     "import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\ndef f(): return Color.RED"),
    ("with f() as x:\n    assert x == 1",
     "import contextlib\n@contextlib.contextmanager\ndef f(): yield 1"),
    ("assert f.__name__ == 'f' and f.__doc__ == 'Doc.'", "def f():\n    'Doc.'"),
    ("assert f() == {1: (2.5, None, True)} and LIMIT == 7", "LIMIT = 7\ndef f(): return {1: (2.5, None, True)}"),
    ("import math\nassert math.isclose(f(2), math.sqrt(2))", "import math\ndef f(x): return math.sqrt(x)"),
    ("assert math.isclose(f(2), math.sqrt(2))", "import math\ndef f(x): return math.sqrt(x)"),
    ("assert f(iter([1, 2])) == 3", "def f(it): return sum(it)"),
    ("assert f() == ('a', b'b', 1j)", "def f(): return 'a', b'b', 1j"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "source"), PROXY_ASSERTS)
def test_test_code_sees_the_program_as_if_it_were_in_the_same_process(
    judge: Judge, code: str, source: str
) -> None:
    judgement = judge.judge(assert_problem(asserts=[code]), python(source))
    assert judgement.accepted, judgement


def test_a_broken_test_is_the_judges_failure_and_no_verdict(judge: Judge) -> None:
    broken: list[dict[str, Any]] = [
        assert_problem(asserts=["assert f( == 1"]),
        assert_problem(check="def verify(f): pass", entry_point="f"),
        assert_problem(setup="import no_such_module", asserts=["assert f() == 1"]),
        assert_problem(unittest="import unittest\nclass T(unittest.TestCase):\n    pass"),
        assert_problem(
            unittest="import unittest\nclass T(unittest.TestCase):\n    @unittest.skip('x')\n    def test_a(self): pass"
        ),
    ]
    for problem in broken:
        judgement = judge.judge(problem, python("def f(): return 1"))
        assert judgement.verdict is Verdict.JUDGE_ERROR, judgement
        assert judgement.score is None


def test_a_checker_decides_alone(judge: Judge) -> None:
    def judged(check: str, source: str = "print('2 1')") -> Judgement:
        checker = {"type": "python", "source": check}
        return judge.judge(stdin_problem(("2", "1 2"), checker=checker), python(source))

    by_sorting = (
        "def check(input, output, expected): return sorted(output.split()) == sorted(expected.split())"
    )
    assert judged(by_sorting).accepted
    assert judged(by_sorting, "print(3)").verdict is Verdict.WRONG_ANSWER
    assert judged(by_sorting, "print('2 1'); exit(3)").verdict is Verdict.RUNTIME_ERROR
    for bad in (
        "def check(input, output, expected): return 1",
        "def check(i, o, e): 1 / 0",
        "check = 3",
        "def",
    ):
        assert judged(bad).verdict is Verdict.JUDGE_ERROR
    assert judged("import os\ndef check(i, o, e): os._exit(0)").verdict is Verdict.JUDGE_ERROR


def test_bad_input_is_the_callers_error_and_no_verdict(judge: Judge) -> None:
    with pytest.raises(UserError, match="the judge runs python"):
        judge.judge(SUM, Program("cobol", "x"))
    with pytest.raises(UserError, match="tests"):
        judge.judge({"id": "x", "statement": ""}, python("x"))
    with pytest.raises(UserError, match="tier"):
        Judge(workers=1, minimum_tier="rot")
    assert judge.judge(SUM, None).verdict is Verdict.NO_CODE
