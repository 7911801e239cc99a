"""Right programs in the many ways in which people read input and print answers.

Published graders reject some of them: they replace standard input by an object of their own, execute programs
under another name or compare text exactly. See ``docs/known_failures.md``.
"""

from __future__ import annotations

from whetstone.core.problem import Problem, Program, StdinCase, StdinTests
from whetstone_exam.exam.items import ExamItem

CLASS = "styles"

_TABLE = Problem(
    "exam/sum of a table",
    "The first line has the number of rows. Print the sum of the numbers of all rows.",
    StdinTests([StdinCase("3\n1 2 3\n4 5 6\n7 8 9\n", "45\n"), StdinCase("2\n10 -20\n30 40\n", "60\n")]),
)
_QUOTIENT = Problem(
    "exam/quotient",
    "Print the quotient of the two numbers; an error of 1e-6 is allowed.",
    StdinTests([StdinCase("1 3\n", "0.333333333333\n"), StdinCase("7 2\n", "3.5\n")]),
)
_POWER = Problem(
    "exam/digits of a power",
    "Print the number of decimal digits of 7 ** n.",
    StdinTests([StdinCase("6000\n", "5071\n"), StdinCase("10\n", "9\n")]),
)

_ALL = "print(sum(map(int, words[1:])))"
_ROWS = "print(sum(sum(map(int, row.split())) for row in rows))"
_PROGRAMS: dict[str, tuple[Problem, str]] = {
    "input": (_TABLE, f"rows = [input() for _ in range(int(input()))]\n{_ROWS}"),
    "sys.stdin.read": (_TABLE, f"import sys\nwords = sys.stdin.read().split()\n{_ALL}"),
    "sys.stdin.readline": (
        _TABLE,
        f"from sys import stdin\nrows = [stdin.readline() for _ in range(int(stdin.readline()))]\n{_ROWS}",
    ),
    "sys.stdin as an iterator": (_TABLE, f"import sys\nnext(sys.stdin)\nrows = list(sys.stdin)\n{_ROWS}"),
    "input, then sys.stdin": (_TABLE, f"import sys\ninput()\nrows = sys.stdin.readlines()\n{_ROWS}"),
    "sys.stdin.buffer.read": (_TABLE, f"import sys\nwords = sys.stdin.buffer.read().split()\n{_ALL}"),
    "sys.stdin.buffer.readline": (
        _TABLE,
        f"import sys\nread = sys.stdin.buffer.readline\nrows = [read() for _ in range(int(read()))]\n{_ROWS}",
    ),
    "sys.stdin.buffer.readlines": (
        _TABLE,
        f"import sys\nrows = sys.stdin.buffer.readlines()[1:]\n{_ROWS}",
    ),
    "open(0)": (_TABLE, f"words = open(0).read().split()\n{_ALL}"),
    "/dev/stdin": (_TABLE, f"words = open('/dev/stdin').read().split()\n{_ALL}"),
    "os.read": (_TABLE, f"import os\nwords = os.read(0, 100000).split()\n{_ALL}"),
    "fileinput": (_TABLE, f"import fileinput\nrows = list(fileinput.input())[1:]\n{_ROWS}"),
    "sys.stdout.buffer": (
        _TABLE,
        "import sys\nwords = sys.stdin.read().split()\n"
        "sys.stdout.buffer.write(b'%d\\n' % sum(map(int, words[1:])))",
    ),
    "redirected print": (
        _TABLE,
        "import io, sys\nout = io.StringIO()\nwords = sys.stdin.read().split()\n"
        "print(sum(map(int, words[1:])), file=out)\nsys.stdout.write(out.getvalue())",
    ),
    "main under __name__": (
        _TABLE,
        "import sys\ndef main():\n    words = sys.stdin.read().split()\n    print(sum(map(int, words[1:])))\n"
        "if __name__ == '__main__':\n    main()",
    ),
    "main in a thread": (
        _TABLE,
        "import sys, threading\nsys.setrecursionlimit(10 ** 6)\nthreading.stack_size(64 << 20)\n"
        "def main():\n    words = sys.stdin.read().split()\n    print(sum(map(int, words[1:])))\n"
        "t = threading.Thread(target=main)\nt.start()\nt.join()",
    ),
    "sys.exit at the end": (
        _TABLE,
        f"import sys\nwords = sys.stdin.read().split()\n{_ALL}\nsys.exit(0)",
    ),
    "globals in functions": (
        _TABLE,
        "import sys\ntotal = 0\ndef add(n):\n    global total\n    total += n\n"
        "for word in sys.stdin.read().split()[1:]:\n    add(int(word))\nprint(total)",
    ),
    "no end of line": (
        _TABLE,
        "import sys\nwords = sys.stdin.read().split()\nprint(sum(map(int, words[1:])), end='')",
    ),
    "blanks at the end": (
        _TABLE,
        "import sys\nwords = sys.stdin.read().split()\nprint(sum(map(int, words[1:])), '  ')",
    ),
    "fewer decimals": (_QUOTIENT, "a, b = map(int, input().split())\nprint(f'{a / b:.7f}')"),
    "more decimals": (_QUOTIENT, "a, b = map(int, input().split())\nprint(f'{a / b:.15f}')"),
    "a large integer as text": (
        _POWER,
        "import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(7 ** int(input()))))",
    ),
}


def style_items() -> list[ExamItem]:
    """Return the programs as honest items of the exam."""
    return [
        ExamItem(
            f"honest/{CLASS}/{name}",
            "honest",
            CLASS,
            f"be accepted, with this way to read, run or print: {name}",
            problem,
            Program("python", code + "\n"),
        )
        for name, (problem, code) in _PROGRAMS.items()
    ]
