"""Honest programs whose functions and classes are tested: called with values, or used by test code."""
# ruff: noqa: E501 (programs on one line each read better than wrapped)

from __future__ import annotations

from typing import Any

import pytest

from tests.judge.judge_problems import assert_problem, call_problem, python
from whetstone.judge import Judge

# Program, arguments, expected value, class.
CALLED = [
    ("def f(x):\n    return x + 1\nif __name__ == '__main__':\n    n = int(input())\n    print(f(n))", [1], 2, None),
    ("import sys\ndef f(x): return x + 1\nif __name__ == '__main__':\n    sys.exit(print(f(3)))", [1], 2, None),
    ("import unittest\ndef f(x): return x + 1\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(1), 2)\nif __name__ == '__main__':\n    unittest.main()", [1], 2, None),
    ("from fractions import Fraction\ndef f(x): return Fraction(1,2)", [1], 0.5, None),
    ("from decimal import Decimal\ndef f(x): return Decimal('0.5')", [1], 0.5, None),
    ("from decimal import Decimal\ndef f(x): return Decimal('5')", [1], 5, None),
    ("from collections import deque\ndef f(x): return deque([1,2])", [1], [1, 2], None),
    ("def f(x): return range(3)", [1], [0, 1, 2], None),
    ("def f(x): return reversed([1,2])", [1], [2, 1], None),
    ("def f(x): return zip([1],[2])", [1], [[1, 2]], None),
    ("def f(x): return enumerate('ab')", [1], [[0, 'a'], [1, 'b']], None),
    ("def f(x): return {1:2}.keys()", [1], [1], None),
    ("def f(x): return sorted({3,1})", [1], [1, 3], None),
    ("from collections import OrderedDict\ndef f(x): return OrderedDict(b=1,a=2)", [1], {'a': 2, 'b': 1}, None),
    ("from collections import defaultdict\ndef f(x):\n    d=defaultdict(lambda: defaultdict(int)); d['a']['b']+=1\n    return d", [1], {'a': {'b': 1}}, None),
    ("from collections import namedtuple\nP=namedtuple('P','x y')\ndef f(x): return P(1,2)", [1], [1, 2], None),
    ("from enum import IntEnum\nclass E(IntEnum):\n    A=1\ndef f(x): return E.A", [1], 1, None),
    ("from enum import Enum\nclass E(str, Enum):\n    A='a'\ndef f(x): return E.A", [1], 'a', None),
    ("def f(x): return x == 1", [1], True, None),
    ("def f(x): return 1.0", [1], 1, None),
    ("def f(x): return 0.1+0.2", [1], 0.3, None),
    ("def f(x): return float('inf')", [1], float('inf'), None),
    ("def f(x): return 'é😀'", [1], 'é😀', None),
    ("def f(x, y=2, *a, z=3, **k): return x+y+z", [1], 6, None),
    ("import functools\nf=functools.partial(lambda a,b: a+b, 1)", [1], 2, None),
    ("class F:\n    def __call__(self, x): return x+1\nf=F()", [1], 2, None),
    ("class f:\n    def __new__(cls, x): return x+1", [1], 2, None),
    ("def f(x):\n    print('noise '*1000)\n    import sys; print('e', file=sys.stderr)\n    return x+1", [1], 2, None),
    ("def f(x):\n    import threading\n    r=[]\n    t=threading.Thread(target=lambda: r.append(x+1)); t.start(); t.join()\n    return r[0]", [1], 2, None),
    ("import sys\nsys.setrecursionlimit(10**6)\ndef f(x): return 0 if x==0 else 1+f(x-1)", [50000], 50000, None),
    ("from __future__ import annotations\nfrom typing import List\ndef f(x: List[int]) -> Foo: return x+1", [1], 2, None),
    ("x = input() if False else 0\ndef f(x): return x+1", [1], 2, None),
    ("def f(x):\n    x.append(3)\n    return x", [[1]], [1, 3], None),
    ("def f(x): return None", [1], None, None),
    ("def f(x): return [None, [], {}, '']", [1], [None, [], {}, ''], None),
    ("def f(d): return sorted(d.items())", [{'a': 1}], [['a', 1]], None),
    ("class Solution:\n    def f(self, x): return self.g(x)\n    def g(self, x): return x+1", [1], 2, 'Solution'),
    ("class Solution:\n    @staticmethod\n    def f(x): return x+1", [1], 2, 'Solution'),
    ("class Solution:\n    @classmethod\n    def f(cls, x): return x+1", [1], 2, 'Solution'),
    ("class Solution(object):\n    def __init__(self): self.m={}\n    @lru_cache(None)\n    def f(self, x): return x+1 if x else 0", [1], 2, 'Solution'),
    ("class Solution:\n    def f(self, x: int) -> int:\n        @cache\n        def g(i): return i+1\n        return g(x)\nif __name__ == '__main__':\n    print(Solution().f(int(input())))", [1], 2, 'Solution'),
    ("from typing import *\nclass Solution:\n    f = lambda self, x: x+1", [1], 2, 'Solution'),
    ("class Solution:\n    def f(self, x): return math.gcd(x, 4) + gcd(2,4) + sum(accumulate([0])) + bisect_left([1],1) + inf*0 if False else 2", [1], 2, 'Solution'),
    ("class Solution:\n    def f(self, x): return reduce(lambda a,b:a+b,[1,1]) * len(string.ascii_lowercase[:1]) + comb(2,3) + ceil(0) + (0 if bisect.bisect([1],0) == 0 else 1)", [1], 2, 'Solution'),
    ("class Solution:\n    def f(self, x): return max(x, 2) + int(pow(2, 0)) - sqrt(1) + floor(0.5) + fabs(0)", [1], 2, 'Solution'),
    ("class Solution:\n    def f(self, x):\n        q = PriorityQueue() if False else Queue() if False else deque([2])\n        return q[0]", [1], 2, 'Solution'),
    ("class Solution:\n    def f(self, x): return sorted([3,2], key=cmp_to_key(lambda a,b:a-b))[0] + itemgetter(0)([0])", [1], 2, 'Solution'),
    ("def f(x): return x+1\nf(input) if False else None\nexit() if False else 0", [1], 2, None),
    ("def f(x): return x+1\nprint(f(1))\nassert f(1)==2", [1], 2, None),
    ("def helper(): return 1\ndef f(x): return x+helper()", [1], 2, None),
    ("class Node:\n    def __init__(s,v): s.v=v\ndef f(x): return Node(x).v+1", [1], 2, None),
    ("def f(*nums): return sum(nums)+1", [1], 2, None),
    ("def f(x) -> 'int': return True + x", [1], 2, None),
    ("def f(s): return s[::-1].encode().decode()", ['ab'], 'ba', None),
    ("def f(x): return 10**1000", [1], 10**1000, None),
    ("import sys\ndef f(x): return sys.stdin.read()", [1], '', None),
    ("import pickle\nclass A:\n    pass\ndef f(x): return type(pickle.loads(pickle.dumps(A()))) is A", [1], True, None),
    ("from dataclasses import dataclass\n@dataclass\nclass A:\n    x: 'int'\ndef f(x): return A(x).x+1", [1], 2, None),
    ("import typing\nclass A:\n    y: 'A'\ndef f(x): return list(typing.get_type_hints(A))", [1], ['y'], None),
]  # fmt: skip

