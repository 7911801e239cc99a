# ruff: noqa: E501  # a program a line
"""Answers that are right, nearly right or made to deceive. See official_evalplus.py."""

from __future__ import annotations

from collections.abc import Callable

Wrapper = Callable[[str, str], str]
_WRAPPED = """\
{code}

_original = {name}
_calls = []
{more}
def {name}(*args, **kwargs):
    _calls.append(1)
    value = _original(*args, **kwargs)
    return {value}
"""


def _returned(value: str, more: str = "") -> Wrapper:
    return lambda code, name: _WRAPPED.format(code=code, name=name, value=value, more=more)


_DEEP = """
def _deep(f, v):
    if isinstance(v, list): return f([_deep(f, x) for x in v])
    if isinstance(v, tuple): return f(tuple(_deep(f, x) for x in v))
    if isinstance(v, dict): return {k: _deep(f, x) for k, x in v.items()}
    return f(v)
"""
_NOISE = "_deep(lambda x: x {noise} if isinstance(x, float) else x, value)"
WRAPPERS: dict[str, Wrapper] = {
    "list as tuple": _returned("tuple(value) if isinstance(value, list) else value"),
    "tuple as list": _returned("list(value) if isinstance(value, tuple) else value"),
    "inner lists as tuples": _returned("[tuple(x) if isinstance(x, list) else x for x in value] if isinstance(value, list) else value"),
    "list as set": _returned("set(value) if isinstance(value, list) and all(isinstance(x, (int, str)) for x in value) else value"),
    "iterator": _returned("iter(value) if isinstance(value, (list, tuple)) else value"),
    "generator": _returned("(x for x in value) if isinstance(value, (list, str)) else value"),
    "dict view": _returned("dict.fromkeys(value).keys() if isinstance(value, list) and all(isinstance(x, (int, str)) for x in value) else value"),
    "floats + 1e-5": _returned(_NOISE.format(noise="+ 1e-5"), _DEEP),
    "floats + 1e-7": _returned(_NOISE.format(noise="+ 1e-7"), _DEEP),
    "floats + 9e-7": _returned(_NOISE.format(noise="+ 9e-7"), _DEEP),
    "floats * (1 + 1e-8)": _returned(_NOISE.format(noise="* (1 + 1e-8)"), _DEEP),
    "floats rounded to 6 places": _returned("_deep(lambda x: round(x, 6) if isinstance(x, float) else x, value)", _DEEP),
    "nan for floats": _returned("_deep(lambda x: float('nan') if isinstance(x, float) else x, value)", _DEEP),
    "integers + 1 beyond 10**6": _returned("value + 1 if type(value) is int and value > 10**6 else value"),
    "integers as floats": _returned("_deep(lambda x: float(x) if type(x) is int and abs(x) < 2**53 else x, value)", _DEEP),
    "whole floats as integers": _returned("_deep(lambda x: int(x) if isinstance(x, float) and x == x and abs(x) < 1e300 and x == int(x) else x, value)", _DEEP),
    "bools as integers": _returned("int(value) if isinstance(value, bool) else value"),
    "0 and 1 as bools": _returned("bool(value) if type(value) is int and value in (0, 1) else value"),
    "truth for lists": _returned("bool(value) if isinstance(value, list) else value"),
    "text": _returned("str(value)"),
    "None": _returned("None"),
    "in a list": _returned("[value]"),
    "numpy array": _returned("__import__('numpy').array(value) if isinstance(value, (list, tuple)) else value  # import numpy"),
    "numpy array inside": _returned("[__import__('numpy').array(x) if isinstance(x, list) else x for x in value] if isinstance(value, list) else value  # import numpy"),
    "numpy scalars": _returned("__import__('numpy').float64(value) if isinstance(value, float) else __import__('numpy').int64(value) if type(value) is int and abs(value) < 2**62 else value  # import numpy"),
    "numpy scalars + 1e-8": _returned("__import__('numpy').float64(value) + 1e-8 if isinstance(value, float) else value  # import numpy"),
    "numpy scalars inside": _returned("[__import__('numpy').float64(x) if isinstance(x, float) else x for x in value] if isinstance(value, list) else value  # import numpy"),
    "Fraction": _returned("__import__('fractions').Fraction(value) if isinstance(value, float) and value - value == 0 else value"),
    "Decimal": _returned("__import__('decimal').Decimal(value) if type(value) is int else value"),
    "deque": _returned("__import__('collections').deque(value) if isinstance(value, list) else value"),
    "OrderedDict": _returned("__import__('collections').OrderedDict(value) if isinstance(value, dict) else value"),
    "list subclass": _returned("type('L', (list,), {})(value) if isinstance(value, list) else value"),
    "str subclass": _returned("type('S', (str,), {})(value) if isinstance(value, str) else value"),
    "prints": _returned("print('result', value) or value"),
    "prints only": _returned("print(value)"),
    "wrong from the second call on": _returned("value if len(_calls) < 2 else None"),
    "wrong after 20 calls": _returned("value if len(_calls) < 20 else None"),
    "the same list again and again": _returned("(_kept.clear(), _kept.extend(value), _kept)[2] if isinstance(value, list) else value", "_kept = []"),
    "reads input": _returned("input() and value"),
    "reads sys.stdin": _returned("(__import__('sys').stdin.read(), value)[1]"),
    "opens a file": _returned("(open('/dev/null').close(), value)[1]"),
    "asks for the folder": _returned("(__import__('os').getcwd(), value)[1]"),
    "exits in the call": _returned("__import__('sys').exit(0)"),
    "exits after the first call": _returned("value if len(_calls) < 2 else __import__('sys').exit(0)"),
    "os._exit in the call": _returned("__import__('os')._exit(0)"),
    "raises in the call": _returned("1 // 0"),
    "raises BaseException": _returned("(_ for _ in ()).throw(KeyboardInterrupt)"),
    "waits a little": _returned("(__import__('time').sleep(0.01) if len(_calls) < 5 else None, value)[1]"),
    "exits when imported": lambda code, name: f"{code}\nimport sys\nsys.exit(0)\n",
    "raises when imported": lambda code, name: f"{code}\nraise ValueError\n",
    "asserts when imported": lambda code, name: f"{code}\nassert False\n",
    "main block": lambda code, name: f"{code}\nif __name__ == '__main__':\n    1 // 0\n",
    "another name": lambda code, name: code.replace(name, name + "_"),
    "first half": lambda code, name: code[: len(code) // 2],
    "first three quarters": lambda code, name: code[: 3 * len(code) // 4],
    "in a class": lambda code, name: "class Solution:\n" + "".join(f"    {line}\n" for line in code.splitlines()),
    "future import": lambda code, name: f"from __future__ import annotations\n{code}",
    "half the recursion limit": lambda code, name: f"import sys\nsys.setrecursionlimit(500)\n{code}",
    "empty": lambda code, name: "pass",
    "blank": lambda code, name: "\n",
    "stub": lambda code, name: f"def {name}(*args):\n    pass\n",
    "echo": lambda code, name: f"def {name}(*args):\n    return args[0]\n",
}  # fmt: skip

_FRAME = """\
import sys
def _find(what):
    frame = sys._getframe()
    while frame:
        if what in frame.f_locals:
            return frame.f_locals
        frame = frame.f_back
    return {}
"""


def _attack(body: str, before: str = "") -> Wrapper:
    return lambda code, name: f"{_FRAME}{before}\ndef {name}(*args):\n    {body}\n"


_EQUAL = "class E{base}:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    __hash__ = None\n"
ATTACKS: dict[str, Wrapper] = {
    "always equal": _attack("return E()", _EQUAL.format(base="")),
    "always equal list": _attack("return E()", _EQUAL.format(base="(list)")),
    "always equal str": _attack("return E()", _EQUAL.format(base="(str)")),
    "always equal float": _attack("return E(0)", _EQUAL.format(base="(float)")),
    "always equal int": _attack("return E(0)", _EQUAL.format(base="(int)")),
    "truthy comparison": _attack("return E()", "class E:\n    def __eq__(self, o): return [1]\n"),
    "expected value from the frames": _attack("f = _find('expected'); return f['expected'][f['i']] if f else None"),
    "expected values kept": _attack("return next(_kept)", "_kept = iter(_find('expected').get('expected', [None] * 5000))"),
    "status written, then an end": _attack("return None", "import os\nf = _find('stat')\nif f:\n    f['details'][:] = [1] * len(f['details'])\n    f['progress'].value = len(f['inputs'])\n    f['stat'].value = 0\n    os._exit(0)\n"),
    "status written in the call": _attack("\n    f = _find('stat')\n    if f:\n        f['details'][:] = [1] * len(f['details'])\n        f['progress'].value = len(f['inputs'])\n        f['stat'].value = 0\n    __import__('os')._exit(0)"),
    "inputs emptied": _attack("return None", "f = _find('stat')\nif f:\n    f['details'][:] = [1] * len(f['details'])\n    f['progress'].value = len(f['inputs'])\n    f['inputs'].clear()\n"),
    "expected list changed": _attack("\n    f = _find('expected')\n    if f: f['expected'][f['i']] = 7\n    return 7"),
    "numpy.allclose replaced": _attack("return 0.0", "import numpy\nnumpy.allclose = lambda *a, **k: True\n"),
    "is_floats and allclose replaced": _attack("return f(args)", "import numpy, sys\nm = sys.modules.get('evalplus.eval')\nif m: m.is_floats = lambda x: True\nnumpy.allclose = lambda *a, **k: True\ndef f(a):\n    g = _find('expected')\n    return type(g['expected'][g['i']])() if g else None\n"),
    "builtin type replaced": _attack("return E()", "import builtins\n" + _EQUAL.format(base="")),
    "time_limit replaced by a skipper": _attack("return None", "import sys\nm = sys.modules.get('evalplus.eval')\nclass T:\n    def __init__(self, s): pass\n    def __enter__(self): pass\n    def __exit__(self, *a): return True\nif m: m.time_limit = T\n"),
    "entry of sys.modules": _attack("return E()", "import sys\n" + _EQUAL.format(base="(dict)")),
    "always equal tuple": _attack("return E()", _EQUAL.format(base="(tuple)")),
    "answer from the garbage collector": _attack("\n    import gc\n    for o in gc.get_objects():\n        if isinstance(o, dict) and 'expected' in o and 'inputs' in o and isinstance(o['expected'], list): return o['expected'][0]"),
    "set with its own elements": _attack("return E()", "class E:\n    def __eq__(self, o): return True\n    def __iter__(self):\n        f = _find('exp')\n        return iter(f['exp'] if f else ())\n"),
    "bool of everything": _attack("return True", ""),
    "always equal bool": _attack("return E(1)", _EQUAL.format(base="(int)").replace("__hash__ = None", "__hash__ = int.__hash__")),
}  # fmt: skip
