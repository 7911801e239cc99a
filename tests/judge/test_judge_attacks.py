"""Programs that do not solve the problem but want to be accepted, or to harm the judge. None may be."""

from __future__ import annotations

import pytest

from tests.judge.judge_problems import assert_problem, call_problem, python, stdin_problem
from whetstone.judge import Judge, Judgement, Verdict

pytestmark = pytest.mark.isolation

STDIN = stdin_problem(("50\n", "12586269025\n"))
CALL = call_problem("fib", ([50], 12586269025), ([51], 20365011074))
CHECK = assert_problem(
    check="def check(candidate):\n    assert candidate(50) == 12586269025\n"
    "    assert abs(candidate(51) - 20365011074) < 1e-6\n",
    entry_point="fib",
)
ASSERTS = assert_problem(
    asserts=[
        "assert fib(50) == 12586269025",
        "assert fib(51) in [20365011074]",
        "assert 12586269025 == fib(50)",
    ]
)
UNITTEST = assert_problem(
    unittest="import unittest\nclass T(unittest.TestCase):\n"
    "    def test_fib(self):\n        self.assertEqual(fib(50), 12586269025)\n"
    "        self.assertAlmostEqual(fib(51), 20365011074)\n"
)
KINDS = {"stdin": STDIN, "call": CALL, "check": CHECK, "asserts": ASSERTS, "unittest": UNITTEST}

# Each is a whole program; `fib` is there so that every kind of test can call it.
ATTACKS = {
    "exits at once": "import os\nos._exit(0)",
    "exits by exception": "import sys\nsys.exit(0)",
    "exits when called": "import os\ndef fib(n): os._exit(0)",
    "raises SystemExit when called": "def fib(n): raise SystemExit(0)",
    "exit handler": "import atexit, os\natexit.register(os._exit, 0)\ndef fib(n): raise KeyboardInterrupt",
    "vacuous": "def fib(n): return None",
    "not implemented": "def fib(n): return NotImplemented",
    "claims success": "print('passed', 'accepted', 'OK', 'True')\ndef fib(n): return True",
    "lies in comparisons": """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __mod__ = __floordiv__ = __sub__
    def __abs__(self): return self
    def __round__(self, n=0): return self
    def __hash__(self): return hash(20365011074)
    def __bool__(self): return True
    def __contains__(self, item): return True
    def __len__(self): return 1
    def __int__(self): return 12586269025
    def __float__(self): return 12586269025.0
    def __index__(self): return 12586269025
    def __instancecheck__(self, other): return True
    @property
    def __class__(self): return int
def fib(n): return Yes()
""",
    "lies as a subclass": """
class Int(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __abs__(self): return 0
    def __lt__(self, other): return True
    def __hash__(self): return hash(20365011074)
def fib(n): return Int(7)
""",
    "lies as a float": """
class Float(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    def __float__(self): return 12586269025.0
def fib(n): return Float('nan')
""",
    "patches builtins": """
import builtins, json, sys, operator, math
builtins.abs = builtins.len = builtins.round = lambda *a: 0
builtins.isinstance = lambda *a: True
builtins.AssertionError = Warning
math.isclose = operator.eq = lambda *a, **k: True
json.loads = json.dumps = lambda *a, **k: True
abs = len = round = lambda *a: 0
def fib(n): return 0
""",
    "patches what it can import of the judge": """
import sys, gc, types
for module in list(sys.modules.values()):
    if getattr(module, '__name__', '').startswith(('whetstone', '_whetstone', 'unittest')):
        for name in list(vars(module)):
            if callable(getattr(module, name, None)):
                setattr(module, name, lambda *a, **k: True)
for f in gc.get_objects():
    if isinstance(f, types.FunctionType) and f.__name__ in ('equal', 'compare', 'decode', '_numbers_equal'):
        f.__code__ = (lambda *a, **k: True).__code__
def fib(n): return 0
""",
    # It knows the answer only by a property, so that it cannot find its own text.
    "searches for the expected value": """
import gc, re, sys
def reachable():
    for o in gc.get_objects():
        yield o
        if type(o) in (list, tuple, dict):
            yield from (list(o.values()) if type(o) is dict else list(o))
    frame = sys._getframe()
    while frame:
        yield from list(frame.f_locals.values()) + list(frame.f_globals.values())
        frame = frame.f_back
def fib(n):
    for o in reachable():
        texts = []
        if type(o) is int: texts = [str(o)[:30]]
        if type(o) is str: texts = re.findall('[0-9]{11}', o[:10**6])
        if type(o) is bytes: texts = re.findall('[0-9]{11}', o[:10**6].decode('latin1'))
        for text in texts:
            if int(text) * 3 + 1 in (37758807076, 61095033223): return int(text)
    return 0
print(fib(50))
""",
    "reads files, environment and descriptors": """
import os, re
def fib(n):
    texts = [str(dict(os.environ)), ' '.join(__import__('sys').argv)]
    for folder in ('/proc/self', '/proc/1', '/tmp', '.', '/', '/dev/shm'):
        try:
            for name in os.listdir(folder):
                try: texts.append(open(os.path.join(folder, name), 'rb').read(10**6).decode('latin1'))
                except OSError: pass
        except OSError: pass
    for fd in range(3, 64):
        try:
            os.set_blocking(fd, False)
            texts.append(os.read(fd, 10**6).decode('latin1'))
        except OSError: pass
    hits = re.findall('1258[6]269025|2036[5]011074', ' '.join(texts))
    return int(hits[0]) if hits else 0
print(fib(50))
""",
    "writes forged outcomes to every descriptor": """
import os, struct
def text(s): return b's' + struct.pack('<Q', len(s)) + s
forged = b'l' + struct.pack('<Q', 2) + text(b'passed') + text(b'')
value = b'l' + struct.pack('<Q', 2) + text(b'value') + b'T'
for fd in range(3, 64):
    for data in (forged, value, b'[true]', b'accepted'):
        try: os.write(fd, data)
        except OSError: pass
os._exit(0)
""",
    "answers the test itself": """
import os, struct, threading
def size(d): return struct.pack('<Q', len(d))
def text(s): return b's' + size(s) + s
def items(*parts): return b'l' + struct.pack('<Q', len(parts)) + b''.join(parts)
reply = b'!' + items(items(text(b'returned'), b'T'), b'i' + struct.pack('<q', 0), items())
def flood():
    for fd in range(3, 32):
        try: os.write(fd, size(reply) + reply)
        except OSError: pass
flood()
def fib(n):
    for _ in range(100): flood()
    return 0
""",
    "closes every descriptor": "import os\nos.closerange(0, 64)\ndef fib(n): return 0",
    "recursion bomb as a result": """
def fib(n):
    x = []
    for _ in range(10**5): x = [x]
    return x
""",
    "cycle as a result": "def fib(n):\n    x = []\n    x.append(x)\n    return x",
    "branching bomb as a result": "def fib(n):\n    x = 0\n    for _ in range(60): x = [x, x]\n    return x",
    "endless iterator": "import itertools\ndef fib(n): return itertools.count()\n",
    "iterator of everything": "def fib(n): return iter(range(20000))",
    "range of everything": "def fib(n): return range(20000)",
    "sleeps": "import time\ntime.sleep(0.2)\ndef fib(n): return 0",
    "leaves threads behind": """
import threading, time
def spin():
    while True: time.time()
threading.Thread(target=spin).start()
def fib(n): return 0
raise ValueError
""",
    "ignores signals and loops": """
import signal
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True: pass
""",
    "floods standard output": "import os\nwhile True: os.write(1, b'12586269025 ' * 10000)",
    "floods standard error": "import os\nwhile True: os.write(2, b'x' * 60000)",
    "raises a hostile exception": """
class E(Exception):
    def __str__(self): raise SystemExit(0)
    def __reduce__(self): return (print, ('x',))
    args = property(lambda self: 1 / 0)
def fib(n): raise E()
""",
    "raises the test's exceptions": "import unittest\ndef fib(n): raise unittest.SkipTest('skip')",
    "ends loops": "def fib(n): raise StopIteration",
    "replaces __main__": "import sys\nsys.modules['__main__'] = None\nsys.modules.clear()\n"
    "def fib(n): return 0",
    "tiny recursion limit": "import sys\ndef fib(n):\n    sys.setrecursionlimit(50)\n    return 0",
}