# Tests, program.
USED_BY_TESTS = [
    ({"asserts": ["assert f(2) == 4"]}, "def f(x): return x*x\nif __name__ == '__main__':\n    print(f(int(input())))"),
    ({"asserts": ["assert f(2) == 4"]}, "import unittest\ndef f(x): return x*x\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(1), 1)\nif __name__ == '__main__':\n    unittest.main()"),
    ({"asserts": ["assert f(2) == 4"]}, "import sys\ndef main():\n    print(f(2))\ndef f(x): return x*x\nif __name__ == '__main__':\n    sys.exit(main())"),
    ({"asserts": ["assert f([3,1]) == [1,3]"]}, "f = sorted"),
    ({"asserts": ["assert f(2) == 4"]}, "f = lambda x: x**2"),
    ({"asserts": ["assert f(2) == 4"]}, "from functools import lru_cache\n@lru_cache(None)\ndef f(x): return x*x"),
    ({"asserts": ["assert f((1,2),{'a':[1]}) == ((1,2),{'a':[1]})"]}, "def f(a,b): return a,b"),
    ({"asserts": ["assert set(f('aab')) == {('a',2),('b',1)}"]}, "from collections import Counter\ndef f(s): return Counter(s).items()"),
    ({"asserts": ["assert f('aab') == {'a':2,'b':1}"]}, "from collections import Counter\ndef f(s): return Counter(s)"),
    ({"asserts": ["assert f(3) == [0,1,2]"]}, "def f(n): return [*range(n)]"),
    ({"asserts": ["assert list(f(3)) == [0,1,2]"]}, "def f(n): return range(n)"),
    ({"asserts": ["assert list(f([1,2])) == [2,3]"]}, "def f(a): return map(lambda x: x+1, a)"),
    ({"asserts": ["assert tuple(f([1,2],[3,4])) == ((1,3),(2,4))"]}, "def f(a,b): return zip(a,b)"),
    ({"asserts": ["assert abs(f(2) - 1.4142135) < 1e-6"]}, "import math\ndef f(x): return math.sqrt(x)"),
    ({"asserts": ["assert f(1,2) == 3 and f(a=1,b=2) == 3"]}, "def f(a, b=0): return a+b"),
    ({"asserts": ["assert f(True) is False and f(0) is True"]}, "def f(x): return not x"),
    ({"asserts": ["assert f() is None"]}, "def f(): print('hi')"),
    ({"asserts": ["assert f('x') == 'x' * 100000"]}, "def f(s): return s*100000"),
    ({"asserts": ["assert len(f(10**5)) == 10**5"]}, "def f(n): return list(range(n))"),
    ({"asserts": ["assert f(10**5) == 10**5"]}, "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else 1 + f(n-1)"),
    ({"asserts": ["assert f(1000) == 7 ** 1000"]}, "def f(n): return 7 ** n"),
    ({"asserts": ["from decimal import Decimal\nassert f(1) == Decimal('0.5')"]}, "from decimal import Decimal\ndef f(x): return Decimal(x)/2"),
    ({"asserts": ["from fractions import Fraction\nassert f(1) == Fraction(1,2)"]}, "from fractions import Fraction\ndef f(x): return Fraction(x,2)"),
    ({"asserts": ["import datetime\nassert f(2024) == datetime.date(2024,2,29)"]}, "import datetime\ndef f(y): return datetime.date(y,3,1)-datetime.timedelta(1)"),
    ({"asserts": ["assert f(1) == 0.5"]}, "from decimal import Decimal\ndef f(x): return Decimal(x)/2"),
    ({"asserts": ["assert isinstance(f(1), int) and type(f(1)) == int"]}, "def f(x): return x"),
    ({"asserts": ["assert isinstance(f(), list) and f()[0] == 1"]}, "class L(list): pass\ndef f(): return L([1])"),
    ({"asserts": ["s = Stack()\ns.push(1); s.push(2)\nassert s.pop() == 2 and len(s) == 1 and s.items == [1]"]}, "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)"),
    ({"asserts": ["n = Node(1, Node(2))\nassert f(n) == 3"]}, "class Node:\n    def __init__(self, v, next=None): self.v, self.next = v, next\ndef f(n):\n    s = 0\n    while n: s += n.v; n = n.next\n    return s"),
    ({"asserts": ["it = f()\nassert next(it) == 1\nassert it.send(5) == 5"]}, "def f():\n    x = yield 1\n    yield x"),
    ({"asserts": ["try:\n    f(-1)\n    assert False, 'no error'\nexcept ValueError:\n    pass"]}, "def f(x):\n    if x < 0: raise ValueError('negative')"),
    ({"asserts": ["assert f([1,2,3], key=lambda x: -x) == 3"]}, "def f(a, key): return min(a, key=key)"),
    ({"asserts": ["assert f(f, 3) == 0"]}, "def f(g, n): return 0 if n == 0 else g(g, n-1)"),
    ({"asserts": ["assert sorted([3,1,2], key=f) == [3,2,1]"]}, "def f(x): return -x"),
    ({"asserts": ["assert list(map(f, [1,2])) == [1,4]"]}, "def f(x): return x*x"),
    ({"asserts": ["import functools\nassert functools.reduce(f, [1,2,3]) == 6"]}, "def f(a,b): return a+b"),
    ({"asserts": ["m = [[1,2],[3,4]]\nf(m)\nassert m == [[3,1],[4,2]]"]}, "def f(m): m[:] = [list(r) for r in zip(*m[::-1])]"),
    ({"asserts": ["assert f(b'ab') == b'ba'"]}, "def f(b): return b[::-1]"),
    ({"asserts": ["assert f(float('nan')) != f(float('nan'))"]}, "def f(x): return x"),
    ({"asserts": ["assert f(-0.0) == 0 and str(f(1e100)) == '1e+100'"]}, "def f(x): return x"),
    ({"asserts": ["assert f'{f(1.5):.2f}' == '1.50' and '%d' % f(3) == '3'"]}, "def f(x): return x"),
    ({"asserts": ["assert f(2) == 4"]}, "f = __import__('functools').partial(pow, exp=2)"),
    ({"asserts": ["assert f(2) == 4"]}, "class F:\n    def __call__(self, x): return x*x\nf = F()"),
    ({"asserts": ["assert f(2) == 4 and f.calls == 1"]}, "def f(x):\n    f.calls += 1\n    return x*x\nf.calls = 0"),
    ({"asserts": ["import time\nt = time.time()\nassert f(0.01) and time.time() - t >= 0.01"]}, "import time\ndef f(s):\n    time.sleep(s)\n    return True"),
    ({"asserts": ["assert f(2) == 4"]}, "from threading import Thread\ndef f(x):\n    out = []\n    t = Thread(target=lambda: out.append(x*x)); t.start(); t.join()\n    return out[0]"),
    ({"asserts": ["assert f(2) == 4"]}, "print('loading')\ndef f(x): return x*x\nprint(f(3)); assert f(1) == 1"),
    ({"asserts": ["assert f(2) == 4"]}, "import sys\ndef f(x): return x*x\nsys.stdin.read()"),
    ({"check": "def check(candidate):\n    for i in range(200):\n        assert candidate(i) == i * i, f'at {i}'", "entry_point": "f"}, "def f(x): return x*x"),
    ({"check": "import random\ndef check(candidate):\n    for _ in range(100):\n        a = [random.randint(0,9) for _ in range(9)]\n        assert candidate(a[:]) == sorted(a)", "entry_point": "f"}, "def f(a):\n    a.sort()\n    return a"),
    ({"check": "METADATA = {}\n\ndef check(candidate):\n    assert candidate([]) == []\n    assert candidate(*[[1]]) == [1]\n\ndef test_check():\n    check(f)\n\ntest_check()", "entry_point": "f"}, "def f(a): return a"),
    ({"unittest": "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertAlmostEqual(area(1), 3.14159, places=4)\n        self.assertListEqual(evens([1,2]), [2])\n        self.assertDictEqual(count('aa'), {'a': 2})\n        self.assertRaisesRegex(ValueError, 'neg', area, -1)\n        self.assertIsNone(nothing()); self.assertCountEqual(evens([4,2]), [2,4]); self.assertRegex(name(), '^a')"}, "import math\ndef area(r):\n    if r < 0: raise ValueError('negative')\n    return math.pi*r*r\ndef evens(a): return [x for x in a if x%2==0]\ndef count(s): return {c: s.count(c) for c in s}\ndef nothing(): pass\ndef name(): return 'abc'"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "args", "expected", "class_name"), CALLED)
