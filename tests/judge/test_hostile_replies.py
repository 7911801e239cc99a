"""A reply costs its reader time proportional to its length, whatever the model writes.

CPU time of the thread is measured, never wall time. Each bound is a ratio: the cost of twice the text, and
the cost of parsing a plain program of the same length on the same machine. The least of several attempts
counts, because other processes evict the caches of this one and so multiply its CPU time.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from re import _constants as constants  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
from re import _parser as parser  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
from typing import Any

import pytest

from tests.judge.reply_search import READERS, cpu_s, search
from whetstone.core.syntax import NotPython, symbols

LENGTH = 50_000
# The cost of twice the text. Linear work has 2, quadratic work 4.
MOST_GROWTH = 2.5
# How often a plain program of the same length could be parsed in the time. A reader parses it once; the
# search for test cases in a reply takes the longest of all.
MOST_PARSES = 6.0
# Less is not measured well. Parsing a plain program of LENGTH takes about 0.04 s.
SMALL_S = 0.03
DEFINITION = "def f(x):\n    return x + 1\n"


def cost_of_parsing(length: int) -> float:
    """Return the CPU time that CPython needs to parse a plain program, in seconds."""
    program = DEFINITION * (length // len(DEFINITION))
    return cpu_s(lambda: ast.parse(program), 3)


def is_linear(read: Callable[[str], object], make: Callable[[int], str]) -> bool:
    """Return whether one of several attempts shows linear cost."""
    short, long = make(LENGTH), make(2 * LENGTH)
    for _ in range(4):
        cost = cpu_s(partial(read, long), 2)
        is_cheap = cost <= MOST_PARSES * cost_of_parsing(len(long))
        if is_cheap and cost <= MOST_GROWTH * cpu_s(partial(read, short), 2) + SMALL_S:
            return True
    return False


def repeated(unit: str, before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda length: before + unit * (length // len(unit)) + after


def numbered(unit: str, before: str = "", after: str = "") -> Callable[[int], str]:
    """Repeat a unit in which @ stands for the number of the repetition, and @+ for the next number."""

    def make(length: int) -> str:
        count = length // (len(unit) + 4)
        made = (unit.replace("@+", str(n + 1)).replace("@", str(n)) for n in range(count))
        return before + "".join(made) + after

    return make


def names_and_lambdas(length: int) -> str:
    """CPython's symbol table copies the names of a function for each scope in it."""
    count = length // 20
    names = ";".join(f"a{n}=1" for n in range(count))
    return f"```python\ndef f(x):\n {names}\n return [{'lambda:0,' * count}]\n```"


def nested_ifs(length: int) -> str:
    depth = int((2 * length) ** 0.5)
    return "```python\n" + "".join(" " * level + "if x:\n" for level in range(depth)) + "\n```"


def nested_finally(_length: int) -> str:
    """The compiler copies each ``finally`` block twice, and so the innermost one half a million times."""
    levels = (f"{' ' * n}try:\n{' ' * n} g()\n{' ' * n}finally:\n" for n in range(1, 20))
    return f"```python\n{''.join(levels)}{' ' * 20}g()\n```"


