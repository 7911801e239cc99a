"""Tests for the fuzzer: they use the program in many ways, and then assert that a result equals a secret.

No message before the assertion depends on the secret. Two tests that differ in the secret only must therefore
send equal messages to a program that sends equal messages.
"""

from __future__ import annotations

from random import Random
from textwrap import indent
from typing import Any

_SETUP = """
import unittest
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
NEIGHBOURS = [SECRETS]
class Node:
    label: str
    depth = 0
    def __init__(self, v, next=None): self.v, self.next, self._hidden = v, next, SECRET
    def __eq__(self, other): return self.v == other.v
    def __hash__(self): return 7
    def __lt__(self, other): return self.v < other.v
    def __getitem__(self, i): return [self.v, self.next][i]
    def __contains__(self, item): return item in [self.v]
    def __iter__(self): yield self.v
    def __str__(self): return f"Node {self.v} {self.next!r}"
    def __call__(self, *args, **kwargs): return [args, kwargs]
    def told(self, x): return repr(x), f"{x}"
class Slotted:
    __slots__ = ("a", "b")
    def __init__(self): self.a = 1
class Guarded:
    def __init__(self): self._t = 0
    @property
    def t(self): return self._t
    @t.setter
    def t(self, v): self._t = int(v)
    def fails(self): return int("x" + str(SECRET))
class Told(UnicodeDecodeError): pass
class Refused(OSError): pass
class Grouped(ExceptionGroup): pass
@dataclass(order=True)
class Pair:
    x: object
    y: object = None
Point = namedtuple("Point", "x y")
def attempt(f, *args):
    try: return f(*args)
    except AssertionError: raise
    except Exception as e: return str(e), repr(e), e.args
HELD = [{"a": [1, {2}]}, OrderedDict(a=[]), deque([1]), {1, 2}, bytearray(b"x"), [[[1]]]]
OBJECTS = [Node(1, Node(2)), Slotted(), Guarded(), Told("utf-8", b"abc", 0, 1, "r"), Refused(2, "no"),
    Grouped("g", [ValueError(SECRET)]), Pair(1)]
def look(p): return p[1]
def secretly(p): return {1: 2}[SECRET]
def words(p): return attempt(look, p)
def listed(p): return [p, str(p), [repr(p)]]
def deep(f, n): return f(deep, n)
def explicit(p): raise ValueError("plain", p)
def checked(p): assert p == SECRET, SECRET
FUNCTIONS = [look, secretly, words, listed, deep, explicit, checked, Node, Pair, [5].append, "x{}".format]
"""
# Each probe runs several times and its exceptions are ignored. Then its assertion is evaluated.
_PROBES = (
    ("f(*FUNCTIONS)", "f(look)"),
    ("f([('b', 2)], key=look)", "f(words)"),
    ("f(*FUNCTIONS, FUNCTIONS)", "f(FUNCTIONS)"),
    ("f(OBJECTS)", "f(*OBJECTS)"),
    ("f(*OBJECTS), [attempt(do, x) for x in OBJECTS for do in (str, list)]", "[x.v for x in OBJECTS[:1]]"),
    ("f(*OBJECTS, key=look), sorted(OBJECTS[:1] * 2), {*OBJECTS[:1]}", "f(OBJECTS[0].told)"),
    ("x = f()\nx.a = x\n[attempt(do, x) for do in (str, len, list, bool, hash, next)]", "f().a"),
    ("x, y = f(), f()\n[attempt(do, [x, y]) for do in (sorted, max, str)], x == y", "x + y"),
    ("with f() as x: attempt(next, x), attempt(hash, x), x == f()", "[*f()][0]"),
    ("for i, x in enumerate(f()):\n    if i > 3: break", "f(iter([1, 2]))"),
    ("try: f(1)\nexcept Err as e: attempt(str, e), attempt(f, e.args), [*vars(e)]", "f(Err)"),
    ("attempt(Err, f(2)), f(str(f(3))), f(checked)", "f(1)"),
    ("f(*HELD), f(HELD)", "[*HELD[0].values()]"),
    ("p = f(Point(1, [2]))\np.x, sorted([p, f()]), p._asdict(), p == f()", "f(Point(3, 4))"),
    ("isinstance(f(), Err), f().__name__, f()(f), f[0], f.a", "f.b.c"),
)
_UNITTEST = """
class T(unittest.TestCase):
    def setUp(self): self.x = f()
    def test_one(self):
        with self.assertRaises(Err) as caught: f(look)
        self.assertEqual(attempt(str, caught.exception), SECRET)
    def test_three(self):
        for _ in range(ROUNDS): attempt(f, *OBJECTS, *FUNCTIONS)
        with self.assertRaises(Err): f(3)
    def test_two(self):
        with self.subTest(1): f(2)
        self.assertEqual(attempt(lambda: [*f()]), SECRET, self.x)
    def tearDown(self): attempt(f)
"""
# A leak may need state of an earlier round, such as an object that is already known.
_ROUNDS = 8
# The number of different tests.
COUNT = len(_PROBES) + 1


def unit(number: int, secret: object, neighbours: list[object]) -> dict[str, Any]:
    """Return the unit with this number for the harness of the test process."""
    code = _UNITTEST.replace("ROUNDS", str(_ROUNDS))
    if number < len(_PROBES):
        probe, asserted = _PROBES[number]
        code = f"def probe():\n{indent(probe, '    ')}\nfor _ in range({_ROUNDS}): attempt(probe)\n"
        code += f"{probe}\nassert {asserted} == SECRET"
    setup = _SETUP.replace("SECRETS", repr(neighbours)[1:-1])
    return {
        "kind": "asserts" if number < len(_PROBES) else "unittest",
        "setup": setup.replace("SECRET", repr(secret)),
        "code": code.replace("SECRET", repr(secret)),
        "entry_point": "f",
        "names": ["f", "Err"],
        "classes": [],
        "imports": {},
        "free": ["f", "Err"],
        "captures": False,
        "seeds": False,
        "files": None,
    }


def secrets(rng: Random) -> tuple[object, list[object]]:
    """Return a secret and a second random value, both of constant size."""
    texts: list[object] = [f"canary-{rng.getrandbits(96):024x}" for _ in range(8)]
    return rng.choice((texts[0], rng.getrandbits(61) | 1 << 60)), texts[1:]
