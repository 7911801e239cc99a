"""The program in a reply: which block is taken, and that prose is never mistaken for one."""

from __future__ import annotations

import pytest

from whetstone.judge import answer_part, extract_program, strip_thinking

TWO = "First:\n```python\na = 1\n```\nthen\n```py\nb = 2\n```\nDone. ```inline```\n"


def test_the_rule_chooses_among_blocks() -> None:
    assert extract_program(TWO) == "b = 2\n"
    assert extract_program(TWO, "first_fence") == "a = 1\n"
    assert extract_program(TWO, "all_fences") == "a = 1\n\nb = 2\n"
    assert extract_program(TWO, "whole") == TWO


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        ("```\na = 1\n```", "a = 1\n"),
        ("```Python\na = 1\n```", "a = 1\n"),
        ("```python title=x.py\na = 1\n```", "a = 1\n"),
        ("``` python\r\na = 1\r\nb = 2\r\n```\r\n", "a = 1\nb = 2\n"),
        ("~~~py\na = 1\n~~~", "a = 1\n"),
        ("````python\na = '''\n```\n'''\n````", "a = '''\n```\n'''\n"),
        ("- a list\n  ```python\n  if a:\n      b\n  ```", "if a:\n    b\n"),
        ("```python\na = 1\n```\nOutput:\n```text\n1\n```", "a = 1\n"),
        ("```python\na = 1\n```\n```\n\n```", "a = 1\n"),
        ("```python\na = 1\n```\nAnd now\n```python\nb =", "a = 1\n"),
        ("text\n```python\na = 1\nb = 2", "a = 1\nb = 2\n"),
        ("```python\n```python\na = 1\n```", "a = 1\n"),
        ("````markdown\nSee:\n```python\na = 1\n```\n````", "a = 1\n"),
        ("def f():\n    return 1\n", "def f():\n    return 1\n"),
        ("print(input())", "print(input())"),
    ],
)
def test_the_last_complete_block_is_taken(reply: str, program: str) -> None:
    assert extract_program(reply) == program


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   \n",
        "I cannot solve this.",
        "yes",
        "Answer: 42",
        "42",
        "```python\n\n```",
        "```cpp\nint a;\n```",
    ],
)
def test_no_program_is_none(reply: str) -> None:
    assert extract_program(reply) is None


def test_blank_text_is_no_program_under_any_rule() -> None:
    assert extract_program(" \n", "whole") is None


def test_code_is_looked_for_after_the_thinking() -> None:
    assert strip_thinking("<think>\n```python\nx\n```\n</think>\nanswer") == "\nanswer"
    assert strip_thinking("a</think>b</think>c") == "c"
    assert strip_thinking("no thinking") == "no thinking"
    assert strip_thinking("<think>never ends") is None
    assert strip_thinking("<think>a</think>b<think>c") is None
    assert answer_part("<think>x<answer>no</answer></think><answer>1</answer><answer>2</answer>") == "2"
    assert answer_part("<answer>cut") is None


def test_hostile_replies_are_read_without_trouble() -> None:
    assert extract_program("(" * 100_000) is None
    assert extract_program("```\n" * 50_001) is None
    assert extract_program("\x00") is None


def test_a_program_in_another_language_stands_in_a_fence_of_that_language() -> None:
    reply = "First a sketch:\n```python\nprint(1)\n```\nThen:\n```c++\nint main() {}\n```\n"
    for name in ("cpp", "cpp17", "c++"):
        assert extract_program(reply, language=name) == "int main() {}\n"
    assert extract_program(reply) == "print(1)\n"
    assert extract_program("```\nfn main() {}\n```", language="rust") == "fn main() {}\n"
    assert extract_program("```java\nclass A {}\n```", language="rust") is None
    assert extract_program("print(1)", language="rust") is None
