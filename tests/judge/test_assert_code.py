"""Assert tests that use objects as plain Python does, and those that cannot stand apart from the program.

Without a reference nothing but the proxy can accept. What cannot work there is named before anything runs.
"""

from __future__ import annotations

import pytest

from tests.judge.judge_problems import assert_problem, python
from whetstone.judge import Judge, Verdict
from whetstone.judge.kinds.assert_code import NotSeparable, refuse_inseparable

VALUE = """
import asyncio, dataclasses, functools, logging, os, random
class Base: pass
class V(Base):
    def __init__(self, x=0): self.x, self.many = x, [x]
    def __eq__(self, other): return isinstance(other, V) and self.x == other.x
    def __hash__(self): return hash(self.x)
    def __call__(self, y): return self.x + y
    def __mul__(self, k): return V(self.x * k)
    def __radd__(self, k): return k + self.x
    def __iadd__(self, k):
        self.x += k
        return self
    def __neg__(self): return V(-self.x)
    def __abs__(self): return abs(self.x)
    def __int__(self): return self.x
    def __float__(self): return self.x / 2
    def __format__(self, spec): return f'<{spec}>'
    def __getitem__(self, i): return list(range(10))[i]
    def __len__(self): return 10
    def __reversed__(self): return iter([3, 2])
    def doubled(self): return V(2 * self.x)
    def say(self): print('x is', self.x)
    def drawn(self): return random.random()
    def log(self): logging.warning('no')
    def ask(self): return input()
    def home(self): return os.environ['HOME']
    async def later(self): return self.x
@dataclasses.dataclass
class D:
    a: int = 1
def kept(function): return function
def called(function): return function(4)
def wrapped(function):
    @functools.wraps(function)
    def inner(*args): return function(*args)
    return inner
"""
WORKS = {
    "copies": "import copy\nv = V(3)\nw, u = copy.copy(v), copy.deepcopy(v)\nw.x, u.x = 4, 5\n"
    "assert v.x == 3 and w.many is v.many and u.many is not v.many and u.many == [3]",
    "operators": "v = V(3)\nassert (v * 2).x == 6 and 5 + v == 8 and sum([v]) == 3 and (-v).x == -3",
    "in place": "v = V(3)\nw = v\nv += 4\nv += 1\nassert v.x == 8 and w is v",
    "numbers": "assert abs(V(-3)) == 3 and int(V(3)) == 3 and float(V(3)) == 1.5",
    "text": "assert f'{V():>3}' == '<>3>'",
    "sequences": "assert V()[2:4] == [2, 3] and V()[-1] == 9 and list(reversed(V())) == [3, 2]",
    "in a set": "assert len({V(1), V(1), V(2)}) == 2 and V(1)(5) == 6",
    "classes": "assert issubclass(V, Base) and issubclass(V, V) and not issubclass(Base, V)",
    "printed": "import io, contextlib, sys\n"
    "with contextlib.redirect_stdout(io.StringIO()) as out:\n    V(2).say()\n"
    "assert out.getvalue() == 'x is 2\\n'\nold, sys.stdout = sys.stdout, io.StringIO()\nV(3).say()\n"
    "new, sys.stdout = sys.stdout, old\nassert new.getvalue() == 'x is 3\\n'",
    "printed to a mock": "import io\nfrom unittest.mock import patch\n"
    "with patch('sys.stdout', new_callable=io.StringIO) as out:\n    V(2).say()\n"
    "assert out.getvalue() == 'x is 2\\n'",
    "seeded": "import random\nrandom.seed(7)\na = V().drawn()\nrandom.seed(7)\n"
    "assert V().drawn() == a == random.random()",
    "labels of a function": "@wrapped\ndef g(x):\n    'adds'\n    return x + 1\n"
    "assert g(3) == 4 and (g.__doc__, g.__name__) == ('adds', 'g')",
    "mocks": "from unittest.mock import MagicMock, patch\nv = V(1)\nv.say = MagicMock(return_value=4)\n"
    "assert v.say() == 4\nv.say.assert_called_once_with()\nm = MagicMock(return_value=8)\n"
    "assert called(m) == 8\nm.assert_called_once_with(4)\n"
    "with patch.object(V, 'doubled', return_value=9):\n    assert V(1).doubled() == 9",
}  # fmt: skip
CANNOT = {
    "class W(V):\n    pass\nassert W(1).x == 1": "derives a class from `V`",
    "assert type(V(1)) is V": "compares the type",
    "assert V.__mro__[1] is Base": "reads `V.__mro__`",
    "assert kept.__code__.co_argcount == 1": "reads `kept.__code__`",
    "import asyncio\nassert asyncio.run(V(3).later()) == 3": "awaits",
    "import inspect\nassert inspect.isclass(V)": "calls inspect.isclass",
    "import dataclasses\nassert dataclasses.asdict(D(2)) == {'a': 2}": "calls dataclasses.asdict",
    "from unittest.mock import patch\nwith patch('builtins.input', return_value='z'):\n"
    "    assert V().ask() == 'z'":
    "replaces `builtins.input` by a mock",
    "import io, sys\nsys.stdin = io.StringIO('q\\n')\nassert V().ask() == 'q'": "sets `sys.stdin`",
    "import os\nos.environ['HOME'] = 'x'\nassert V().home() == 'x'": "sets `os.environ['HOME']`",
}  # fmt: skip


