"""Problems that each have one documented defect, built on purpose, with the name it has to get."""

from __future__ import annotations

from typing import Any

import pytest

from tests.data.clean_problems import SUM, SUM_CASES, problem, stdin
from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    InteractiveCase,
    InteractiveTests,
    Limits,
    NoTests,
    Problem,
    Program,
    PythonChecker,
    PythonInteractor,
    StdinCase,
    StdinTests,
)

ADD = "Read two integers and print their sum."
QUICK: dict[str, Any] = {"most_cpu_s": 0.6}
"""A policy under which the slow problem here is slow soon."""


def lower_size_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set bounds of tests that are below the sizes of the large problems here."""
    for name, most in (("INPUT", 0.7), ("OUTPUT", 0.5), ("TESTS", 1.5)):
        monkeypatch.setattr(f"whetstone.data.validate.cases.LARGEST_{name}_MB", most)


WRONG_CASE = ("4 4\n", "9\n")
# Through a proxy a function has no code object.
FORGEABLE = AssertTests(asserts=["assert add.__code__.co_argcount == 2", "assert add(1, 2) == 3"])
NEEDS_PACKAGE = AssertTests(asserts=["import wikipedia\nassert add(1, 2) == 3"])
TALK = InteractiveTests(
    [InteractiveCase("7")],
    PythonInteractor("def interact(input, read, write):\n    return read() == input\n"),
)


def statement_defects() -> list[tuple[str, Problem]]:
    image = "![the whole task](https://example.org/task.png)\n\nSee above."
    shown = (
        "![a grid](grid.png) Read two integers, the lengths of the sides of the grid shown above, and then "
    )
    said_case = ADD + " You may print every letter in any case."
    said_error = ADD + " Your answer may have an absolute or relative error of at most 10^{-4}."
    said = {
        "missing_statement": "...",
        "image_only_statement": image,
        "interactive_statement": "This is an interactive problem. " + ADD,
        "image_in_statement": shown + "print the sum of both lengths.",
        "several_answers": ADD + " If there are multiple answers, print any of them.",
    }
    found = [(reason, problem(reason, text, stdin(*SUM_CASES), SUM)) for reason, text in said.items()]
    # Compared to the letter, which is no rule that a statement's words are put in place of.
    strict = {"any_case": said_case, "float_tolerance": said_error}
    found += [
        (reason, problem(reason, text, stdin(*SUM_CASES), SUM, compare=Compare("exact")))
        for reason, text in strict.items()
    ]
    return [*found, ("comparison_set", problem("set", said_case, stdin(*SUM_CASES), SUM))]


def tests_defects() -> list[tuple[str, Problem]]:
    zeros = "0 " * 400_000
    cut = " ".join(str(n) for n in range(100)) + " 1..."
    function = "def add(a, b):\n    return a + b\n"
    calls = [CallCase(a + b, [a, b]) for a, b in ((1, 2), (3, 4), (5, 6), (7, 8))]
    reading = "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
    echo = "print(input())\n"
    half = "1 " * 100_000
    halves = [(f"{half}{n}\n", f"{100_000 + n}\n") for n in range(8)]
    samples = "Sum two integers. Examples: " + " | ".join(f"{a} -> {b}" for a, b in SUM_CASES)
    square = "n = int(input())\nprint(n * n if n > 0 else '')\n"
    made: list[tuple[str, Problem]] = [
        ("nothing_to_validate", problem("without-tests", ADD, NoTests(), SUM)),
        ("input_too_large", problem("huge-input", ADD, stdin(*SUM_CASES, (zeros, "0\n")), reading)),
        ("output_too_large", problem("huge-output", "Print it.", stdin((half * 3, half * 3)), echo)),
        ("tests_too_large", problem("huge-tests", "Print the sum.", stdin(*halves), reading)),
        ("truncated_tests", problem("truncated", ADD, stdin(*SUM_CASES, (cut, "4951\n")), reading)),
        (
            "line_ends",
            problem("crlf", ADD, stdin(*SUM_CASES, ("\ufeff" + SUM_CASES[0][0], SUM_CASES[0][1])), SUM),
        ),
        ("line_ends", problem("bom", ADD, stdin(*SUM_CASES, ("9 8\r\n", "17\n")), SUM)),
        ("contradictory_tests", problem("contradictory", ADD, stdin(*SUM_CASES, ("1 2\n", "4\n")), SUM)),
        (
            "contradictory_tests",
            problem("two-sums", "Return the sum.", CallTests([*calls, CallCase(9, [1, 2])], "add"), function),
        ),
        (
            "contradictory_tests",
            problem(
                "contradictory-asserts",
                "Write a function add(a, b).",
                AssertTests(asserts=["assert add(1, 2) == 3", "assert add(1, 2) == 4"]),
                function,
            ),
        ),
        ("mixed_kinds", problem("function-for-stdin", ADD, stdin(*SUM_CASES), function)),
        ("mixed_kinds", problem("reader-for-calls", ADD, CallTests(calls, "add"), SUM)),
        (
            "mixed_kinds",
            problem("odd-arguments", ADD, CallTests([*calls, CallCase(3, ["1 2"])], "add"), function),
        ),
        ("duplicate_tests", problem("duplicate", ADD, stdin(*SUM_CASES, SUM_CASES[0]), SUM)),
        ("few_tests", problem("few", ADD, stdin(*SUM_CASES[:2]), SUM)),
        ("sample_tests_only", problem("samples", samples, stdin(*SUM_CASES), SUM)),
        (
            "constant_output",
            problem("constant", "Is it one?", stdin(*[(f"{n}\n", "yes") for n in range(6)]), "print('yes')"),
        ),
        (
            "empty_output",
            problem("empty", "Square n.", stdin(*[(f"{n}", f"{n * n}") for n in range(1, 6)], ("0", "")),
                    square),
        ),
    ]  # fmt: skip
    shared = [(f"{n} {n + 1} {n + 2} {n + 3}\n", f"{n} is the one\n") for n in range(100, 104)]
    made += [
        ("shared_tests", problem(f"mixed-up-{i}", f"Add {i} to n.",
                                 stdin(*[(f"{n}\n", f"{n + i}\n") for n in range(5)], *shared),
                                 f"print(int(input()) + {i})\n"))
        for i in range(1, 8)
    ]  # fmt: skip
    return made


def reference_defects() -> list[tuple[str, Problem]]:
    guess = "import os\nn = int(input())\nprint(n if os.urandom(1)[0] % 2 else -1)\n"
    numbers = stdin(*[(f"{n}\n", f"{n}\n") for n in range(1, 31)])
    python2 = "a, b = map(int, raw_input().split())\nprint a + b\n"
    python2_names = "a, b = map(int, raw_input().split())\nprint(a + b)\n"
    slow = "while True:\n    pass\n"
    subset = [(f"{n}\n", f"{n} 0\n" if n % 2 else f"0 {n}\n") for n in (1, 2, 3, 5, 7)]
    first, last = (
        "print(input(), 0)\n",
        "n = int(input())\nprint(*((n, 0) if n != 5 and n % 2 else (0, n)))\n",
    )
    pairs = stdin(*[(f"a{n} b{n}\n", f"a{n} b{n}\n") for n in range(8)])
    set_order = "print(*set(input().split()))\n"
    right = "n = int(input())\nprint(*((n, 0) if n % 2 else (0, n)))\n"
    broken = PythonChecker("def check(input, output, expected):\n    return undefined_name\n")
    cases = [StdinCase(given, expected) for given, expected in SUM_CASES]
    return [
        ("wrong_test", problem("wrong-test", ADD, stdin(*SUM_CASES, WRONG_CASE), SUM, SUM)),
        ("python2_reference", problem("python2", ADD, stdin(*SUM_CASES), python2)),
        ("python2_reference", problem("python2-names", ADD, stdin(*SUM_CASES), python2_names)),
        ("reference_too_slow", problem("slow", ADD, stdin(*SUM_CASES), slow, limits=Limits(0.3))),
        ("reference_fails", problem("fails", ADD, stdin(*SUM_CASES), "print(7, input())\n")),
        ("reference_fails", problem("no-package", ADD, stdin(*SUM_CASES), "import no_such_package\n" + SUM)),
        ("missing_package", problem("needs-package", ADD, stdin(*SUM_CASES), "import wikipedia\n" + SUM)),
        ("missing_package", problem("tests-need-it", ADD, NEEDS_PACKAGE, "def add(a, b): return a + b")),
        ("reference_fails", problem("removed", ADD, stdin(*SUM_CASES), "from fractions import gcd\n" + SUM)),
        ("flaky", problem("flaky", "Print n.", numbers, guess)),
        ("flaky", problem("set-order", "Print a and b, each once.", pairs, set_order)),
        ("references_differ", problem("differ", "Print n and 0 somehow.", stdin(*subset), right, last)),
        ("reference_removed", problem("one-removed", "Print n and 0 somehow.", stdin(*subset), right, first)),
        ("no_reference", problem("none", ADD, stdin(*SUM_CASES))),
        ("needs_shared_interpreter", problem("forgeable", ADD, FORGEABLE, "def add(a, b): return a + b")),
        ("inseparable_tests", problem("inseparable", ADD, FORGEABLE)),
        ("no_reference", problem("unproved", ADD, TALK)),
        ("not_judged", problem("no-judge", ADD, StdinTests(cases), SUM, checker=broken)),
        (
            "not_judged",
            Problem("made/no-language", ADD, StdinTests(cases), references=[Program("cobol", "x")]),
        ),
    ]  # fmt: skip


def strength_defects() -> list[tuple[str, Problem]]:
    branches = "".join(f"elif n < -{n}0:\n    n = n * {n} - {n}\n" for n in range(9, 1, -1))
    piecewise = f"n = int(input())\nif n > 900:\n    n -= 900\n{branches}print(3 * n)\n"
    near = stdin(*[(f"{n}\n", f"{3 * n}\n") for n in range(5)])
    echo = stdin(*[(f"{n}\n", f"{n}\n") for n in range(5)])
    wrong = [Program("python", "a, b = map(int, input().split())\nprint(b + a)\n")]
    calls = CallTests([CallCase(None, [n]) for n in range(5)], "find")
    methods = CallTests(
        [CallCase([None, None], [[], [n]], {}, ["Log", "add"]) for n in range(5)], None, "Log"
    )
    asserts = AssertTests(asserts=[f"assert not is_odd({n})" for n in (0, 2, 4, 6, 8)])
    log = "class Log:\n    def add(self, n):\n        pass\n"
    return [
        ("weak_tests", problem("weak", "Print three times n, piece by piece.", near, piecewise)),
        ("too_few_to_judge", problem("one-test", "Do what is asked.", stdin(("1\n", "7\n")), "print(7)\n")),
        ("trivial_program_passes", problem("echo", "Do what is asked.", echo, "print(input())\n")),
        ("trivial_program_passes", problem("none-call", "Find it.", calls, "def find(n): pass\n")),
        ("trivial_program_passes", problem("none-design", "Log numbers.", methods, log)),
        ("trivial_program_passes", problem("falsy", "Is n odd?", asserts, "def is_odd(n): return n % 2\n")),
        ("wrong_program_passes", problem("accepts-wrong", ADD, stdin(*SUM_CASES), SUM, wrong=wrong)),
    ]  # fmt: skip


def slow_reference() -> Problem:
    """A reference that needs more than the problem's limit allows, and less than the policy does."""
    busy = "import time\nwhile time.process_time() < 0.3:\n    pass\n" + SUM
    return problem("needs-time", ADD, stdin(*SUM_CASES[:2]), busy, limits=Limits(cpu_s=0.1))


def defective_problems() -> list[tuple[str, Problem]]:
    """Each with the reason that it has to get."""
    return [*statement_defects(), *tests_defects(), *reference_defects(), *strength_defects()]
