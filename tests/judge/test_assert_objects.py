"""Assert tests: what crosses between test and program besides plain values, and what never decides.

Every honest form comes with a program that abuses it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.judge.judge_problems import assert_problem, python
from whetstone.judge import Judge, Judgement, Verdict

POINT = """
from typing import NamedTuple
class Point(NamedTuple):
    x: int
    y: int
    def norm(self):
        return abs(self.x) + abs(self.y)
def corners():
    return [Point(0, 0), Point(3, 4)]
def moved(point, by):
    return point._replace(x=point.x + by)
"""
LIST_NODE = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next
def build(values):
    head = None
    for value in reversed(values):
        head = ListNode(value, head)
    return head
def values(head):
    found = []
    while head is not None:
        found.append(head.val)
        head = head.next
    return found
"""
MONEY = """
import functools
@functools.total_ordering
class Money:
    def __init__(self, cents): self.cents = cents
    def __eq__(self, other): return self.cents == other.cents
    def __lt__(self, other): return self.cents < other.cents
    def __add__(self, other): return Money(self.cents + other.cents)
    def __mul__(self, times): return Money(self.cents * times)
def largest(many):
    return max(many)
"""


def judged(judge: Judge, source: str, *references: str, **tests: Any) -> Judgement:
    return judge.judge(assert_problem(references, **tests), python(source))


NAMED = [
    "assert corners()[1].x == 3 and corners()[1].y == 4",
    "assert corners() == [(0, 0), (3, 4)] and isinstance(corners()[0], tuple)",
    "p = Point(1, 2)\nassert isinstance(p, Point) and p == Point(1, 2)",
    "p = Point(1, 2)\nassert p.norm() == 3 and p._asdict() == dict(x=1, y=2)",
    "assert moved(Point(1, 2), 4) == (5, 2) and moved(corners()[1], 1).x == 4",
    "from collections import namedtuple\nP = namedtuple('P', 'x y')\nassert moved(P(1, 2), 1).x == 2",
    "a, b = corners()[1]\nassert (a, b) == (3, 4) and sorted(corners(), reverse=True)[0].x == 3",
]


def test_named_tuples_cross_with_their_names(judge: Judge) -> None:
    judgement = judged(judge, POINT, POINT, asserts=NAMED)
    assert judgement.accepted, judgement.reason
    assert not judgement.shared_interpreter


@pytest.mark.parametrize(
    "forged",
    [
        # Equality, order and hash of its own do not come along.
        POINT.replace("def norm", "__eq__ = __ne__ = __lt__ = lambda self, other: True\n    def norm")
        .replace("Point(3, 4)", "Point(9, 9)"),
        # Fields that would stand in place of what a tuple does.
        "class T(tuple):\n    _fields = ('__eq__', '__len__')\n"
        "def corners(): return [T((lambda *a: True, lambda *a: 2))] * 2\nPoint = moved = corners",
        "class T(tuple):\n    _fields = ('x', 'x')\n"
        "def corners(): return [T((3, 4))] * 2\nPoint = moved = corners",
        "class T(tuple):\n    _fields = ('x y): import os #',)\ndef corners(): return [T((3,))] * 2\n"
        "Point = moved = corners",
    ],
)  # fmt: skip
def test_named_tuples_decide_nothing(judge: Judge, forged: str) -> None:
    assert judged(judge, forged, POINT, asserts=NAMED[:2]).verdict is not Verdict.ACCEPTED


LINKED = {
    "setup": LIST_NODE,
    "asserts": [
        "assert values(rotate(build([1, 2, 3, 4, 5]), 2)) == [4, 5, 1, 2, 3]",
        "assert total(build([1, 2, 3])) == 6",
        "h = build([7])\nassert replace(h, 8) is None and h.val == 8",
    ],
}
ROTATE = """
def rotate(head, k):
    nodes, node = [], head
    while node:
        nodes.append(node)
        node = node.next
    k %= len(nodes)
    nodes[-1].next = head
    nodes[-k - 1].next = None
    return nodes[-k]
def total(head):
    return 0 if head is None else head.val + total(head.next)
def replace(head, value):
    head.val = value
"""


def test_objects_of_the_tests_own_classes_can_be_given_to_a_program(judge: Judge) -> None:
    judgement = judged(judge, ROTATE, ROTATE, **LINKED)
    assert judgement.accepted, judgement.reason
    assert not judgement.shared_interpreter
    wrong = judged(judge, ROTATE.replace("k %= len(nodes)", "k = 1"), ROTATE, **LINKED)
    assert wrong.verdict is Verdict.WRONG_ANSWER


EQUALS = {
    "setup": """
class Box:
    def __init__(self, v): self.v = v
    def same(self, other): return self.v == other
""",
    "asserts": ["b = Box(41)\nbump(b)\nassert b.same(42)"],
}


