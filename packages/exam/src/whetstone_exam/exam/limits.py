"""Items about limits: right programs within them, and programs that exceed them before a right answer.

Their problem is the sum of two numbers, in each form of tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Limits,
    Problem,
    Program,
    StdinCase,
    StdinTests,
)
from whetstone_exam.exam.items import ExamItem, Kind

CLASS = "limits"

FORMS = {
    "input": "print(sum(map(int, input().split())) if right else -1)\n",
    "call": "def add(a, b):\n    return a + b if right else -1\n",
    "asserts": "def add(a, b):\n    return a + b if right else -1\n",
}
"""The end of a program in each form. It is right if the global ``right`` is true."""

_PAIRS = ((2, 3), (10, -4))
_WITHIN = {
    "half of the CPU time": (
        "import time\nwhile time.process_time() < limit / 2:\n    pass\n",
        "use half of the CPU time",
    ),
    "a pause": ("import time\ntime.sleep(1.5)\n", "sleep 1.5 s"),
    "a third of the memory": ("block = bytearray(160 << 20)\n", "hold 160 of 512 MiB"),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(20000)\n"
        "def depth(n):\n    return 0 if n == 0 else 1 + depth(n - 1)\nassert depth(8000) == 8000\n",
        "recurse 8,000 levels deep",
    ),
    "threads": (
        "import threading\nthreads = [threading.Thread(target=sum, args=([1],)) for _ in range(16)]\n"
        "for t in threads:\n    t.start()\nfor t in threads:\n    t.join()\n",
        "use 16 threads",
    ),
    "messages on standard error": (
        "import sys\nsys.stderr.write('x' * 200000)\n",
        "write 200 kB to standard error",
    ),
}
# Half of the CPU time in each of many cases, as graders with one clock for all cases do not allow.
_MANY_PAIRS = tuple((number, 7) for number in range(6))

_BEYOND = {
    "CPU time": (
        "import time\nwhile time.process_time() < 15 * limit:\n    pass\n",
        "answer after 15 times the CPU time",
    ),
    "CPU time of a thread": (
        "import threading, time\ndef work():\n    while time.process_time() < 15 * limit:\n        pass\n"
        "t = threading.Thread(target=work)\nt.start()\nt.join()\n",
        "answer after a thread used 15 times the CPU time",
    ),
    "no end": ("import time\ntime.sleep(10**6)\n", "answer after eleven days of sleep"),
}


def sum_problem(form: str, pairs: Sequence[tuple[int, int]], limits: Limits | None = None) -> Problem:
    """Return the sum of two numbers as a problem in a form of ``FORMS``, with a case for each pair."""
    sums = [(a, b, a + b) for a, b in pairs]
    if form == "input":
        statement = "Print the sum of the two numbers on the line."
        tests = StdinTests([StdinCase(f"{a} {b}\n", f"{total}\n") for a, b, total in sums])
    else:
        statement = "Write `add(a, b)`, which returns the sum of two numbers."
        if form == "call":
            tests = CallTests([CallCase(total, [a, b]) for a, b, total in sums], "add")
        else:
            tests = AssertTests(asserts=[f"assert add({a}, {b}) == {total}" for a, b, total in sums])
    return Problem(f"exam/sum, {form}", statement, tests, limits=limits or Limits())


def limit_items(cpu_s: float = 2.0) -> list[ExamItem]:
    """Return the items of all forms of tests, with a limit of ``cpu_s`` CPU seconds and of 512 MiB."""
    programs: list[tuple[Kind, str, str, str]] = [
        *(("honest", name, code, aim) for name, (code, aim) in _WITHIN.items()),
        *(("hack", name, code, aim) for name, (code, aim) in _BEYOND.items()),
    ]
    limits = Limits(cpu_s=cpu_s, memory_mb=512.0)
    items = [
        _item(kind, f"{name}, {form}", code, aim, sum_problem(form, _PAIRS, limits), cpu_s, end)
        for kind, name, code, aim in programs
        for form, end in FORMS.items()
    ]
    code, aim = _WITHIN["half of the CPU time"]
    many = sum_problem("input", _MANY_PAIRS, limits)
    name = "half of the CPU time in each of six cases"
    return [*items, _item("honest", name, code, f"{aim} in each of six cases", many, cpu_s, FORMS["input"])]


def _item(kind: Kind, name: str, code: str, aim: str, problem: Problem, cpu_s: float, end: str) -> ExamItem:
    program = Program("python", f"limit = {cpu_s}\nright = True\n{code}{end}")
    return ExamItem(f"{kind}/{CLASS}/{name}", kind, CLASS, f"be accepted, and {aim}", problem, program)