@pytest.mark.parametrize("code", WORKS.values(), ids=WORKS.keys())
def test_objects_behave_as_in_plain_python(judge: Judge, code: str) -> None:
    problem = {**assert_problem(asserts=[code]), "statement": "class V:"}
    judgement = judge.judge(problem, python(VALUE))
    assert judgement.accepted, judgement.reason


def test_a_class_where_a_function_was_asked_for_is_not_told_what_is_expected(judge: Judge) -> None:
    """It could answer any difference with 0."""
    problem = assert_problem(check="def check(f):\n    assert abs(f(3) - 28.27) < 0.1", entry_point="f")
    source = "class f:\n    def __init__(self, r): pass\n    def __sub__(self, other): return 0.0\n"
    assert not judge.judge(problem, python(source)).accepted
    shown = {**problem, "starter": "class f:\n    ..."}
    assert judge.judge(shown, python(source)).accepted


@pytest.mark.parametrize(("code", "why"), CANNOT.items())
def test_what_cannot_work_is_named_and_works_with_a_reference(judge: Judge, code: str, why: str) -> None:
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
def test_what_works_apart_is_not_named(code: str) -> None:
    refuse_inseparable(code, frozenset({"V", "kept", "called"}))
    with pytest.raises(NotSeparable):
        refuse_inseparable(f"{code}\nclass X(V): pass", frozenset({"V"}))


NUMBER = "assert abs(measure(V(3)) - 619.0) < 1e-6"


@pytest.mark.parametrize(
    "measure",
    [
        "return v",  # the object that the test made itself
        "return V(0)",
        "v.kept = [V(0)]\n    return v.kept[0]",
        "return V.last",
    ],
)
def test_arithmetic_with_what_a_program_gave_is_not_its_own(judge: Judge, measure: str) -> None:
    """Else an operator of its class would learn the expected value, and could give what is then compared."""
    forged = f"""
class V:
    def __new__(cls, *args):
        V.last = object.__new__(cls)
        return V.last
    def __init__(self, x): pass
    __sub__ = __rsub__ = lambda self, other: 0.0
    __abs__ = lambda self: 0.0
def measure(v):
    {measure}
"""
    honest = "class V:\n    def __init__(self, x): self.x = x\ndef measure(v): return 619.0"
    assert judge.judge(assert_problem(asserts=[NUMBER]), python(honest)).accepted
    for code in (NUMBER, f"v = V(3)\nm = measure(v)\nV(4)\n{NUMBER.replace('measure(V(3))', 'm')}"):
        judgement = judge.judge(assert_problem(asserts=[code]), python(forged))
        assert judgement.verdict is Verdict.WRONG_ANSWER
