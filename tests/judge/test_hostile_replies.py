"""A reply costs its reader time proportional to its length, whatever the model writes.

The bound on CPU time is ten times what the longest of these replies takes on an ordinary core. It catches
work that grows with the square or the cube of the length, which takes minutes to hours here. One of three
attempts is enough, because other processes evict the caches of this one and so multiply its CPU time.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from re import _constants as constants  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
from re import _parser as parser  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
from typing import Any

import pytest

from tests.judge.judge_problems import call_problem
from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Problem, problem_from
from whetstone.environments.generated_cases import InvalidCases, read_cases
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import program_of
from whetstone.judge.extract import answer_part, extract_program, strip_thinking

LENGTH = 100_000
MOST_CPU_S = 10.0
PROBLEM = problem_from(call_problem("f", ([1], 2)))
STARTER = "def f(x):\n"
COMPLETED = Problem(
    "c", "", AssertTests(asserts=["f(1)"], entry_point="f"), starter=STARTER, meta={COMPLETES_STARTER: True}
)
PLAIN = EnvironmentSection()
FORMS = EnvironmentSection(answer_format="think_answer")
DEFINITION = "def f(x):\n    return x + 1\n"


def read(reply: str) -> None:
    """Everything that is made of a reply's text on the trusted side."""
    strip_thinking(reply)
    answer_part(reply)
    program_of(PROBLEM, FORMS, reply)
    program_of(COMPLETED, PLAIN, reply)
    for rule in ("program", "last_fence", "all_fences"):
        extract_program(reply, rule, names=("f",))
    extract_program(reply, "program", "cpp")
    try:
        read_cases(reply, PROBLEM, count=2, most_bytes=1000)
    except InvalidCases:
        return