def test_a_called_program_is_accepted(
    judge: Judge, source: str, args: list[Any], expected: Any, class_name: str | None
) -> None:
    form = {"class": class_name} if class_name else {}
    judgement = judge.judge(call_problem("f", (args, expected), **form), python(source))
    assert judgement.accepted, judgement


@pytest.mark.parametrize(("tests", "source"), USED_BY_TESTS)
def test_a_program_used_by_test_code_is_accepted(judge: Judge, tests: dict[str, Any], source: str) -> None:
    judgement = judge.judge(assert_problem(**tests), python(source))
    assert judgement.accepted, judgement
    assert not judgement.shared_interpreter


def test_what_stands_below_the_main_guard_of_a_tested_program_is_not_run(judge: Judge) -> None:
    source = "def f(x): return x\nif __name__ == '__main__':\n    f = None"
    assert judge.judge(call_problem("f", ([1], 1)), python(source)).accepted
    assert judge.judge(assert_problem(asserts=["assert f(1) == 1"]), python(source)).accepted


def test_the_names_at_hand_hide_no_builtin_and_can_be_taken(judge: Judge) -> None:
    source = (
        "class Solution:\n    def f(self, x):\n"
        "        assert pow(3, -1, 7) == 5 and abs(-1) == 1 and compile('1', '', 'eval')\n"
        "        assert bisect.bisect_left([1, 2], 2) == bisect_left([1, 2], 2) == 1\n"
        "        assert datetime.date(2024, 3, 1) and copy.copy([]) == deepcopy([]) and random.random() < 1\n"
        "        def add(a, b): return a - b\n"
        "        count = {}\n"
        "        return add(x, 1) + len(count)"
    )
    problem = call_problem("f", ([3], 2), **{"class": "Solution"})
    judgement = judge.judge(problem, python(source))
    assert judgement.accepted, judgement
