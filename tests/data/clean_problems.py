"""Problems without a defect, of every kind, some of which look as if they had one. None may be dropped."""

from __future__ import annotations

import random

from whetstone.core.problem import (
    AssertTests,
    CallCase,
    CallTests,
    Compare,
    InteractiveCase,
    InteractiveTests,
    Limits,
    Problem,
    Program,
    PythonChecker,
    PythonInteractor,
    StandardChecker,
    StdinCase,
    StdinTests,
    Tests,
)

LIMITS = Limits(cpu_s=2.0, memory_mb=256.0)
SUM = "print(sum(map(int, input().split())))\n"
SUM_CASES = [("1 2\n", "3\n"), ("10 20\n", "30\n"), ("5 -5\n", "0\n"), ("7 7\n", "14\n"), ("0 9\n", "9\n")]


def problem(name: str, statement: str, tests: Tests, *references: str, **fields: object) -> Problem:
    """A problem whose references are in Python."""
    programs = [Program("python", source) for source in references]
    given = {"limits": LIMITS, "references": programs, "source": "made", **fields}
    return Problem(f"made/{name}", statement, tests, **given)  # type: ignore[arg-type]


def stdin(*cases: tuple[str, str]) -> StdinTests:
    return StdinTests([StdinCase(given, expected) for given, expected in cases])


def _text_problems() -> list[Problem]:
    crlf = [(given, expected.replace("\n", "\r\n")) for given, expected in SUM_CASES]
    draw = random.Random(1)
    large = [" ".join(str(draw.randrange(10**6)) for _ in range(size)) for size in (1, 9, 90, 900, 100_000)]
    cubes = [(f"{n}", f"{n**3}") for n in range(-3, 4)]
    parity = "print('YES' if int(input()) % 2 == 0 else 'NO')\n"
    return [
        problem("short", "Print n cubed.", stdin(*cubes), "print(int(input()) ** 3)\n"),
        problem("crlf", "Read two integers and print their sum.", stdin(*crlf), SUM),
        problem(
            "yes-no",
            "Is the number even? Print YES or NO.",
            stdin(("2\n", "YES\n"), ("3\n", "NO\n"), ("4\n", "YES\n"), ("5\n", "NO\n"), ("0\n", "YES\n")),
            parity,
        ),
        problem(
            "mostly-no",
            "Read an integer and print YES if it is 7, otherwise NO.",
            stdin(*[(f"{n}\n", "YES\n" if n == 7 else "NO\n") for n in (1, 2, 7, 8, 6, -7)]),
            "print('YES' if input() == '7' else 'NO')\n",
        ),
        problem(
            "large-input",
            "Read integers from one line and print the largest of them.",
            stdin(*[(line + "\n", f"{max(map(int, line.split()))}\n") for line in large]),
            "print(max(map(int, input().split())))\n",
        ),
        problem(
            "tie-break",
            "Print two divisors with product n. If there are multiple answers, print the one with the "
            "smallest first number.",
            stdin(*[(f"{n}\n", f"1 {n}\n") for n in (2, 6, 9, 35, 48)]),
            "n = int(input())\nprint(next(f'{d} {n // d}' for d in range(1, n + 1) if n % d == 0))\n",
        ),
        problem(
            "cards",
            "In a game of poker in an interactive shop: are the suits a flush, yes or no? "
            "This is not an interactive problem.",
            stdin(*[(h, "yes" if len({*h}) == 1 else "no") for h in ("HHH", "HHS", "DDD", "SDS", "CCC")]),
            "print('yes' if len(set(input())) == 1 else 'no')\n",
        ),
        problem(
            "given-in-any-order",
            "Two different integers are given in any order. Print the larger one.",
            stdin(*[(f"{a} {b}\n", f"{max(a, b)}\n") for a, b in ((1, 2), (5, 3), (-1, -2), (0, 9), (8, 0))]),
            "print(max(map(int, input().split())))\n",
        ),
        problem(
            "two-references",
            "Read n and print the sum of the integers from 1 to n.",
            stdin(*[(f"{n}\n", f"{n * (n + 1) // 2}\n") for n in (1, 2, 10, 77, 1000)]),
            "print(sum(range(int(input()) + 1)))\n",
            "n = int(input())\nprint(n * (n + 1) // 2)\n",
        ),
        problem(
            "names-of-python-2",
            "Read n and print the numbers from 1 to n on a line.",
            stdin(*[(f"{n}\n", " ".join(map(str, range(1, n + 1))) + "\n") for n in (1, 2, 3, 5, 8)]),
            "raw_input = input\nxrange = range\nprint(*xrange(1, int(raw_input()) + 1))\n",
        ),
        problem(
            "deep-recursion",
            "Read n and print twice n, counted by recursion.",
            stdin(*[(f"{n}\n", f"{2 * n}\n\n") for n in (1, 3, 50, 2000, 20000)]),
            "import sys\nsys.setrecursionlimit(50_000)\ndef f(n):\n    return 0 if n == 0 else 2 + f(n - 1)\n"
            "print(f(int(input())))\n",
            wrong=[Program("python", "print(min(int(input()), 100))\n")],
        ),
    ]  # fmt: skip


