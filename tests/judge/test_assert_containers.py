"""Assert tests that change containers of the program's objects, and names that the problem shows imports of.

No problem here has a reference, so that nothing but the proxy can accept.
"""

from __future__ import annotations

from collections import OrderedDict

import pytest

from tests.judge.judge_problems import assert_problem, python
from whetstone.judge import Judge, Judgement, Verdict
from whetstone.judge.kinds.assert_names import naming_lines
from whetstone.judge.kinds.assert_names import test_names as names_of
from whetstone.judge.rpc.containers import refill

SHOP = """
from collections import Counter, OrderedDict, defaultdict, deque
class Shop:
    shelf = [1]
    def __init__(self):
        self.stock = {'pen': 1}
        self.rows = [[1, 2], [3]]
        self.groups, self.seen, self.recent = defaultdict(list), set(), deque([1, 2, 3], maxlen=3)
        self.raw, self.counts, self.pairs = bytearray(b'ab'), Counter('aab'), [('x', [1])]
    def total(self): return sum(self.stock.values())
    def put(self, name, count): self.stock[name] = count
    def inner(self): return self.stock
    def outer(self): return dict(self.stock)
    def empty(self): self.stock = {}
    def fail(self):
        self.rows.clear()
        raise ValueError('no')
    def flat(self): return [x for row in self.rows for x in row]
    def holds(self, rows, *, stock): return rows is self.rows and stock is self.stock
    def shown(self):
        return [repr(x) for x in (dict(self.groups), self.seen, list(self.recent), self.raw, self.pairs)]
    def __getitem__(self, i): return self.rows[i]
    def __len__(self): return len(self.rows)
class Part:
    def __init__(self): self.children, self.level = [], 1
    def depth(self): return 1 + max((c.depth() for c in self.children), default=0)
class Level(int): pass
"""

CHANGES = {
    "an item is set": "s.stock['ink'] = 4\nassert s.total() == 5",
    "a list grows": "s.rows.append([7])\ns.rows[-1].append(8)\ns.rows[0][0] = 5\n"
    "assert s.flat() == [5, 2, 3, 7, 8]",
    "a list shrinks": "del s.rows[0]\ns.rows[0].clear()\nassert s.flat() == []",
    "a list is sorted": "s.rows.append([0])\ns.rows.sort()\nassert s.flat() == [0, 1, 2, 3]",
    "in a loop": "for row in s.rows:\n    row += [0]\nassert s.flat() == [1, 2, 0, 3, 0]",
    "every kind": "s.groups['a'].append(1)\ns.seen.add(3)\ns.recent.append(9)\ns.raw.extend(b'c')\n"
    "s.pairs[0][1].append(2)\ns.counts['b'] += 4\n"
    "assert s.shown() == [\"{'a': [1]}\", '{3}', '[2, 3, 9]', \"bytearray(b'abc')\", \"[('x', [1, 2])]\"]\n"
    "assert s.counts.most_common(1) == [('b', 5)]",
    "what a method returns": "s.inner()['ink'] = 1\nassert s.total() == 2",
    "a fresh container is the test's own": "s.outer()['ink'] = 1\nassert s.total() == 1",
    "by item": "s[0].append(9)\nassert s.flat() == [1, 2, 9, 3]",
    "by iteration": "for row in s:\n    row.clear()\nassert s.flat() == []",
    "of a class": "Shop.shelf.append(2)\nassert s.shelf == [1, 2] and Shop().shelf is Shop.shelf",
    "through __dict__": "vars(s)['stock']['ink'] = 3\nassert s.total() == 4",
    "objects of the program": "p, q = Part(), Part()\np.children.append(q)\nassert p.depth() == 2\n"
    "p.children.remove(q)\nassert p.depth() == 1",
    "the same at every look": "x = s.stock\nassert x is s.stock and x is s.inner()\ns.put('ink', 2)\n"
    "assert x == {'pen': 1, 'ink': 2}",
    "seen after an exception": "x = s.rows\ntry:\n    s.fail()\nexcept ValueError:\n    pass\nassert x == []",
    "exact types": "import json\nassert type(s.stock) is dict and type(s.rows) is list\n"
    "assert json.dumps(s.rows) == '[[1, 2], [3]]' and sorted(s.stock) == ['pen']",
    "replaced meanwhile": "x = s.stock\ns.empty()\nx['ink'] = 1\nassert s.stock == {} and s.total() == 0",
    "handed back": "assert s.holds(s.rows, stock=s.stock)",
    "set to another's": "t = Shop()\nt.stock = s.stock\ns.stock['ink'] = 1\nassert t.total() == 2",
    "what the test put in stays its own": "mine = [4]\ns.rows.append(mine)\ns.rows[-1].append(5)\n"
    "assert s.flat() == [1, 2, 3, 4, 5] and mine == [4]",
    "changed and handed over": "x = s.rows\nx.append([6])\n"
    "assert s.holds(x, stock=s.stock) and s.flat()[-1] == 6",
    "many times": "for i in range(200):\n    s.rows.append([i])\n"
    "    assert len(s.rows) == 3 + i and len(s) == 3 + i",
}  # fmt: skip


