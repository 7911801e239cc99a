"""Assert tests that hand over functions and objects of their own: exceptions either way, data, operators.

Only plain data and closed lists cross, and honest programs notice nothing of that.
"""

from __future__ import annotations

import pytest

from tests.judge.judge_problems import assert_problem, python
from whetstone.judge import Judge, Verdict

SETUP = """
from collections import OrderedDict
from dataclasses import dataclass
class Boom(Exception):
    def __init__(self, code): super().__init__(f"boom {code}"); self.code = code
def fail(): raise Boom(7)
def bad(): raise ValueError("plain words")
class Node:
    label: str
    def __init__(self, v, next=None): self.v, self.next = v, next
class Slotted:
    __slots__ = ("a",)
    def __init__(self, a): self.a = a
@dataclass(frozen=True, order=True)
class P:
    x: int
    y: int
class Prop:
    def __init__(self): self._t = 0
    @property
    def t(self): return self._t
    @t.setter
    def t(self, v): self._t = int(v)
    def __call__(self, n): return n + self._t
    def __str__(self): return f"Prop {self._t}"
def raised(f, *args):
    try: f(*args)
    except Exception as e: return e
"""
PROGRAM = """
def through(f): return f()
def caught(f):
    try: return f()
    except Exception as e: return f"{type(e).__name__}: {e}"
def retry(f, n):
    for i in range(n):
        try: return f()
        except Exception as e: last = e
    raise last
def mark(node):
    seen = 0
    while node:
        node.visited = True
        assert node.visited
        node.label = "x"
        node = node.next
        seen += 1
    return seen
def put(s, v): s.a = v
def uniq(ps): return len(set(ps))
def big(ps): return max(ps)
def prop(p):
    p.t = "5"
    return p.t, p(3), str(p), f"{p}"
def odd(d): d["z"] = d.pop("a")
def dec(b): return b.decode("utf-8")
class Missing(OSError): pass
def missing(): raise Missing(2, "no", "file")
class Balance(Exception):
    def __init__(self, left): super().__init__("too little"); self.left = left
def pay(): raise Balance(3)
def sloppy(): raise UnicodeDecodeError("utf-8", b"", 0, 1, "words")
def place(): compile("1 +", "f.py", "exec")
def several(): raise ExceptionGroup("two", [ValueError(1), TypeError(2)])
def text(n): return str(n) + repr(n)
def nested(f): return f(lambda x: x + 1)
def same(f): return f
"""


@pytest.mark.parametrize(
    "test",
    [
        "e = raised(through, fail)\nassert type(e) is Boom and e.code == 7 and str(e) == 'boom 7'",
        "e = raised(retry, fail, 3)\nassert type(e) is Boom and e.code == 7",
        "assert str(raised(through, lambda: {}['k'])) == \"'k'\"",
        "assert caught(bad) == 'ValueError: plain words'",
        "assert caught(lambda: 1 / 0) == 'ZeroDivisionError: division by zero'",
        "assert caught(lambda: [][0]) == 'IndexError: list index out of range'",
        "n = Node(1, Node(2))\nassert mark(n) == 2 and n.label == 'x' and not hasattr(n, 'visited')",
        "s = Slotted(1)\nput(s, 4)\nassert s.a == 4",
        "assert uniq([P(1, 2), P(1, 2), P(2, 3)]) == 2",
        "assert big([P(1, 2), P(9, 2), P(2, 3)]) == P(9, 2)",
        "assert prop(Prop()) == (5, 8, 'Prop 5', 'Prop 5')",
        "d = OrderedDict(a=1, b=2)\nodd(d)\nd['q'] = 1\nassert [*d] == ['b', 'z', 'q']",
        "e = raised(dec, b'\\xff')\nassert e.start == 0 and e.object and 'invalid start' in str(e)",
        "e = raised(missing)\nassert (e.errno, e.strerror, e.filename) == (2, 'no', 'file')",
        "e = raised(pay)\nassert e.left == 3 and type(e).__name__ == 'Balance' and e.args == ('too little',)",
        "e = raised(sloppy)\nassert isinstance(e, UnicodeDecodeError) and e.reason == 'words' and str(e)",
        "e = raised(place)\nassert isinstance(e, SyntaxError) and e.lineno == 1",
        "e = raised(several)\nassert isinstance(e, ExceptionGroup) and e.message == 'two'",
        "assert text(Node(1)) == '<Node object>' * 2",
        "assert nested(lambda g: g(1) + 1) == 3",
        "f = lambda: 1\nassert same(f) is f",
    ],
)
def test_what_an_honest_program_does_with_functions_and_objects_of_the_test(judge: Judge, test: str) -> None:
    judgement = judge.judge(assert_problem(setup=SETUP, asserts=[test]), python(PROGRAM))
    assert judgement.accepted, judgement.reason


def test_a_failed_assertion_is_not_forgotten_for_another_that_the_program_raises(judge: Judge) -> None:
    """The callback would tell, guess by guess, which value is right."""
    code = """
def look(x): assert x == 3
find(look)
try: never()
except AssertionError: pass
else: assert False
"""
    honest = "def find(look): look(3)\ndef never(): assert False"
    guessing = """
def find(look):
    for guess in range(9):
        try: return look(guess)
        except AssertionError: pass
def never(): assert False
"""
    problem = assert_problem(asserts=[code])
    assert judge.judge(problem, python(honest)).accepted
    assert judge.judge(problem, python(guessing)).verdict is Verdict.WRONG_ANSWER


def test_an_assertion_of_the_programs_own_may_pass_through_a_function_of_the_tests(judge: Judge) -> None:
    code = "assert tried(lambda check: check(-1)) == 'refused'"
    source = """
def check(x): assert x > 0
def tried(f):
    try: f(check)
    except AssertionError: return 'refused'
"""
    judgement = judge.judge(assert_problem(asserts=[code]), python(source))
    assert judgement.accepted, judgement.reason


DEEP = "def down(n, f): return 0 if n == 0 else 1 + f(n - 1, down)"


@pytest.mark.parametrize(("depth", "accepted"), [(40, True), (100_000, False)])
def test_calls_back_and_forth_are_bounded(judge: Judge, depth: int, accepted: bool) -> None:
    code = f"import sys\nsys.setrecursionlimit(10**6)\nassert down({depth}, again) == {depth}"
    setup = "def again(n, g): return g(n, again)"
    source = f"import sys\nsys.setrecursionlimit(10**6)\n{DEEP}"
    judgement = judge.judge(assert_problem(setup=setup, asserts=[code]), python(source))
    assert judgement.accepted is accepted, judgement.reason
    assert judgement.verdict is not Verdict.JUDGE_ERROR


COMPUTED = """
from functools import cached_property
class Case:
    def __init__(self, n): self.n = n
    @cached_property
    def cached(self): return self.n * 3 + 1
    @property
    def given(self): return self.n * 3 + 1
    @staticmethod
    def fixed(): return 28
    @classmethod
    def made(cls): return 28
"""


@pytest.mark.parametrize("name", ["cached", "given", "fixed", "made"])
def test_what_a_class_of_the_tests_computes_is_not_replaced(judge: Judge, name: str) -> None:
    code = f"case = Case(9)\nr = f(case)\nx = case.{name}\nassert r == (x() if callable(x) else x)"
    abuse = f"def f(case):\n    try: case.{name} = 5\n    except AttributeError: pass\n    return 5"
    problem = assert_problem(setup=COMPUTED, asserts=[code])
    assert judge.judge(problem, python(abuse)).verdict is Verdict.WRONG_ANSWER
    assert judge.judge(problem, python("def f(case): return case.n * 3 + 1")).accepted
