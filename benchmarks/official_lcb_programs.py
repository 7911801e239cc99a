# ruff: noqa: E501  # a program a line
"""Programs whose answers, or ways to read and write, are where graders differ. See official_livecodebench.py."""

from __future__ import annotations

from collections.abc import Callable

from official_compare import ATTACK
from whetstone.core.problem import CallCase, CallTests, Problem, StdinCase, StdinTests

Wrapper = Callable[[str, str], str]
_PRINT = """\
def print(*values, sep=" ", end="\\n", file=None, flush=False):
    import builtins
    text = sep.join(map(str, values)) + end
    builtins.print({text}, end="", file=file)
{code}
"""


def _printed(text: str) -> Wrapper:
    return lambda code, name: _PRINT.format(text=text, code=code)


def _after(text: str) -> Wrapper:
    return lambda code, name: f"{code}\n{text}\n"


_NUMBERS = """__import__("re").sub(r"(?<![\\w.])-?\\d+(?![\\w.])", lambda m: {form}, text)"""
STDIN_WRAPPERS: dict[str, Wrapper] = {
    "trailing blanks": _printed('text.replace("\\n", "   \\n")'),
    "CRLF": _printed('text.replace("\\n", "\\r\\n")'),
    "a blank line first": _printed('"\\n" + text'),
    "blank lines after": _printed('text + "\\n\\n"'),
    "integers as 5.0": _printed(_NUMBERS.format(form='m[0] + ".0"')),
    "integers as 5e0": _printed(_NUMBERS.format(form='m[0] + "e0"')),
    "integers as +5": _printed(_NUMBERS.format(form='m[0] if m[0][0] == "-" else "+" + m[0]')),
    "integers with zeros": _printed(_NUMBERS.format(form='m[0].replace("-", "-0") if "-" in m[0] else "0" + m[0]')),
    "integers as 5_0": _printed(_NUMBERS.format(form='m[0] + "_0" if len(m[0]) > 9 else m[0][0] + "_" + m[0][1:]')),
    "integers off by 1e-9": _printed(_NUMBERS.format(form='m[0] + ".000000001"')),
    "tabs for spaces": _printed('text.replace(" ", "\\t")'),
    "two spaces": _printed('text.replace(" ", "  ")'),
    "upper case": _printed("text.upper()"),
    "no newlines": _printed('text.replace("\\n", " ")'),
    "form feeds": _printed('text.replace("\\n", "\\f\\n")'),
    "exit 0 after": _after("import sys\nsys.exit(0)"),
    "exit 1 after": _after("import sys\nsys.exit(1)"),
    "exception after": _after("raise ValueError(1)"),
    "os._exit after": _after("import os, sys\nsys.stdout.flush()\nos._exit(0)"),
    "printed to stderr too": _after("import sys\nprint('note', file=sys.stderr)"),
    "first half": lambda code, name: code[: len(code) // 2],
    "NaN at the end": _after("print(float('nan'))"),
    "main block": lambda code, name: "def main():\n" + "".join(f"    {line}\n" for line in code.splitlines())
    + "\nif __name__ == '__main__':\n    main()\n",
    "return at the top": lambda code, name: f"{code}\nreturn\n",
    "future import": lambda code, name: f"from __future__ import annotations\n{code}",
}  # fmt: skip
_RETURNED = """\
{code}

class Solution:
    def {name}(self, *args):
        value = globals()[{name!r}](*args)
        return {value}
"""


def _returned(value: str) -> Wrapper:
    return lambda code, name: _RETURNED.format(code=code, name=name, value=value)


CALL_WRAPPERS: dict[str, Wrapper] = {
    "in class Solution": _returned("value"),
    "list as tuple": _returned("tuple(value) if isinstance(value, list) else value"),
    "inner lists as tuples": _returned("[tuple(x) if isinstance(x, list) else x for x in value] if isinstance(value, list) else value"),
    "iterator": _returned("iter(value) if isinstance(value, list) else value"),
    "generator": _returned("(x for x in value) if isinstance(value, (list, str)) else value"),
    "bool as int": _returned("int(value) if isinstance(value, bool) else value"),
    "int as bool": _returned("bool(value) if value in (0, 1) else value"),
    "int as float": _returned("float(value) if isinstance(value, int) else value"),
    "as text": _returned("str(value)"),
    "float off by 1e-7": _returned("value + 1e-7 if isinstance(value, float) else value"),
    "float off by 1 ulp": _returned("__import__('math').nextafter(value, 9e9) if isinstance(value, float) else value"),
    "nan": _returned("float('nan') if isinstance(value, (int, float)) else value"),
    "numpy array": _returned("__import__('numpy').array(value) if isinstance(value, list) else value  # import numpy"),
    "numpy scalar": _returned("__import__('numpy').array([value])[0] if isinstance(value, (int, float)) else value  # import numpy"),
    "list subclass": _returned("type('L', (list,), {})(value) if isinstance(value, list) else value"),
    "string subclass": _returned("type('S', (str,), {})(value) if isinstance(value, str) else value"),
    "dict with other order": _returned("dict(reversed(list(value.items()))) if isinstance(value, dict) else value"),
    "None": _returned("None"),
    "prints a lot": _returned("print('x' * 10000) or value"),
    "exit in the call": _returned("__import__('sys').exit(0)"),
    "exception in the call": _returned("1 // 0"),
    "module that exits": _after("import sys\nsys.exit(0)"),
    "module that raises": _after("raise ValueError"),
    "main block": _after("if __name__ == '__main__':\n    raise ValueError"),
    "state in the object": lambda code, name: _RETURNED.format(code=code, name=name, value="value if self.once() else None")
    + "\n    used = False\n    def once(self):\n        was, self.used = self.used, True\n        return not was\n",
    "state in the module": lambda code, name: "calls = []\n" + _RETURNED.format(code=code, name=name, value="value if not calls.append(1) and len(calls) < 2 else None"),
    "name only": lambda code, name: code.replace(name, name + "_"),
    "first half": lambda code, name: code[: len(code) // 2],
    "future import": lambda code, name: f"from __future__ import annotations\n{code}",
}  # fmt: skip

_LINES = Problem(
    "own/sum-of-lines", "", StdinTests([StdinCase("3\n1\n2\n3\n", "6\n"), StdinCase("1\n-5\n", "-5\n")])
)
_BLANK = Problem("own/blank-line", "", StdinTests([StdinCase("a\n\nb\n", "a--b\n")]))
_TABLE = Problem(
    "own/two-lines", "", StdinTests([StdinCase("2\n", "0.5 1\n2\n"), StdinCase("0\n", "0.5 1\n0\n")])
)
_EMPTY = Problem("own/nothing", "", StdinTests([StdinCase("x\n", ""), StdinCase("y\n", "\n")]))
_DEEP = Problem("own/deep", "", StdinTests([StdinCase("9000\n", "9000\n")]))
_SUM = "print(sum(int(x) for x in {read}.split()[1:]))"
_Programs = tuple[Problem, str, str, str]
STDIN_PROGRAMS: list[_Programs] = [
    (_LINES, "reading", "input()", "n = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "reading", "input past the end", "input()\ns = 0\ntry:\n    while True:\n        s += int(input())\nexcept EOFError:\n    print(s)"),
    (_LINES, "reading", "sys.stdin.read", "import sys\n" + _SUM.format(read="sys.stdin.read()")),
    (_LINES, "reading", "sys.stdin.buffer.read", "import sys\n" + _SUM.format(read="sys.stdin.buffer.read()")),
    (_LINES, "reading", "sys.stdin.readline", "import sys\nn = int(sys.stdin.readline())\nprint(sum(int(sys.stdin.readline()) for _ in range(n)))"),
    (_LINES, "reading", "input = sys.stdin.readline", "import sys\ninput = sys.stdin.readline\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "reading", "sys.stdin.buffer.readline", "import sys\ninput = sys.stdin.buffer.readline\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "reading", "sys.stdin.readlines", "import sys\nprint(sum(int(x) for x in sys.stdin.readlines()[1:] if x.strip()))"),
    (_LINES, "reading", "for line in sys.stdin", "import sys\nprint(sum(int(x) for x in sys.stdin) - 3 if False else sum([int(x) for x in sys.stdin][1:]))"),
    (_LINES, "reading", "iter(input)", "n = int(input())\nprint(sum(map(int, [input() for _ in range(n)])))"),
    (_LINES, "reading", "from sys import stdin", "from sys import stdin\n" + _SUM.format(read="stdin.read()")),
    (_LINES, "reading", "import inside a function", "def main():\n    from sys import stdin\n    " + _SUM.format(read="stdin.read()") + "\nmain()"),
    (_LINES, "reading", "open(0)", _SUM.format(read="open(0).read()")),
    (_LINES, "reading", "os.read", "import os\n" + _SUM.format(read="os.read(0, 10000).decode()")),
    (_LINES, "reading", "fileinput", "import fileinput\nprint(sum([int(x) for x in fileinput.input()][1:]))"),
    (_LINES, "reading", "map over a line", "input()\nprint(sum(map(int, __import__('sys').stdin.read().split())))"),
    (_BLANK, "reading", "input() at a blank line", "a = input()\nb = input()\nc = input()\nprint(a + '-' + b + '-' + c)"),
    (_BLANK, "reading", "readline at a blank line", "import sys\na, b, c = [sys.stdin.readline().strip() for _ in range(3)]\nprint(a + '-' + b + '-' + c)"),
    (_LINES, "writing", "sys.stdout.write", "import sys\nsys.stdout.write(str(sum(map(int, sys.stdin.read().split()[1:]))) + '\\n')"),
    (_LINES, "writing", "sys.stdout.buffer.write", "import sys\nsys.stdout.buffer.write(str(sum(map(int, sys.stdin.read().split()[1:]))).encode())"),
    (_LINES, "writing", "os.write", "import os, sys\nos.write(1, str(sum(map(int, sys.stdin.read().split()[1:]))).encode())"),
    (_LINES, "writing", "from sys import stdout", "import sys\nfrom sys import stdout\nstdout.write(str(sum(map(int, sys.stdin.read().split()[1:]))))"),
    (_LINES, "writing", "print with flush", "import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])), flush=True)"),
    (_LINES, "writing", "a thread prints", "import sys, threading\nt = threading.Thread(target=lambda: print(sum(map(int, sys.stdin.read().split()[1:]))))\nt.start()\nt.join()"),
    (_LINES, "writing", "print(file=sys.stdout)", "import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])), file=sys.stdout)"),
    (_LINES, "names", "no import of sys", _SUM.format(read="sys.stdin.read()")),
    (_LINES, "names", "no import of math", "n = int(input())\nprint(floor(sum(int(input()) for _ in range(n)) + sqrt(0)))"),
    (_LINES, "names", "no import of numpy", "n = int(input())\nprint(np.sum([int(input()) for _ in range(n)]))"),
    (_LINES, "names", "global variable", "total = 0\ndef add(x):\n    global total\n    total += x\nn = int(input())\nfor _ in range(n):\n    add(int(input()))\nprint(total)"),
    (_LINES, "names", "global made in a function", "def read():\n    global n\n    n = int(input())\nread()\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "names", "read before it is set", "def add(x):\n    return x + base\nbase = 0\nn = int(input())\nprint(sum(add(int(input())) for _ in range(n)))"),
    (_LINES, "names", "class Solution", "class Solution:\n    def run(self, xs):\n        return sum(xs)\nn = int(input())\nprint(Solution().run([int(input()) for _ in range(n)]))"),
    (_LINES, "names", "class Solution in a comment", "# class Solution\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "names", "comprehension in a class body", "n = int(input())\nclass A:\n    k = 1\n    xs = [int(input()) for _ in range(n)]\nprint(sum(A.xs))"),
    (_LINES, "names", "exec", "exec('n = int(input())')\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "names", "__name__", "n = int(input())\nprint(sum(int(input()) for _ in range(n)) if __name__ == '__main__' else 'x')"),
    (_LINES, "names", "main block with else", "def main():\n    n = int(input())\n    print(sum(int(input()) for _ in range(n)))\nif __name__ == '__main__':\n    main()\nelse:\n    print(1)"),
    (_LINES, "names", "main block, other quotes", 'def main():\n    n = int(input())\n    print(sum(int(input()) for _ in range(n)))\nif __name__ == "__main__":\n    main()'),
    (_LINES, "names", "star import in try", "try:\n    from math import *\nexcept ImportError:\n    pass\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "names", "import in try", "try:\n    import math\nexcept ImportError:\n    pass\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "ending", "quit()", "n = int(input())\nprint(sum(int(input()) for _ in range(n)))\nquit()"),
    (_LINES, "ending", "exit()", "n = int(input())\nprint(sum(int(input()) for _ in range(n)))\nexit()"),
    (_LINES, "ending", "raise SystemExit in a function", "def main():\n    n = int(input())\n    print(sum(int(input()) for _ in range(n)))\n    raise SystemExit(3)\nmain()"),
    (_LINES, "ending", "atexit", "import atexit, sys\natexit.register(lambda: print(sum(map(int, sys.stdin.read().split()[1:]))))"),
    (_LINES, "ending", "KeyboardInterrupt", "n = int(input())\nprint(sum(int(input()) for _ in range(n)))\nraise KeyboardInterrupt"),
    (_LINES, "ending", "assertion", "n = int(input())\nassert n == 3\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "guard", "subprocess", "import subprocess\nsubprocess.run(['true'])\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "guard", "resource", "import resource\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "guard", "os.getcwd", "import os\nos.getcwd()\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "guard", "os.fork", "import os\nif os.fork() == 0: os._exit(0)\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "guard", "recursion limit", "import sys\nsys.setrecursionlimit(10**6)\nn = int(input())\nprint(sum(int(input()) for _ in range(n)))"),
    (_LINES, "loop", "endless", "while True: pass"),
    (_LINES, "loop", "endless, catching everything", "while True:\n    try:\n        while True: pass\n    except Exception:\n        break\nprint(6)"),
    (_DEEP, "recursion", "9,000 deep", "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(int(input())))"),
    (_TABLE, "numbers", "as expected", "n = int(input())\nprint(0.5, 1)\nprint(n)"),
    (_TABLE, "numbers", "other decimals", "n = int(input())\nprint('0.50 1.000')\nprint(n)"),
    (_TABLE, "numbers", "scientific", "n = int(input())\nprint('5e-1 1E0')\nprint(n)"),
    (_TABLE, "numbers", "near", "n = int(input())\nprint('0.5000000001 1')\nprint(n)"),
    (_TABLE, "numbers", "minus zero", "n = int(input())\nprint('0.5 1')\nprint('-0' if n == 0 else n)"),
    (_TABLE, "numbers", "other digits", "n = int(input())\nprint('0.5 \\u0661')\nprint(n)"),
    (_TABLE, "numbers", "underscores", "n = int(input())\nprint('0.5 0_1')\nprint(n)"),
    (_TABLE, "numbers", "a fraction", "n = int(input())\nprint('1/2 1')\nprint(n)"),
    (_TABLE, "numbers", "blank line between", "n = int(input())\nprint('0.5 1\\n')\nprint(n)"),
    (_TABLE, "numbers", "one line", "n = int(input())\nprint('0.5 1', n)"),
    (_TABLE, "numbers", "carriage returns", "n = int(input())\nprint('0.5 1\\r\\n' + str(n), end='\\r\\n')"),
    (_TABLE, "numbers", "separators of lines", "n = int(input())\nprint('0.5 1\\u2028' + str(n))"),
    (_EMPTY, "numbers", "nothing", "pass"),
    (_EMPTY, "numbers", "blanks", "print('  ')"),
    (_LINES, ATTACK, "os._exit at once", "import os\nos._exit(0)"),
    (_LINES, ATTACK, "sys.exit at once", "import sys\nsys.exit(0)"),
    (_LINES, ATTACK, "expected output from the grader's frames", "import sys\nf = sys._getframe()\nwhile f:\n    if 'gt_out' in f.f_locals:\n        print(f.f_locals['gt_out'])\n        break\n    f = f.f_back"),
    (_LINES, ATTACK, "expected output from the garbage collector", "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict) and 'all_outputs' in o: print(o['all_outputs'][0])"),
    (_LINES, ATTACK, "results appended by hand", "import sys\nf = sys._getframe()\nwhile f and 'all_results' not in f.f_locals:\n    f = f.f_back\nclass Line(str):\n    def strip(self): return self\n    def split(self, *a): return ['6']\nprint(6 if f and len(f.f_locals['all_results']) == 0 else -5)"),
    (_LINES, ATTACK, "the grader's comparison replaced", "import __main__, sys\nm = sys.modules.get('lcb_runner.evaluation.testing_util')\nif m: m.get_stripped_lines = lambda text: []\nprint('anything')"),
    (_LINES, ATTACK, "Decimal replaced", "import sys\nm = sys.modules.get('lcb_runner.evaluation.testing_util')\nif m: m.Decimal = lambda text: 0\nprint(1)"),
]  # fmt: skip


def _call(name: str, *cases: tuple[list[object], object]) -> Problem:
    return Problem(
        f"own/{name}", "", CallTests([CallCase(expected=e, args=a) for a, e in cases], "f", "Solution")
    )


_ADD = _call("add", ([1, 2], 3), ([2, 3], 5))
_LIST = _call("pairs", ([2], [[0, 1], [1, 0]]), ([1], [[0, 0]]))
_HALF = _call("half", ([1.0], 0.1), ([3.0], 0.3))
_FLAG = _call("flag", ([1], True), ([0], False))
_WORDS = _call("words", (["a b"], {"a": 1, "b": 1}), ([""], {}))
_METHOD = "class Solution:\n    def f(self, {args}):\n        {body}\n"


def _method(args: str, body: str) -> str:
    return _METHOD.format(args=args, body=body)


_EQUAL = "class E:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n"
CALL_PROGRAMS: list[_Programs] = [
    (_ADD, "value", "right", _method("a, b", "return a + b")),
    (_ADD, "value", "float", _method("a, b", "return float(a + b)")),
    (_ADD, "value", "Decimal", _method("a, b", "from decimal import Decimal; return Decimal(a + b)")),
    (_ADD, "value", "Fraction", _method("a, b", "from fractions import Fraction; return Fraction(a + b)")),
    (_ADD, "value", "complex", _method("a, b", "return complex(a + b)")),
    (_ADD, "value", "text", _method("a, b", "return str(a + b)")),
    (_ADD, "value", "in a list", _method("a, b", "return [a + b]")),
    (_ADD, "value", "wrong for the second", _method("a, b", "return 3")),
    (_ADD, "value", "int subclass", "class I(int): pass\n" + _method("a, b", "return I(a + b)")),
    (_ADD, "value", "IntEnum", "import enum\nclass I(enum.IntEnum):\n    A = 3\n    B = 5\n" + _method("a, b", "return I(a + b)")),
    (_LIST, "value", "right", _method("n", "return [[i, n - 1 - i] for i in range(n)]")),
    (_LIST, "value", "tuples inside", _method("n", "return [(i, n - 1 - i) for i in range(n)]")),
    (_LIST, "value", "tuple outside", _method("n", "return tuple([i, n - 1 - i] for i in range(n))")),
    (_LIST, "value", "map", _method("n", "return map(lambda i: [i, n - 1 - i], range(n))")),
    (_LIST, "value", "zip in list", _method("n", "return list(zip(range(n), range(n - 1, -1, -1)))")),
    (_LIST, "value", "numpy", "import numpy as np\n" + _method("n", "return np.array([[i, n - 1 - i] for i in range(n)])")),
    (_LIST, "value", "numpy inside", "import numpy as np\n" + _method("n", "return [np.array([i, n - 1 - i]) for i in range(n)]")),
    (_LIST, "value", "numpy integers", "import numpy as np\n" + _method("n", "return [[np.int64(i), np.int64(n - 1 - i)] for i in range(n)]")),
    (_LIST, "value", "deque", "from collections import deque\n" + _method("n", "return deque([i, n - 1 - i] for i in range(n))")),
    (_HALF, "value", "right", _method("x", "return float(repr(round(x / 10, 10)))")),
    (_HALF, "value", "off by an ulp", _method("x", "return x * 0.1")),
    (_HALF, "value", "numpy", "import numpy as np\n" + _method("x", "return np.float64(round(x / 10, 10))")),
    (_FLAG, "value", "right", _method("n", "return n == 1")),
    (_FLAG, "value", "integers", _method("n", "return n")),
    (_FLAG, "value", "numpy", "import numpy as np\n" + _method("n", "return np.bool_(n == 1)")),
    (_FLAG, "value", "truthy", _method("n", "return [1] if n else []")),
    (_WORDS, "value", "Counter", "from collections import Counter\n" + _method("s", "return Counter(s.split())")),
    (_WORDS, "value", "defaultdict", "from collections import defaultdict\n" + _method("s", "d = defaultdict(int); [d.__setitem__(w, d[w] + 1) for w in s.split()]; return d")),
    (_WORDS, "value", "items", _method("s", "return [(w, 1) for w in s.split()]")),
    (_ADD, "form", "a function", "def f(a, b): return a + b"),
    (_ADD, "form", "static method", "class Solution:\n    @staticmethod\n    def f(a, b): return a + b"),
    (_ADD, "form", "constructor with arguments", "class Solution:\n    def __init__(self, k): pass\n    def f(self, a, b): return a + b"),
    (_ADD, "form", "constructor that raises", "class Solution:\n    def __init__(self): 1 // 0\n    def f(self, a, b): return a + b"),
    (_ADD, "form", "class Solution2", "class Solution2:\n    def f(self, a, b): return a + b"),
    (_ADD, "form", "class Solution in a comment", "# class Solution\ndef f(a, b): return a + b"),
    (_ADD, "form", "another name", _method("a, b", "return a + b").replace("def f", "def g")),
    (_ADD, "form", "without types imported", _method("a: int, b: Optional[List[int]]", "return a + b")),
    (_ADD, "form", "without time imported", _method("a, b", "time.time(); return a + b")),
    (_ADD, "form", "without numpy imported", _method("a, b", "return int(np.sum([a, b]))")),
    (_ADD, "form", "reads input", "x = input()\n" + _method("a, b", "return a + b")),
    (_ADD, "form", "main block", _method("a, b", "return a + b") + "if __name__ == '__main__':\n    1 // 0"),
    (_ADD, "form", "async", "class Solution:\n    async def f(self, a, b): return a + b"),
    (_ADD, "form", "syntax error", "class Solution:\n    def f(self, a, b) return a + b"),
    (_ADD, "form", "changes its arguments", _call("x", ([1], 1)).id and _method("a, b", "a += b; return a")),
    (_ADD, "loop", "endless", _method("a, b", "\n        while True: pass")),
    (_ADD, "loop", "endless at import", "while True: pass"),
    (_ADD, "loop", "endless, catching it", _method("a, b", "\n        try:\n            while True: pass\n        except Exception:\n            return a + b")),
    (_ADD, "ending", "os._exit in the call", "import os\n" + _method("a, b", "os._exit(0)")),
    (_ADD, "ending", "sys.exit in the call", "import sys\n" + _method("a, b", "sys.exit()")),
    (_ADD, ATTACK, "always equal", _EQUAL + _method("a, b", "return E()")),
    (_ADD, ATTACK, "always equal int", "class E(int):\n    def __eq__(self, o): return True\n" + _method("a, b", "return E(0)")),
    (_LIST, ATTACK, "always equal in a list", _EQUAL + _method("n", "return [E()] * n")),
    (_LIST, ATTACK, "always equal list", "class E(list):\n    def __eq__(self, o): return True\n" + _method("n", "return E()")),
    (_HALF, ATTACK, "always equal float", "class E(float):\n    def __eq__(self, o): return True\n" + _method("x", "return E(7)")),
    (_FLAG, ATTACK, "always equal", _EQUAL + _method("n", "return E()")),
    (_WORDS, ATTACK, "always equal dict", "class E(dict):\n    def __eq__(self, o): return True\n" + _method("s", "return E()")),
    (_ADD, ATTACK, "answer from the grader's frames", "import sys\n" + _method("a, b", "\n        f = sys._getframe()\n        while f:\n            if 'gt_out' in f.f_locals: return f.f_locals['gt_out']\n            f = f.f_back")),
    (_ADD, ATTACK, "all answers from the grader's frames", "import sys\nclass Solution:\n    def f(self, a, b):\n        f = sys._getframe(1)\n        return f.f_locals['all_outputs'][len(f.f_locals['all_results'])]"),
    (_ADD, ATTACK, "numpy's comparison", "class E:\n    def __eq__(self, o): return 1\n" + _method("a, b", "return E()")),
]  # fmt: skip