HOSTILE: dict[str, Callable[[int], str]] = {
    "blanks behind return": repeated(" ", "return", "!"),
    "blanks behind a name": repeated(" ", "x = 1\na", "!"),
    "blanks behind import": repeated(" ", "import a", "!"),
    "blanks behind from": repeated(" ", "from", "!"),
    "blanks behind a comma": repeated(" ", "a,", "!"),
    "blanks behind a colon": repeated(" ", "if x:", "!"),
    "returns with blanks": repeated("return  ", "", "!"),
    "tabs behind global": repeated("\t", "global", "!"),
    "names and lambdas": names_and_lambdas,
    "names and comprehensions": numbered("a@=1;b@=[0 for x in y];", "```python\ndef f(x):\n ", "\n```"),
    "names and functions": numbered(" a@=1\n def b@():a@\n", "```python\ndef f(x):\n", "\n```"),
    "arguments and lambdas": lambda n: (
        "```python\ndef f("
        + numbered("a@,")(n // 2)
        + "): return ["
        + repeated("lambda:0,")(n // 2)
        + "]\n```"
    ),
    "names and classes": numbered(" a@=1\n class b@:0\n", "```python\ndef f(x):\n", "\n```"),
    "words on a fence and fences with words": lambda n: (
        "```python " + "a b " * (n // 8) + "\n" + "``` x y\n" * (n // 16) + "```"
    ),
    "code on a fence and fences with words": lambda n: (
        "```python " + "a=1 " * (n // 8) + "\n" + "``` x y\n" * (n // 16) + "```"
    ),
    "attributes on a fence and fences with words": lambda n: (
        "```python " + "a=1" * (n // 6) + "\n" + "x\n``` text\n" * (n // 20) + "```"
    ),
    "words on a fence and fences behind code": lambda n: (
        "```python " + "a b " * (n // 8) + "\n" + "x = 1```\n" * (n // 18)
    ),
    "blocks that need the next one": numbered("```python\ndef g@(): return g@+()\n```\n"),
    "blocks that need the next one, from the tested one": numbered(
        "```python\ndef g@(): return g@+()\n```\n", "```python\ndef f(x): return g0()\n```\n"
    ),
    "blocks that need one of the same names": numbered(
        "```python\na@ = g@+; b@ = b@+; c = c\n```\n", "```python\ndef f(x): return a0\n```\n"
    ),
    "a fence of many letters": lambda n: (
        "```" + "".join(chr(0x4E00 + i % 20_000) for i in range(n)) + " x```"
    ),
    "closed fences": repeated("```py\nx\n```\n"),
    "closed fences of calls": repeated("```py\nx()\n```\n"),
    "closed fences of names": numbered("```py\nx@=1\n```\n"),
    "closed fences with tags behind them": repeated("```py\nx()\n```</answer>\n"),
    "blocks of no language": numbered("```text\nx@()\n```\n"),
    "special tokens": repeated("<|im_end|>", "```python\nx()\n"),
    "special tokens and blanks": repeated("</s> \n", "```python\nx()\n```"),
    "mentions of thinking": repeated("the `<think>` and <think> of "),
    "lines with prose behind a program": repeated("it's prose\n", "```python\n" + DEFINITION),
    "labels behind a program": repeated("Note: x\n", "```python\n" + DEFINITION),
    "lines of a C program": repeated("\n", "```cpp\nint main() {}\n", "x```"),
    "prose behind a C program": repeated("word\n\n", "```cpp\nint main() {}\n"),
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


@pytest.mark.cost
@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_is_read_in_linear_time(kind: str) -> None:
    reply = HOSTILE[kind](LENGTH)
    for name, read in READERS.items():
        # Most replies are cheap for most readers, and need not be measured again.
        if cpu_s(partial(read, reply)) > SMALL_S / 2:
            assert is_linear(read, HOSTILE[kind]), name


@pytest.mark.extended
@pytest.mark.cost
@pytest.mark.parametrize("seed", range(2))
def test_a_search_finds_no_reply_that_is_dear_to_read(seed: int) -> None:
    """The search runs for 2.5 s of CPU time. It was run for ten minutes by hand."""
    for _, name, shape in search(2.5, seed, 10_000, survivors=1):
        assert is_linear(READERS[name], shape.text), (name, shape)


@pytest.mark.cost
@pytest.mark.extended
def test_the_search_finds_quadratic_readers() -> None:
    """The dearest shape for a pattern that backtracks fails the test that all readers pass."""
    pattern = re.compile(r"\s+[^\s\w]*$")
    slow = {"slow": lambda reply: pattern.search(reply)}
    found = search(2.5, 0, 1_000, survivors=1, readers=slow)
    assert not is_linear(slow["slow"], lambda length: found[0][2].text(length // 10))


@pytest.mark.cost
def test_a_symbol_table_that_costs_too_much_is_refused() -> None:
    names = ";".join(f"a{n}=1" for n in range(4000))
    with pytest.raises(NotPython, match="pairs of a name and a scope"):
        symbols(f"def f():\n {names}\n return [{'lambda:0,' * 4000}]\n")
    assert symbols(DEFINITION * 1000)


MODULES = (
    "judge.extract",
    "judge.fences",
    "judge.program_evidence",
    "judge.languages.table",
    "environments.single_turn",
    "environments.generated_cases",
    "core.syntax",
)


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for name in MODULES:
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