def repeated(unit: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda length: before + unit * (length // len(unit)) + after


def nested_ifs(length: int) -> str:
    depth = int((2 * length) ** 0.5)
    return "```python\n" + "".join(" " * level + "if x:\n" for level in range(depth)) + "\n```"


def nested_finally(_length: int) -> str:
    """The compiler copies each ``finally`` block twice, and so the innermost one half a million times."""
    levels = (f"{' ' * n}try:\n{' ' * n} g()\n{' ' * n}finally:\n" for n in range(1, 20))
    return f"```python\n{''.join(levels)}{' ' * 20}g()\n```"


HOSTILE: dict[str, Callable[[int], str]] = {
    "blanks in a fence": lambda n: f"```a{' ' * (n // 2)}b{' ' * (n // 2)}`",
    "blanks behind a tag": lambda n: f"```python{' ' * n}`",
    "blanks before a fence": lambda n: f"x{' ' * n}```",
    "fences on one line": repeated("``` "),
    "fence behind fence": repeated("```a "),
    "tildes and backticks": repeated("~~~ ``` "),
    "answers that never end": repeated("<answer>"),
    "ends of answers": repeated("</answer>", "<answer>"),
    "ends of thinking": repeated("</think>", "<think>", "</answer>"),
    "ends of thinking, with blanks": repeated("</think>   ", "<think>", "</answer>"),
    "thinking within a block": repeated("x<think>", "```\n", "\n```"),
    "thinking on lines of a block": repeated("x <think>\n", "```\n", "\n```"),
    "many programs": repeated("```python\n" + DEFINITION * 50 + "```\n"),
    "many broken programs": repeated("```python\n" + DEFINITION * 50 + "(\n```\n"),
    "one program": repeated(DEFINITION, "```python\n", "```"),
    "a broken program and many ends": repeated(DEFINITION, "```python\n", "(\n" + "```\n" * 20),
    "words behind ends": repeated("x = 1\n``` and words\n", "```python\n"),
    "fences behind code": repeated("x = 1```\n", "```python\n"),
    "blocks within markdown": repeated("~~~\nx\n~~~\n", "```markdown\n"),
    "empty fences": repeated("```\n"),
    "broken programs that never close": repeated("```python\nx = (\n"),
    "programs that close behind code": repeated("```foo\nx = 1```\n"),
    "regions of code": repeated("x = 1\n(\n\nprose that is no code\n"),
    "prose": repeated("lorem ipsum "),
    "colons": repeated(": ", "if ", "x"),
    "commas": repeated(", b", "a"),
    "a dotted name": repeated("a.", "import ", " as"),
    "a dotted name with blanks": repeated("a . ", "import ", " as"),
    "combining marks in a name": repeated("\u0316\u0301", "```python\na", " = 1\n```"),
    "marks that are made of others": repeated("\u0f73", "```python\na", " = 1\n```"),
    "fields of an f-string": repeated("{a}", "```python\nx = f'", "'\n```"),
    "fields of a long f-string": repeated("{a}\n", '```python\nx = rF"""', '"""\n```'),
    "f-strings in a row": repeated("f'{a}' 'and text beside it' ", "```python\nx = ", "\n```"),
    "quotes that never close": repeated('f"""{{\\', "```python\nx = ", "\n```"),
    "blanks": repeated(" ", "", "x"),
    "blank lines before a test": repeated("\n \n", "```python\n", "import\n```"),
    "blank lines": repeated("\n", "", "def test"),
    "brackets": repeated("(", "```python\n", "\n```"),
    "a number": repeated("9", "```python\nx = ", "\n```"),
    "indentation": nested_ifs,
    "blocks that the compiler copies": nested_finally,
    "a tag of HTML": repeated("a", '<pre><code class="language-'),
    "attributes": repeated("a-", "```python ", "\nx=1\n```"),
    "braces": repeated("{", "```python "),
    "objects in objects": repeated('{"inputs": '),
    "objects that end at once": repeated('{" '),
    "objects in lists": repeated('{"a": [1, 1, 1, 1, '),
    "brackets around code": repeated("[PYTHON] [/PYTHON] "),
    "carriage returns": repeated("\r```\r"),
    "invisible characters": repeated("\ufeff\u200b"),
}


def cpu_s(reply: str) -> float:
    started = time.process_time()
    read(reply)
    return time.process_time() - started


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_is_read_in_linear_time(kind: str) -> None:
    reply = HOSTILE[kind](LENGTH)
    assert any(cpu_s(reply) < MOST_CPU_S for _ in range(3))


TOKENS = ["```", "~~~", "`", " ", "\n", "\t", "python", "x = 1", "(", ")", "<think>", "</think>", "<answer>"]
TOKENS += [
    "</answer>",
    "def f(x):\n    return x",
    "{",
    "}",
    '"',
    ":",
    ",",
    ".",
    "import a",
    "'''",
    "#",
    "=",
    "\\",
]


@pytest.mark.parametrize("seed", range(40))
def test_a_search_finds_no_reply_that_is_dear_to_read(seed: int) -> None:
    """A random unit of a few tokens, repeated; what is superlinear shows in any of its repetitions."""
    rng = random.Random(seed)
    for _ in range(5):
        units = ["".join(rng.choices(TOKENS, k=rng.randint(1, 4))) for _ in range(3)]
        reply = units[0] + units[1] * (20_000 // len(units[1])) + units[2]
        assert any(cpu_s(reply) < MOST_CPU_S for _ in range(3)), units


READERS = (
    "judge.extract",
    "judge.fences",
    "environments.single_turn",
    "environments.generated_cases",
    "core.syntax",
)


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for name in READERS:
        module = sys.modules[f"whetstone.{name}"]
        values = [(key, value) for key, value in vars(module).items()]
        values += [(key, item) for key, value in values if isinstance(value, tuple) for item in value]
        for key, value in values:
            value = value[0] if isinstance(value, tuple) and value else value
            if isinstance(value, re.Pattern):
                yield f"{name}.{key}", value


def unbounded(parsed: Any) -> int:
    """How many repetitions without an upper bound a pattern has that may give back what they took."""
    count = 0
    for operation, argument in parsed:
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            count += argument[1] is constants.MAXREPEAT
            count += unbounded(argument[2])
        elif operation is constants.SUBPATTERN:
            count += unbounded(argument[3])
        elif operation is constants.BRANCH:
            count += max(unbounded(branch) for branch in argument[1])
    return count


def test_no_pattern_that_reads_replies_can_backtrack_more_than_linearly() -> None:
    """Two such repetitions in one pattern may divide a text between them in as many ways as it is long."""
    found = dict(patterns())
    assert len(found) >= 8  # so that this test sees them
    for name, pattern in found.items():
        assert unbounded(parser.parse(pattern.pattern, pattern.flags)) <= 2, name
        assert r"\1" not in pattern.pattern, name
