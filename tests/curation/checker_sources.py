"""A problem with several answers, and checkers for it: right, wrong, lenient, hostile and stalling ones."""

from __future__ import annotations

from tests.data.clean_problems import problem, stdin
from whetstone.core.problem import Problem, Program

STATEMENT = (
    "Read n, an integer from 2 to 1000. Print two positive integers on one line whose sum is n. "
    "If there are several answers, print any of them."
)
CASES = [(f"{n}\n", f"1 {n - 1}\n") for n in (2, 3, 9, 1000)]
REFERENCES = ("n = int(input())\nprint(1, n - 1)\n", "n = int(input())\nprint(n - n // 2, n // 2)\n")
WRONG = (Program("python", "n = int(input())\nprint(0, n)\n"),)

RIGHT = """\
def check(input, output, expected):
    words = output.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return False
    a, b = map(int, words)
    return a > 0 and b > 0 and a + b == int(input)
"""
COMPARES = "def check(input, output, expected):\n    return output.split() == expected.split()\n"
STRICT_ABOUT_LAYOUT = RIGHT.replace(
    "    words =", "    if output != ' '.join(output.split()) + '\\n':\n        return False\n    words ="
)
LENIENT_ABOUT_MORE = (
    RIGHT.replace("len(words) != 2 or not", "not")
    .replace("words)\n", "words[:2])\n")
    .replace("in words)", "in words[:2])")
)
FORGETS_A_RULE = RIGHT.replace("a > 0 and b > 0 and ", "")
SOMETIMES = "import os\n" + RIGHT.replace("return a > 0", "return os.urandom(1)[0] > 9 and a > 0")
REMEMBERS = "seen = []\n" + RIGHT

REFUSED = {
    "lenient": ("def check(input, output, expected):\n    return True\n", "accepts_trivial"),
    "refuses all": ("def check(input, output, expected):\n    return False\n", "refuses_answer"),
    "only compares": (COMPARES, "refuses_reference"),
    "accepts more after the answer": (LENIENT_ABOUT_MORE, "accepts_trivial"),
    "forgets a rule": (FORGETS_A_RULE, "accepts_wrong"),
    "cares about layout": (STRICT_ABOUT_LAYOUT, "refuses_answer"),
    "raises over everything": ("def check(input, output, expected):\n    return undefined\n", "fails"),
    "says neither": ("def check(input, output, expected):\n    return 1\n", "fails"),
    "leaves": ("import os\n\ndef check(input, output, expected):\n    os._exit(0)\n", "fails"),
    "leaves as an accepting program does": (
        "import sys\n\ndef check(input, output, expected):\n    sys.exit(42)\n",
        "fails",
    ),
    "prints without end": (
        "def check(input, output, expected):\n    while True:\n        print('x' * 10**6)\n",
        "does_not_decide",
    ),
    "stalls": ("def check(input, output, expected):\n    while True:\n        pass\n", "does_not_decide"),
    "takes all memory": (
        "def check(input, output, expected):\n    return len(bytearray(3 * 10**9)) > 1\n",
        ("does_not_decide", "fails"),
    ),
    "reads a file": (
        "def check(input, output, expected):\n    return open('/etc/shadow').read() is not None\n",
        "fails",
    ),
    "asks the network": (
        "import socket\n\ndef check(input, output, expected):\n"
        "    socket.create_connection(('127.0.0.1', 80), 1)\n    return True\n",
        "fails",
    ),
    "fails by itself": (
        "import no_such_module\n\ndef check(input, output, expected):\n    return True\n",
        "fails",
    ),
}


def pair_problem(name: str = "pair", **fields: object) -> Problem:
    """Two numbers with the sum n."""
    return problem(name, STATEMENT, stdin(*CASES), *REFERENCES, wrong=list(WRONG), **fields)
