"""A reply becomes the program that its author meant: whole function, or the body of the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from whetstone.core.problem import AssertTests, Problem
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import assemble, program_of

PROMPT = '''import math


def half(x: float) -> float:
    return x / 2


def area(r: float) -> float:
    """Area of half a circle.
    def area( is named here too
    """
'''
PROBLEM = Problem(
    id="p",
    statement=PROMPT,
    starter=PROMPT,
    tests=AssertTests(check="def check(candidate): assert candidate(1)", entry_point="area"),
    meta={"completes_starter": True},
)


def value(code: str) -> float:
    namespace: dict[str, Any] = {}
    exec(assemble(PROBLEM, code), namespace)
    return namespace["area"](2.0)


@pytest.mark.parametrize(
    "code",
    [
        "def area(r):\n    return half(math.pi * r * r)",
        "from __future__ import annotations\ndef area(r: R) -> Q:\n    return half(math.pi * r**2)",
        "def half(x):\n    return x * 0.5\n\ndef area(r):\n    return half(math.pi * r * r)\n",
        "area = lambda r: half(math.pi * r * r)",
        "    square = r * r\n    return half(math.pi * square)\n",
        "square = r * r\n    return half(math.pi * square)",
        "square = r * r\nreturn half(math.pi * square)",
        "    return half(math.pi * r * r)\n\n\nprint(area(3))\nif broken",
        "\n    return half(math.pi * r * r)\ndef",
    ],
    ids=[
        "imports and helper of the prompt are there",
        "a future import stays first",
        "the reply's own helper wins",
        "an assigned lambda",
        "a body",
        "a body whose first indentation was stripped",
        "a body without indentation",
        "a body and what follows it",
        "a body and a kept stop text",
    ],
)
def test_each_way_to_answer_gives_the_function(code: str) -> None:
    assert value(code) == pytest.approx(6.283185307)


_AREA = "return half(math.pi * r * r)\n"


@pytest.mark.parametrize(
    ("settings", "reply", "is_right"),
    [
        ({"prompt": "{starter}"}, f"    {_AREA}", True),
        ({"prompt": "evalplus-base-humaneval"}, f"    {_AREA}\n\nprint(area(2))\n\ndef other(", True),
        ({"prompt": "Complete it.\n{problem}\n"}, f"\n    {_AREA}\n\ndef area(r):\n    retu", True),
        ({"prompt": "{starter}"}, _AREA, True),
        ({"prompt": "{starter}"}, f"```python\ndef area(r):\n    {_AREA}```", True),
        ({"prompt": "{starter}"}, f"\ndef area(r):\n    {_AREA}", True),
        ({"prompt": "{starter}"}, " \n", None),
        ({"prompt": "{problem}\nThe program:"}, f"    {_AREA}", None),
        ({"prompt": "{starter}", "chat": True}, f"    {_AREA}", None),
        ({"prompt": "{starter}", "extraction": "last_fence"}, f"    {_AREA}", None),
    ],
)
def test_a_reply_that_continues_the_starter_may_be_the_body(
    settings: dict[str, Any], reply: str, is_right: bool | None
) -> None:
    program = program_of(PROBLEM, EnvironmentSection.model_validate({"chat": False, **settings}), reply)
    assert (program is None) is (is_right is None)
    if program is not None:
        namespace: dict[str, Any] = {}
        exec(program, namespace)
        assert namespace["area"](2.0) == pytest.approx(6.283185307)


def test_own_helper_overrides_the_prompts() -> None:
    assert value("def half(x):\n    return 0.0\n\ndef area(r):\n    return half(r)") == 0.0


def test_no_code_stays_no_code() -> None:
    assert assemble(PROBLEM, "") == ""
    assert assemble(PROBLEM, "  \n") == "  \n"


@pytest.mark.parametrize("code", ["def area(r:\n  oops", "(" * 5000, "a\0b", "\ud800", "class"])
def test_what_is_no_python_is_still_judged_with_the_code_in_it(code: str) -> None:
    assert assemble(PROBLEM, code).endswith(code)


@pytest.mark.parametrize(
    "code",
    [
        "x = r\nreturn x",
        "for _ in range(1):\n    x = r\n    break\nreturn x",
        "    while True:\n        continue\n    else:\n        break\n    return 1",
        "    class A:\n        return 1\n    return 2",
        "    f = lambda: (yield)\n    await f\n    return 2",
        "    async def g():\n        async with r: await r\n    return g",
        "    nonlocal nowhere\n    return 1",
        "    def g(a, a): pass\n    return 1",
        "yield r",
        "    try:\n        return r\n    finally:\n        r = 1",
    ],
)
def test_a_reading_that_the_compiler_refuses_is_none(code: str) -> None:
    """The reading is the first one that compiles, though nothing is compiled."""
    first, _, rest = code.partition("\n")
    body = code if first.startswith(" ") else f"    {first}\n{rest}"
    try:
        compile(PROMPT + body, "program", "exec")
    except SyntaxError:
        assert assemble(PROBLEM, code) != PROMPT + body or body == code
    else:
        assert assemble(PROBLEM, code) == PROMPT + body


def test_other_problems_keep_their_code() -> None:
    other = Problem(id="q", statement="", starter=PROMPT, tests=PROBLEM.tests)
    assert assemble(other, "    return 1") == "    return 1"


NODES = "class Node:\n    value = 3\n"


@pytest.mark.parametrize("entry_point", ["Solution", None])
@pytest.mark.parametrize("starter", [NODES, f"{NODES}\n\nclass Solution:\n    def read(self, node: Node):"])
def test_what_a_site_defines_stands_before_a_program_that_leaves_it_out(
    starter: str, entry_point: str | None
) -> None:
    tests = AssertTests(asserts=["assert Solution().read(Node()) == 3"], setup=NODES, entry_point=entry_point)
    problem = Problem("n", "s", tests, starter=starter, meta={"completes_starter": True})
    code = "class Solution:\n    def read(self, node: Node):\n        return node.value"
    namespace: dict[str, Any] = {}
    exec(assemble(problem, code), namespace)
    assert namespace["Solution"]().read(namespace["Node"]()) == 3