@pytest.mark.parametrize(
    "abuse",
    [
        "def bump(b): b.same = lambda other: True",
        "def bump(b): b.__class__.same = lambda self, other: True",
        "def bump(b): b.__dict__['same'] = lambda other: True",
        "def bump(b): type(b).__eq__ = lambda s, o: True\n",
        "class V:\n    def __eq__(self, other): return True\ndef bump(b): b.v = V()",
        "def bump(b): b.same.__func__.__code__ = (lambda s, o: True).__code__",
        "def bump(b): b.__init__.__globals__['Box'] = None",
        "def bump(b): b.v = b.same.__globals__['expected']",
        "def bump(b): object.__setattr__(b, '_number', 99); b.v",
        "def bump(b): b.x = print; b._y = 1",
    ],
)
def test_a_program_cannot_decide_through_the_tests_objects(judge: Judge, abuse: str) -> None:
    honest = "def bump(b): b.v += 1"
    assert judged(judge, honest, honest, **EQUALS).accepted
    assert judged(judge, abuse, honest, **EQUALS).verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)


OPERATORS = [
    "assert Money(3) < Money(5) and Money(5) >= Money(5) and not Money(5) < Money(3)",
    "assert Money(3) + Money(5) == Money(8)",
    "assert [m.cents for m in sorted([Money(5), Money(3)])] == [3, 5]",
    "assert largest([Money(1), Money(9), Money(4)]).cents == 9",
]


def test_operators_between_objects_of_a_tested_class_are_the_programs(judge: Judge) -> None:
    judgement = judged(judge, MONEY, MONEY, asserts=OPERATORS)
    assert judgement.accepted, judgement.reason
    assert not judgement.shared_interpreter
    assert not judged(judge, MONEY.replace("self.cents <", "self.cents >"), MONEY, asserts=OPERATORS).accepted


_AGREES = {"lt": 1, "gt": 1, "le": 1, "ge": 1, "eq": 1, "sub": 0, "rsub": 0, "abs": 0}
YES = "class Any:\n" + "".join(f"    __{n}__ = lambda self, *other: {v}\n" for n, v in _AGREES.items())


@pytest.mark.parametrize(
    "test",
    [
        "assert abs(area(2) - 3.14159 * 4) < 1e-3",
        "assert area(2) > 12",
        "assert 12 < area(2) < 13",
        "assert area(2) == 12.56636",
        "assert area(2) <= Shape(13).size",
    ],
)
def test_operators_with_a_value_of_the_tests_are_never_the_programs(judge: Judge, test: str) -> None:
    """It would be told the expected value, and could agree with it."""
    honest = (
        "def area(r): return 3.14159 * r * r\nclass Shape:\n    def __init__(self, size): self.size = size\n"
    )
    forged = (
        YES + "def area(r): return Shape(1)\nclass Shape(Any):\n    def __init__(self, size): self.size = 1\n"
    )
    assert judged(judge, honest, honest, asserts=[test]).accepted
    judgement = judged(judge, forged, honest, asserts=[test])
    assert judgement.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)


SUBCLASSED = {
    "unittest": """
import unittest
class Dog(Animal):
    def sound(self): return "woof"
class TestAnimals(unittest.TestCase):
    def test_sound(self): self.assertEqual(Dog("Rex").speak(), "Rex says woof")
""",
}
ANIMAL = """
class Animal:
    def __init__(self, name): self.name = name
    def speak(self): return f"{self.name} says {self.sound()}"
"""


def test_what_only_works_in_one_interpreter_is_judged_there_and_marked(judge: Judge) -> None:
    judgement = judged(judge, ANIMAL, ANIMAL, **SUBCLASSED)
    assert judgement.accepted, judgement.reason
    assert judgement.shared_interpreter
    assert judgement.cases[0].shared_interpreter
    wrong = judged(judge, ANIMAL.replace("says", "said"), ANIMAL, **SUBCLASSED)
    assert (wrong.verdict, wrong.shared_interpreter) == (Verdict.WRONG_ANSWER, True)


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("import os\nos._exit(0)", Verdict.RUNTIME_ERROR),
        ("raise SystemExit(0)", Verdict.RUNTIME_ERROR),
        (ANIMAL + "while True: pass", Verdict.TIME_LIMIT),
        ("class Animal(", Verdict.COMPILE_ERROR),
        ("import os\nos.write(7, b'l' + bytes(8)); os._exit(0)", Verdict.RUNTIME_ERROR),
        ("def unrelated(): pass", Verdict.RUNTIME_ERROR),
    ],
)
def test_one_interpreter_needs_positive_evidence_too(judge: Judge, source: str, verdict: Verdict) -> None:
    assert judged(judge, source, ANIMAL, **SUBCLASSED).verdict is verdict


@pytest.mark.parametrize("references", [(), (ANIMAL.replace("says", "said"),)])
def test_without_a_reference_that_shows_the_need_there_is_no_shared_interpreter(
    judge: Judge, references: tuple[str, ...]
) -> None:
    judgement = judged(judge, ANIMAL, *references, **SUBCLASSED)
    assert not judgement.accepted
    assert not judgement.shared_interpreter


def test_a_program_cannot_bring_about_a_shared_interpreter(judge: Judge) -> None:
    """Whatever it does to the proxy: where the reference passes through it, so must every program."""
    odd = "class O:\n    def __eq__(self, other): return True\ndef add(a, b): return O()"
    judgement = judged(judge, odd, "def add(a, b): return a + b", asserts=["assert add(1, 2) == 3"])
    assert (judgement.verdict, judgement.shared_interpreter) == (Verdict.WRONG_ANSWER, False)
