"""EvalPlus' way to find the program in a reply: the same program as by trying every run of lines."""

from __future__ import annotations

import ast
import time
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whetstone_graders.livecodebench import code_in
from whetstone_graders.sanitize import longest_parsable, sanitized

_LINES = [
    "Sure! Here is it:", "It's done (I think", "1. first", "```python", "```", "", "   ", "# note", "x = [",
    "  1,", "]", "def f(n):", "    return g(n)", "def g(n):", "    print(n)", "    if n:", "        pass",
    "'''text", '"""', "import math", "y = f'{x!r}'", "z = f'{x!'", "@cache", "else:", "try:", "except E:",
    "  odd indent", "a = (", ")", "return 1", "\tx = 1", "é = 2 \\", "class A:", "    x: int = 1", "5 = x",
    "f(a b)",
]  # fmt: skip


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError:
        return False
    return True


def _longest(text: str) -> str:
    """Every run of at least two lines; the first of those with the most filled lines."""
    lines = text.split("\n")
    best, place = 0, (0, 0)
    for i in range(len(lines)):
        for j in range(i + 1, len(lines)):
            filled = sum(bool(line.strip()) for line in lines[i : j + 1])
            if filled > best and _parses("\n".join(lines[i : j + 1])):
                best, place = filled, (i, j)
    return "\n".join(lines[place[0] : place[1] + 1])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_LINES), min_size=1, max_size=14).map("\n".join))
@example("x = [\n  1,\n]\nx = [\n1")
@example("a = (\n'''text\n)\n'''\n)")
def test_the_longest_run_that_parses_is_found(text: str) -> None:
    assert longest_parsable(text) == _longest(text)


def test_a_long_reply_of_prose_is_searched_in_time() -> None:
    prose = "The idea is to walk (carefully) over the list,\nwhich isn't hard.\n\n" * 500
    code = "def f(n):\n    return n"
    assert longest_parsable(f"{prose}\n{code}\n{prose}").strip() == code


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ("def f(n):\n    return g(n)\ndef g(n):\n    return n\ndef h(n):\n    return 1",
         "def f(n):\n    return g(n)\ndef g(n):\n    return n"),
        ("Here:\n```python\nimport math\ndef f(n):\n    return math.pi\n```\nBye.",
         "import math\ndef f(n):\n    return math.pi"),
        ("k = 3\nq = 4\ndef f(n):\n    return k", "k = 3\ndef f(n):\n    return k"),
        ("def f(n):\n    return 1\ndef f(n):\n    return 2", "def f(n):\n    return 1"),
        ("def f(n):\n    return g(n)\ndef g(n):\n    print(n)", "def f(n):\n    return g(n)"),
        ("from functools import cache\n@cache\ndef f(n):\n    return 1", "from functools import cache"),
        ("from __future__ import annotations\nclass f:\n    x = 1", "class f:\n    x = 1"),
        ("def f(n):\n    return 1\nprint(f(2))\nassert f(1) == 1", "def f(n):\n    return 1"),
        ("class A:\n    def m(self):\n        return h\nh = 1\nf = A",
         "class A:\n    def m(self):\n        return h\nh = 1\nf = A"),
        ("print(1)\nprint(2)", "print(1)\nprint(2)"),
        ("no code at all here", "no code at all here"),
    ],
)  # fmt: skip
def test_sanitizing_keeps_the_code_that_the_entry_point_needs(reply: str, kept: str) -> None:
    assert sanitized(reply, "f") == kept


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("```python\na\n```\ntext\n```\nb\nc\n```", "b\nc"),
        ("```python\na\n```\nmore\n```y```", "more"),
        ("```python\nnever closed", ""),
        ("no fence", ""),
        ("```\na\n``` text ```\nb", "a"),
    ],
)
def test_livecodebench_takes_the_code_between_the_last_two_fences(reply: str, code: str) -> None:
    assert code_in(reply) == code


HOSTILE = {
    "starts of calls": lambda n: "x = f(\n" * (n // 7),
    "programs and ends of others": lambda n: ("x = 1\n" * 40 + ")\n") * (n // 242),
    "strings that never end": lambda n: 'x = """\n' * (n // 8),
    "fences": lambda n: "```\n" * (n // 4),
    "f-strings with an error": lambda n: "x = f'{a b}'\n" * (n // 13),
    "many names": lambda n: "".join(f"a{i} = {i}\n" for i in range(n // 13)),
    "combining marks": lambda n: "a" + "\u0316\u0301" * (n // 4) + " = 1\nx = 1\n",
}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_does_not_stall_it(kind: str) -> None:
    started = time.process_time()
    sanitized(HOSTILE[kind](60_000), "f")
    assert time.process_time() - started < 60
