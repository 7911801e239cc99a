# ruff: noqa: E501  (programs and replies are as long as they are)
"""Replies in the shapes that models write, each with the program that is meant by it.

Programs (what is asked for, and how it is used) times shapes (how a reply wraps it). A shape may want a program
of one kind only: one that is called, or one that reads its input. Both are in `reply_corpus.toml`. The text of
a shape has the fields of a program in braces.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import convert


@dataclass(frozen=True)
class Asked:
    """A program, the names that tests call (none: it reads input), and what models like to add to it."""

    title: str
    code: str
    names: frozenset[str] = frozenset()
    usage: str = ""
    output: str = "3"
    wrong: str = ""
    """A first try that is given up later in the reply."""
    language: str = "python"
    tag: str = "python"


@dataclass(frozen=True)
class Reply:
    """A reply and the program that is meant."""

    shape: str
    asked: Asked
    text: str
    program: str = field(default="")

    @property
    def title(self) -> str:
        return f"{self.shape} / {self.asked.title}"


_CONTENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_BY_TITLE = {described["title"]: convert(described, Asked) for described in _CONTENT["program"]}
ADD, STACK, SUM, PATHS = (_BY_TITLE[title] for title in ("add", "a stack", "sum", "paths"))
_PYTHON = tuple(asked for asked in _BY_TITLE.values() if asked.language == "python")
_CALLED = tuple(asked for asked in _PYTHON if asked.names)
_GROUPS = {
    "all": tuple(_BY_TITLE.values()),
    "python": _PYTHON,
    "called": _CALLED,
    "reading": tuple(asked for asked in _PYTHON if not asked.names),
    "others": tuple(asked for asked in _BY_TITLE.values() if asked.language != "python"),
}
_FIELD = re.compile(r"\{(code|usage|wrong|output|tag|name)\}")


def _in_shape(text: str, asked: Asked) -> str:
    """Return a reply of a shape: programs without their last line end, because the shape has it."""
    texts = {
        "code": asked.code.removesuffix("\n"),
        "usage": asked.usage.removesuffix("\n"),
        "wrong": asked.wrong.removesuffix("\n"),
        "output": asked.output,
        "tag": asked.tag,
        "name": min(asked.names, default=""),
    }
    return _FIELD.sub(lambda match: texts[match[1]], text)


def _fence(code: str, tag: str = "", mark: str = "```") -> str:
    return f"{mark}{tag}\n{code}{mark}\n"


def _block(a: Asked) -> str:
    return _fence(a.code, a.tag)


# Shapes that change the text of the program.
_CHANGED_TEXT: list[tuple[str, tuple[Asked, ...], Callable[[Asked], str]]] = [
    ("windows lines", _GROUPS["all"], lambda a: f"Here:\n\n{_block(a)}".replace("\n", "\r\n")),
    ("lone carriage returns", _GROUPS["all"], lambda a: f"Here:\n\n{_block(a)}Done.".replace("\n", "\r")),
    (
        "list item",
        _PYTHON,
        lambda a: "1. Code:\n   " + _block(a).replace("\n", "\n   ").rstrip() + "\n2. Done.\n",
    ),
    ("no-break spaces", _PYTHON, lambda a: _fence(a.code.replace("    ", "\xa0\xa0\xa0\xa0"), "python")),
    (
        "indented whole",
        _CALLED,
        lambda a: _fence("".join(f"  {x}\n" for x in a.code.splitlines()), "python"),
    ),
]


def _shaped() -> Iterator[Reply]:
    for shape in _CONTENT["shape"]:
        named = shape["programs"]
        programs = _GROUPS[named] if isinstance(named, str) else [_BY_TITLE[title] for title in named]
        for asked in programs:
            yield Reply(shape["name"], asked, _in_shape(shape["text"], asked), asked.code)
    for name, programs, make in _CHANGED_TEXT:
        for asked in programs:
            yield Reply(name, asked, make(asked), asked.code)


def _special() -> Iterator[Reply]:
    """Replies of which a shape cannot be made: the program itself is what is odd, or comes in pieces."""
    fenced = Asked(
        "fences in a docstring",
        'def add(a, b):\n    """Add.\n\n    ```python\n    add(1, 2)\n    ```\n    """\n    return a + b\n',
        frozenset({"add"}),
    )
    lines = Asked(
        "fences in an f-string",
        'def add(a, b):\n    text = f"""\n```\n{a}\n```\n"""\n    return a + b if text else 0\n',
        frozenset({"add"}),
    )
    said = Asked(
        "a tag in a string", 'def add(a, b):\n    end = "</think>"\n    return a + b\n', frozenset({"add"})
    )
    begun = Asked(
        "a tag that opens", 'def add(a, b):\n    tag = "<think>"\n    return a + b\n', frozenset({"add"})
    )
    for asked in (fenced, lines, said, begun):
        yield Reply("alone", asked, _block(asked), asked.code)
        yield Reply("between prose", asked, f"Here:\n\n{_block(asked)}\nDone.\n", asked.code)
        yield Reply(
            "usage after it", asked, f"{_block(asked)}\n```python\nprint(add(1, 2))\n```\n", asked.code
        )
        yield Reply("after thinking", asked, f"<think>\nHm.\n</think>\n{_block(asked)}", asked.code)
    for number, (asked, head, tail) in enumerate(_pieces()):
        whole = f"{head}\n{tail}"
        named = Asked(f"pieces {number}", whole, asked.names)
        text = f"The parts are:\n{_fence(head, 'python')}\nand\n{_fence(tail, 'python')}\n"
        yield Reply("in two blocks", named, text, whole)
        yield Reply("in two blocks, output after them", named, text + f"\n{_fence('3' + chr(10))}", whole)
        yield Reply("in two blocks, tests between", named, _with_tests_between(head, tail), whole)
    yield from _one_line()
    body = Asked("a body", "    best = max(xs)\n    return best\n", frozenset({"largest"}))
    yield Reply("alone", body, _block(body), body.code)
    yield Reply(
        "usage after it", body, f"{_block(body)}\n```python\nprint(largest([1, 2]))\n```\n", body.code
    )
    struct = "#include <bits/stdc++.h>\nusing namespace std;\nstruct P { int x; };\n"
    main = "int main() {\n    P p{3};\n    cout << p.x;\n}\n"
    parts = Asked("C++ in two blocks", f"{struct}\n{main}", language="cpp17", tag="cpp")
    yield Reply("in two blocks", parts, f"{_fence(struct, 'cpp')}\nthen\n{_fence(main, 'cpp')}", parts.code)


def _with_tests_between(head: str, tail: str) -> str:
    tests = _fence("import unittest\n\n\nclass TestNothing(unittest.TestCase):\n    pass\n", "python")
    return f"{_fence(head, 'python')}\n{tests}\n{_fence(tail, 'python')}"


def _pieces() -> Iterator[tuple[Asked, str, str]]:
    yield ADD, "def plus(a, b):\n    return a + b\n", "def add(a, b):\n    return plus(a, b)\n"
    yield ADD, "def add(a, b):\n    return minus(a, -b)\n", "def minus(a, b):\n    return a - b\n"
    yield (
        SUM,
        "def solve(xs):\n    return sum(xs)\n",
        "n = int(input())\nprint(solve(list(map(int, input().split()))))\n",
    )
    yield PATHS, "import sys\n", "print(len(sys.stdin.read().split()))\n"
    yield SUM, "n = int(input())\nxs = list(map(int, input().split()))\n", "print(sum(xs))\n"
    yield STACK, "class Node:\n    pass\n", "class MinStack(Node):\n    pass\n"


def _one_line() -> Iterator[Reply]:
    code = "print(sum(map(int, input().split())))\n"
    asked = Asked("one line", code)
    yield Reply("fence on one line", asked, f"```python {code.strip()}```", code)
    yield Reply("program begins on the fence", asked, f"```python n = 1\n{code}```\n", f"n = 1\n{code}")
    yield Reply("def begins on the fence", ADD, f"```python {ADD.code}```\n", ADD.code)
    yield Reply("import begins on the fence", PATHS, f"```python {PATHS.code}```\n", PATHS.code)


def replies() -> list[Reply]:
    """The whole corpus."""
    return [*(reply for reply in _shaped() if reply.text), *_special()]


def no_programs() -> list[tuple[str, str]]:
    """Replies without a program, with their names."""
    return [
        ("refusal", "I'm sorry, but I can't help with that."),
        ("question", "Could you tell me what the input looks like?"),
        ("prose", "We use dynamic programming. For each i, take the best of the two. Return it at the end."),
        ("a number", "42"),
        ("a formula", "The answer is n * (n + 1) / 2 = 55."),
        ("thinking that never ends", f"<think>\n{_block(ADD)}"),
        ("other language", "```cpp\nint main() {}\n```\n"),
        ("empty block", "```python\n\n```"),
        ("shell only", "```bash\npip install numpy\n```\n"),
    ]
