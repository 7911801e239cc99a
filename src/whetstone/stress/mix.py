"""Programs whose verdict is known beforehand: what a judge meets on a bad day, in known shares."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec import Struct

from whetstone.judge import Program, Verdict
from whetstone.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    Limits,
    Problem,
    PythonChecker,
    StdinCase,
    StdinTests,
    Tests,
)

CPU_S = 0.5
"""The CPU limit of every case: small, so that endless programs do not take all the time."""
_LIMITS = Limits(cpu_s=CPU_S, memory_mb=192, output_mb=1)
_BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"
_MARK = "whetstone-stress-mark"


class Known(Struct, frozen=True):
    """A program with the verdicts that it may get (one, but for programs that meet several limits)."""

    name: str
    share: int
    """How many of 1,000 programs of the mix are of this sort."""
    problem: Problem
    program: Program
    verdicts: tuple[Verdict, ...]


def known_programs() -> list[Known]:
    """All sorts of programs, in a fixed order. The shares add up to 1,000."""
    return [*_fast(), *_costly(), *_greedy(), *_leaving_something()]


def mix(count: int, seed: int = 0, programs: list[Known] | None = None) -> Iterator[Known]:
    """``count`` programs (of ``programs``, or of all sorts) by their shares, in a seeded order."""
    sorts = programs or known_programs()
    draw = random.Random(seed)
    for _ in range(count):
        yield draw.choices(sorts, [known.share for known in sorts])[0]


def _known(name: str, share: int, tests: Tests, source: str, *verdicts: Verdict, **fields: object) -> Known:
    problem = Problem(id=f"stress/{name}", statement="", tests=tests, limits=_LIMITS, **fields)  # pyright: ignore[reportArgumentType]
    return Known(name, share, problem, Program("python", source), verdicts or (Verdict.ACCEPTED,))


def _stdin(*cases: tuple[str, str]) -> StdinTests:
    return StdinTests([StdinCase(given, expected) for given, expected in cases])


_DOUBLE = _stdin(("2\n", "4\n"), ("5\n", "10\n"), ("70\n", "140\n"))
_ADD = CallTests([CallCase(args=[1, 2], expected=3), CallCase(args=[2, 2], expected=4)], "add")
_ADD_ASSERTS = AssertTests(asserts=["assert add(1, 2) == 3", "assert add(2, 2) == 4"])
_DONE = _stdin(("", "done\n"))
_CHECK = "def check(input, output, expected):\n    return int(output) * 2 == int(input)\n"


def _fast() -> list[Known]:
    """Programs that take next to no time, of all kinds of test."""
    wrong, crash = Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR
    halves = _stdin(("2\n", "1\n"), ("8\n", "4\n"))
    large = "\n".join(str(number) for number in range(100_000))
    return [
        _known("right", 200, _DOUBLE, "print(2 * int(input()))"),
        _known("wrong", 120, _DOUBLE, "n = int(input())\nprint(2 * n if n < 9 else n)", wrong),
        _known("crash", 70, _DOUBLE, "n = int(input())\nprint(2 * n)\nif n > 9: 1 / 0", crash),
        _known("silent", 50, _DOUBLE, "import os\nos._exit(0)", wrong),
        _known("no program", 30, _DOUBLE, "def solve(:\n", Verdict.COMPILE_ERROR),
        _known("call right", 100, _ADD, "def add(a, b): return a + b"),
        _known("call wrong", 60, _ADD, "def add(a, b): return a * b", wrong),
        _known("assert right", 60, _ADD_ASSERTS, "def add(a, b): return a + b"),
        _known("assert wrong", 40, _ADD_ASSERTS, "def add(a, b): return a * b", wrong),
        _known("checked", 40, halves, "print(int(input()) // 2)", checker=PythonChecker(_CHECK)),
        _known(
            "large",
            20,
            _stdin((large, large)),
            "import sys\nsys.stdout.write(sys.stdin.read())",
            compare=Compare("exact"),
        ),
    ]


def _costly() -> list[Known]:
    """Programs that take time: within their limit, beyond it, or without using any."""
    return [
        _known("half the limit", 30, _DONE, _BUSY.format(seconds=CPU_S / 2) + "print('done')"),
        _known("sleeping", 20, _DONE, "import time\ntime.sleep(0.3)\nprint('done')"),
        _known("endless", 12, _DONE, "while True: pass", Verdict.TIME_LIMIT),
        _known("endless call", 8, _ADD, "def add(a, b):\n    while True: pass", Verdict.TIME_LIMIT),
    ]


def _greedy() -> list[Known]:
    """Programs that take more than they may."""
    threads = (
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    # Which limit a flood meets first depends on the tier; that it is not accepted and harms nobody does not.
    refused = (Verdict.RUNTIME_ERROR, Verdict.MEMORY_LIMIT, Verdict.TIME_LIMIT)
    return [
        _known("memory", 20, _DONE, "x = []\nwhile True: x.append(bytearray(1 << 22))", Verdict.MEMORY_LIMIT),
        _known("output", 20, _DONE, "while True: print('y' * 1000)", Verdict.OUTPUT_LIMIT),
        _known(
            "errors",
            10,
            _DONE,
            "import sys\nwhile True: sys.stderr.write('y' * 1000)",
            Verdict.OUTPUT_LIMIT,
        ),
        _known("threads", 10, _DONE, threads, *refused),
        _known("processes", 10, _DONE, "import os\nwhile True: os.fork()", *refused),
    ]


def _leaving_something() -> list[Known]:
    """Programs that leave something behind, and those that look whether there is something."""
    leave = (
        "import os, threading, time\n"
        f"for place in ('/tmp', '/dev/shm', '.'):\n"
        "    try:\n"
        f"        open(os.path.join(place, {_MARK!r}), 'w').write('x' * 10000)\n"
        "    except OSError:\n"
        "        pass\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "print('done')"
    )
    look = (
        "import os, threading\n"
        f"left = [p for p in ('/tmp', '/dev/shm', '.') if os.path.exists(os.path.join(p, {_MARK!r}))]\n"
        "print(left or 'done')"
    )
    return [
        _known("leaves something", 35, _DONE, leave),
        _known("finds nothing", 35, _DONE, look),
    ]
