"""Programs with known verdicts, correct and wrong, in fixed proportions."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec import Struct

from whetstone.core.problem import (
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
from whetstone.judge import Program, Verdict

# The CPU limit of every case in seconds. It is small, so that endless programs do not dominate the time.
CPU_S = 0.5
_LIMITS = Limits(cpu_s=CPU_S, memory_mb=192, output_mb=1)
_BUSY_LOOP = "import time\nwhile time.process_time() < {seconds}: pass\n"
_LEFTOVER_NAME = "whetstone-stress-mark"


class KnownProgram(Struct, frozen=True):
    """A program with its permitted verdicts: one, except for programs that exceed several limits."""

    name: str
    share: int
    """The number of programs of this sort among 1,000 programs of the mix."""
    problem: Problem
    program: Program
    verdicts: tuple[Verdict, ...]


def known_programs() -> list[KnownProgram]:
    """Return one program of each sort, in a fixed order. The shares add up to 1,000."""
    return [*_fast(), *_slow(), *_exceeding_limits(), *_with_leftovers()]


def mix(count: int, seed: int = 0, programs: list[KnownProgram] | None = None) -> Iterator[KnownProgram]:
    """Yield ``count`` programs (of ``programs``, or of all sorts) by their shares, in a seeded order."""
    sorts = programs or known_programs()
    rng = random.Random(seed)
    for _ in range(count):
        yield rng.choices(sorts, [known.share for known in sorts])[0]


def _known_program(
    name: str, share: int, tests: Tests, source: str, *verdicts: Verdict, **fields: object
) -> KnownProgram:
    problem = Problem(id=f"stress/{name}", statement="", tests=tests, limits=_LIMITS, **fields)  # pyright: ignore[reportArgumentType]
    return KnownProgram(name, share, problem, Program("python", source), verdicts or (Verdict.ACCEPTED,))


def _stdin(*cases: tuple[str, str]) -> StdinTests:
    return StdinTests([StdinCase(text, expected) for text, expected in cases])


_DOUBLE = _stdin(("2\n", "4\n"), ("5\n", "10\n"), ("70\n", "140\n"))
_ADD = CallTests([CallCase(args=[1, 2], expected=3), CallCase(args=[2, 2], expected=4)], "add")
_ADD_ASSERTS = AssertTests(asserts=["assert add(1, 2) == 3", "assert add(2, 2) == 4"])
_DONE = _stdin(("", "done\n"))
_CHECK = "def check(input, output, expected):\n    return int(output) * 2 == int(input)\n"


def _fast() -> list[KnownProgram]:
    """Return programs that take almost no time, for all kinds of tests."""
    wrong, crash = Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR
    halves = _stdin(("2\n", "1\n"), ("8\n", "4\n"))
    large = "\n".join(str(number) for number in range(100_000))
    return [
        _known_program("right", 200, _DOUBLE, "print(2 * int(input()))"),
        _known_program("wrong", 120, _DOUBLE, "n = int(input())\nprint(2 * n if n < 9 else n)", wrong),
        _known_program("crash", 70, _DOUBLE, "n = int(input())\nprint(2 * n)\nif n > 9: 1 / 0", crash),
        _known_program("silent", 50, _DOUBLE, "import os\nos._exit(0)", wrong),
        _known_program("no program", 30, _DOUBLE, "def solve(:\n", Verdict.COMPILE_ERROR),
        _known_program("call right", 100, _ADD, "def add(a, b): return a + b"),
        _known_program("call wrong", 60, _ADD, "def add(a, b): return a * b", wrong),
        _known_program("assert right", 60, _ADD_ASSERTS, "def add(a, b): return a + b"),
        _known_program("assert wrong", 40, _ADD_ASSERTS, "def add(a, b): return a * b", wrong),
        _known_program("checked", 40, halves, "print(int(input()) // 2)", checker=PythonChecker(_CHECK)),
        _known_program(
            "large",
            20,
            _stdin((large, large)),
            "import sys\nsys.stdout.write(sys.stdin.read())",
            compare=Compare("exact"),
        ),
    ]


def _slow() -> list[KnownProgram]:
    """Return programs that take time: below the limit, above it, or asleep."""
    return [
        _known_program("half the limit", 30, _DONE, _BUSY_LOOP.format(seconds=CPU_S / 2) + "print('done')"),
        _known_program("sleeping", 20, _DONE, "import time\ntime.sleep(0.3)\nprint('done')"),
        _known_program("endless", 12, _DONE, "while True: pass", Verdict.TIME_LIMIT),
        _known_program("endless call", 8, _ADD, "def add(a, b):\n    while True: pass", Verdict.TIME_LIMIT),
    ]


def _exceeding_limits() -> list[KnownProgram]:
    """Return programs that exceed a limit other than CPU time."""
    threads = (
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    # The tier decides which limit these programs reach first. All of these verdicts are correct.
    refused = (Verdict.RUNTIME_ERROR, Verdict.MEMORY_LIMIT, Verdict.TIME_LIMIT)
    return [
        _known_program(
            "memory", 20, _DONE, "x = []\nwhile True: x.append(bytearray(1 << 22))", Verdict.MEMORY_LIMIT
        ),
        _known_program("output", 20, _DONE, "while True: print('y' * 1000)", Verdict.OUTPUT_LIMIT),
        _known_program(
            "errors",
            10,
            _DONE,
            "import sys\nwhile True: sys.stderr.write('y' * 1000)",
            Verdict.OUTPUT_LIMIT,
        ),
        _known_program("threads", 10, _DONE, threads, *refused),
        _known_program("processes", 10, _DONE, "import os\nwhile True: os.fork()", *refused),
    ]


def _with_leftovers() -> list[KnownProgram]:
    """Return a program that leaves files and a thread behind, and one that looks for them."""
    leave = (
        "import os, threading, time\n"
        f"for place in ('/tmp', '/dev/shm', '.'):\n"
        "    try:\n"
        f"        open(os.path.join(place, {_LEFTOVER_NAME!r}), 'w').write('x' * 10000)\n"
        "    except OSError:\n"
        "        pass\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "print('done')"
    )
    check = (
        "import os, threading\n"
        "places = ('/tmp', '/dev/shm', '.')\n"
        f"left = [p for p in places if os.path.exists(os.path.join(p, {_LEFTOVER_NAME!r}))]\n"
        "print(left or 'done')"
    )
    return [
        _known_program("leaves something", 35, _DONE, leave),
        _known_program("finds nothing", 35, _DONE, check),
    ]