def judged(judge: Judge, source: str, code: str) -> Judgement:
    return judge.judge(assert_problem(asserts=[f"s = Shop()\n{code}"]), python(source))


@pytest.mark.parametrize("code", CHANGES.values(), ids=CHANGES.keys())
def test_the_test_changes_what_an_object_holds(judge: Judge, code: str) -> None:
    judgement = judged(judge, SHOP, code)
    assert judgement.accepted, judgement.reason


def test_what_the_test_left_alone_stays_the_object_that_it_was(judge: Judge) -> None:
    """An int of a class of the program's crosses as an int: a change beside it must not make it one there."""
    source = SHOP + "s = Shop()\ns.stock = {'a': Level(3), 'b': 1}\ns.rows = [Level(1), 2]\n"
    source += "def kept(): return type(s.stock['a']) is Level and type(s.rows[0]) is Level"
    code = "s = held()\ns.stock['b'] = 5\ns.rows.append(3)\nassert kept() and s.rows == [1, 2, 3]"
    judgement = judged(judge, f"{source}\ndef held(): return s", code)
    assert judgement.accepted, judgement.reason


FORGED = """
class Shop:
    def __init__(self): self.rows, self.all = [1], []
    def add(self, x):
        self.all.append(x)
    def look(self): pass
"""


@pytest.mark.parametrize(
    "source",
    [
        # Equal to everything, as items and as containers.
        "class Yes:\n    __eq__ = lambda self, other: True\n    __hash__ = lambda self: 0\n"
        "class Shop:\n    def __init__(self): self.rows = [Yes()]\n    def add(self, x): pass",
        "class Yes(list):\n    __eq__ = lambda self, other: True\n"
        "class Shop:\n    def __init__(self): self.rows = Yes([1])\n    def add(self, x): pass",
        # Changed by a thread while the test compares.
        "import threading, time\nclass Shop:\n"
        "    def __init__(self):\n        self.rows = [1]\n"
        "        threading.Thread(target=self.later, daemon=True).start()\n"
        "    def later(self):\n        while True:\n            self.rows[:] = [1, 619]\n"
        "            time.sleep(0)\n            self.rows[:] = [1]\n"
        "    def add(self, x): self.rows[:] = [1]",
    ],
)
def test_containers_decide_nothing(judge: Judge, source: str) -> None:
    code = "x = s.rows\ns.add(5)\nassert x == [1, 619, 733] and x[1:] == [619, 733]"
    assert judged(judge, source, code).verdict in {Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR}


STATEMENT = (
    "```python\nfrom datetime import datetime\nimport xml.etree.ElementTree as ET\nclass Clock: ...\n```"
)
NAMES = [
    ("Clock(datetime(2024, 1, 1))", "", {"datetime": ("datetime", "datetime")}),
    ("Clock(datetime.now())", "", {"datetime": ("datetime", "datetime")}),
    ("Clock(datetime.datetime.now())", "", {"datetime": ("datetime", "")}),
    ("Clock(datetime.min, ET.fromstring(''))", STATEMENT,
     {"datetime": ("datetime", "datetime"), "ET": ("xml.etree.ElementTree", "")}),
    ("Clock(math.pi)", "", {"math": ("math", "")}),
    ("Clock(copy([1]))", "", {}),
    ("Clock(gcd(1, 2))", "from math import gcd", {"gcd": ("math", "gcd")}),
    ("Clock(gcd(1, 2))", "from math import gcd\ndef gcd(a, b):", {}),
    ("Clock(load())", "from solution import load", {}),
    # Else the test would hold without any program.
    ("assert gcd(4, 6) == 2", "Do not use this:\nfrom math import gcd", {}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "statement", "imports"), NAMES)
def test_a_name_is_imported_as_the_problem_says(
    code: str, statement: str, imports: dict[str, tuple[str, str]]
) -> None:
    sorted_out = names_of(code, None, (), (statement,), frozenset())
    assert sorted_out.imports == imports
    assert sorted_out == names_of(code, None, (), (naming_lines(statement),), frozenset())
    assert sorted_out.program


def test_a_name_that_the_statement_imports_is_not_the_programs(judge: Judge) -> None:
    code = "assert later('2024-01-01', 3) == datetime.strptime('2024-01-04', '%Y-%m-%d')"
    problem = {
        **assert_problem(asserts=[code]),
        "statement": "from datetime import datetime, timedelta\n\nAdd.",
    }
    right = """
from datetime import datetime, timedelta
def later(day, n):
    return datetime.strptime(day, '%Y-%m-%d') + timedelta(days=n)
"""
    assert judge.judge(problem, python(right)).accepted
    forged = "class datetime:\n    strptime = lambda *a: 5\ndef later(day, n):\n    return 5"
    assert judge.judge(problem, python(forged)).verdict is Verdict.WRONG_ANSWER


def test_an_ordered_mapping_that_is_given_other_content_keeps_an_order() -> None:
    mapping = OrderedDict(a=1, b=2)
    refill(mapping, {"c": 3, "a": 4})
    mapping.move_to_end("c")
    assert list(mapping.items()) == [("a", 4), ("c", 3)]
    assert list(reversed(mapping)) == ["c", "a"]