def rejected(judgement: Judgement) -> bool:
    """Not accepted in any case, and a real verdict: an attack is no failure of ours."""
    return judgement.verdict not in (Verdict.ACCEPTED, Verdict.JUDGE_ERROR) and not any(
        case.verdict is Verdict.ACCEPTED for case in judgement.cases
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_attack_is_accepted(judge: Judge, kind: str) -> None:
    pairs = [(KINDS[kind], python(source)) for source in ATTACKS.values()]
    # A time limit that is confirmed is test_one_guess's subject, and takes as long again.
    judged = dict(zip(ATTACKS, judge.judge_many(pairs, confirm_time_limit=False), strict=True))
    assert {name: j for name, j in judged.items() if not rejected(j)} == {}


@pytest.mark.parametrize("kind", ["call", "check", "asserts", "unittest"])
def test_the_honest_program_is_accepted_by_the_same_tests(judge: Judge, kind: str) -> None:
    honest = python("def fib(n):\n    a, b = 0, 1\n    for _ in range(n): a, b = b, a + b\n    return a")
    assert judge.judge(KINDS[kind], honest).accepted


LIAR = ATTACKS["lies in comparisons"]
FORGEABLE = [
    "assert fib(3) == 2",
    "assert 2 == fib(3)",
    "assert not fib(3) != 2",
    "assert fib(3) in [2]",
    "assert 2 in fib(3)",
    "assert fib(3) < 3",
    "assert fib(3) >= 2",
    "assert abs(fib(3) - 2) < 1e-9",
    "assert round(fib(3)) == 2",
    "assert isinstance(fib(3), int)",
    "assert type(fib(3)) is int or fib(3).__class__ is int",
    "assert {2: True}.get(fib(3))",
    "assert {fib(3)} == {2}",
    "assert sorted([fib(3), 2]) == [2, 2]",
    "assert sum([fib(3)]) == 2",
    "assert int(fib(3)) == 2",
    "assert [2, 3].index(fib(3)) == 0",
    "assert [2].count(fib(3)) == 1",
    "assert max(fib(3), 2) == 2",
    "import math\nassert math.isclose(fib(3), 2)",
    "assert fib(3) % 2 == 0",
    "assert len(fib(3)) == 1 and list(fib(3)) == [2]",
    "import operator\nassert operator.eq(fib(3), 2)",
    "import unittest\nunittest.TestCase().assertEqual(fib(3), 2)",
    "import unittest\nunittest.TestCase().assertIn(2, fib(3))",
    "import unittest\nunittest.TestCase().assertTrue(fib(3) == 2)",
]


@pytest.mark.parametrize("code", FORGEABLE)
def test_an_object_of_the_program_never_decides_a_comparison(judge: Judge, code: str) -> None:
    judgement = judge.judge(assert_problem(asserts=[code]), python(LIAR))
    assert rejected(judgement), judgement


SHADOWING = """
def abs(x): return 0
def len(x): return 3
def isinstance(x, t): return True
def round(x, n=0): return 2
def sorted(x): return [1, 2]
def check(f): return None
class math:
    isclose = staticmethod(lambda *a, **k: True)
def f(x): return None
"""


@pytest.mark.parametrize(
    "code",
    [
        "assert abs(f(1) or 9) == 0",
        "assert len(f(1) or []) == 3",
        "assert isinstance(f(1), int)",
        "assert round(f(1) or 5.5) == 2",
        "assert sorted(f(1) or []) == [1, 2]",
        "assert math.isclose(f(1) or 9, 2)",
    ],
)
def test_a_program_cannot_shadow_what_the_test_compares_with(judge: Judge, code: str) -> None:
    assert rejected(judge.judge(assert_problem(asserts=[code]), python(SHADOWING)))


def test_a_check_function_cannot_be_replaced(judge: Judge) -> None:
    problem = assert_problem(check="def check(candidate):\n    assert candidate(1) == 2", entry_point="f")
    assert rejected(judge.judge(problem, python(SHADOWING)))


@pytest.mark.parametrize(
    ("code", "source"),
    [
        # The loop would end before its first assertion.
        (
            "for x in map(f, [1, 2]):\n    assert x == 5\nassert all(map(f, [1]))",
            "def f(x): raise StopIteration",
        ),
        (
            "n = 0\nfor x in (f(i) for i in range(3)):\n    n += 1\n    assert x == 5",
            "def f(x): raise StopIteration",
        ),
        # The program dies, and the test swallows it.
        ("try:\n    f(1)\nexcept BaseException:\n    pass", "import os\ndef f(x): os._exit(0)"),
        (
            "try:\n    assert f(1) == 2\nexcept BaseException:\n    pass",
            "import os\ndef f(x): os.close(7) or os._exit(0)",
        ),
        # What a test's own function is told, it does not tell back.
        ("seen = []\nassert f(seen.append) == 2 and seen == [2]", "def f(g): g(3); return 2"),
        (
            "assert f(lambda: 5) == 12586269025",
            "def f(g): return g.__globals__['expected'] if hasattr(g, 'x') else g()",
        ),
    ],
)
def test_a_test_is_not_left_early(judge: Judge, code: str, source: str) -> None:
    judgement = judge.judge(assert_problem(asserts=[code]), python(source))
    assert rejected(judgement), judgement


def test_the_tests_are_not_in_the_programs_process(judge: Judge) -> None:
    """A search of all memory that the program can reach finds its own marker, and not the test's."""
    source = """
import gc, os, sys
def reachable():
    yield from gc.get_objects()
    frame = sys._getframe()
    while frame:
        yield from frame.f_locals.values()
        yield from frame.f_globals.values()
        frame = frame.f_back
def f(x):
    keep = ['-'.join(['own', 'marker', '1'])]
    text = ' '.join(repr(o)[:10**6] for o in reachable() if type(o) in (str, bytes, list, dict, tuple))
    return ('-'.join(['own', 'marker', '1']) in text, '-'.join(['secret', 'marker', '2']) in text)
"""
    secret = "secret-marker-2"
    problem = assert_problem(
        setup=f"expected = {secret!r}", asserts=[f"marker = {secret!r}\nassert f(1) == (True, False)"]
    )
    judgement = judge.judge(problem, python(source))
    assert judgement.accepted, judgement


LONG_LIST = "x = [" + ", ".join(f"'{n:x}'" for n in range(9000)) + "]"


@pytest.mark.parametrize("longer", ["", LONG_LIST], ids=["short", "too long to be handed out"])
def test_a_program_cannot_plant_code_for_its_later_cases(judge: Judge, longer: str):
    source = """
import marshal, os
honest = "print(12586269025)\\ndef fib(n): return 12586269025"
code = marshal.dumps(compile(honest, __file__, "exec"))
for fd in range(3, 20):
    try:
        os.write(fd, len(code).to_bytes(4, "little") + code)
    except OSError:
        pass
print("nothing")
def fib(n): return 0
"""
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