def _compared_problems() -> list[Problem]:
    """Statements that leave something to the program, and comparisons that know it."""
    adds_up = (
        "def check(input, output, expected):\n    a, b = output.split()\n"
        "    return int(a) + int(b) == int(input)\n"
    )
    return [
        problem(
            "checker",
            "Read n and print two integers with the sum n. If there are multiple answers, print any of them.",
            stdin(*[(f"{n}\n", f"{n} 0\n") for n in (1, 2, 3, 50, 1000)]),
            "print(0, input())\n",
            "print(1, int(input()) - 1)\n",
            checker=PythonChecker(adds_up),
        ),
        problem(
            "standard-checker",
            "Print YES if n is odd, otherwise NO. You can print each letter in any case.",
            stdin(*[(f"{n}\n", "YES\n" if n % 2 else "NO\n") for n in (1, 2, 3, 4, 5)]),
            "print('yEs' if int(input()) % 2 else 'nO')\n",
            checker=StandardChecker("nyesno"),
        ),
        problem(
            "any-case",
            "Is n odd? Answer yes or no; you can print each letter in any case.",
            stdin(*[(f"{n}\n", "yes\n" if n % 2 else "no\n") for n in (1, 2, 3, 4, 5)]),
            "print('Yes' if int(input()) % 2 else 'No')\n",
            compare=Compare("ignore_case"),
        ),
        problem(
            "floats",
            "Print the square root of n. An absolute or relative error of 10^-4 is allowed.",
            stdin(*[(f"{n}\n", f"{n**0.5:.6f}\n") for n in (1, 2, 3, 50, 7)]),
            "print(round(int(input()) ** 0.5, 5))\n",
            compare=Compare("floats", abs=1e-4, rel=1e-4),
        ),
        problem(
            "unordered",
            "Print the numbers from 1 to n. You may print the lines in any order.",
            stdin(*[(f"{n}\n", "".join(f"{i}\n" for i in range(1, n + 1))) for n in (1, 2, 3, 5, 9)]),
            "for i in range(int(input()), 0, -1):\n    print(i)\n",
            compare=Compare("unordered_lines"),
        ),
    ]


def _called_problems() -> list[Problem]:
    add = [CallCase(a + b, [a, b]) for a, b in ((1, 2), (0, 0), (-3, 3), (100, 1), (7, 8))]
    grow = [
        CallCase(n + by, [n] if by == 1 else [n, by]) for n, by in ((1, 1), (5, 1), (1, 3), (9, -9), (0, 1))
    ]
    counter = [
        CallCase([None, *range(1, n + 1)], [[], *[[] for _ in range(n)]], {}, ["Counter", *["hit"] * n])
        for n in (1, 2, 3, 4, 5)
    ]
    return [
        problem("call", "Return a + b.", CallTests(add, "add"), "def add(a, b):\n    return a + b\n"),
        problem(
            "method",
            "Return the sum of both numbers.",
            CallTests(add, "add", "Solution"),
            "class Solution:\n    def add(self, a, b):\n        return a + b\n",
        ),
        problem(
            "optional-argument",
            "Write grow(n, by=1), which returns n plus by.",
            CallTests(grow, "grow"),
            "def grow(n, by=1):\n    return n + by\n",
        ),
        problem(
            "design",
            "Write a class Counter whose method hit() says how often it was called.",
            CallTests(counter, None, "Counter"),
            "class Counter:\n    n = 0\n    def hit(self):\n        self.n += 1\n        return self.n\n",
        ),
    ]


def _asserted_problems() -> list[Problem]:
    double = "def double(n):\n    return 2 * n\n"
    check = "def check(candidate):\n" + "".join(
        f"    assert candidate({n}) == {2 * n}\n" for n in range(1, 7)
    )
    case = "import unittest\nclass T(unittest.TestCase):\n" + "".join(
        f"    def test_{n}(self):\n        self.assertEqual(double({n}), {2 * n})\n" for n in range(1, 7)
    )
    prompt = 'def double(n):\n    """Return twice n.\n    >>> double(2)\n    4\n    """\n'
    guess = (
        "def interact(input, read, write):\n    secret = int(input)\n    for _ in range(20):\n"
        "        guess = int(read())\n"
        "        write('equal\\n' if guess == secret else 'less\\n' if secret < guess else 'more\\n')\n"
        "        if guess == secret:\n            return True\n    return False\n"
    )
    search = (
        "low, high = 1, 1000\nwhile True:\n    middle = (low + high) // 2\n    print(middle, flush=True)\n"
        "    answer = input()\n    if answer == 'equal':\n        break\n    if answer == 'less':\n"
        "        high = middle - 1\n    else:\n        low = middle + 1\n"
    )
    return [
        problem("check", prompt, AssertTests(check=check, entry_point="double"), double),
        problem(
            "asserts",
            "Write a function double(n).",
            AssertTests(asserts=[f"assert double({n}) == {2 * n}" for n in (1, 2, 3, 10, -4)]),
            double,
        ),
        problem("unittest", "Write a function double(n).", AssertTests(unittest=case), double),
        problem(
            "interactive",
            "This is an interactive problem. Guess a number from 1 to 1000; flush the output.",
            InteractiveTests(
                [InteractiveCase(str(n)) for n in (1, 500, 731, 999, 1000)], PythonInteractor(guess)
            ),
            search,
        ),
    ]


def clean_problems() -> list[Problem]:
    """All of them."""
    return [*_text_problems(), *_compared_problems(), *_called_problems(), *_asserted_problems()]
