"""The program in a reply: which block is taken, and that prose is never mistaken for one."""

from __future__ import annotations

import pytest

from tests.beside import data_beside
from tests.judge.reply_corpus import Reply, no_programs, replies
from whetstone.core.problem import problem_from
from whetstone.judge import answer_part, extract_program, names_called, strip_thinking

DATA = data_beside(__file__)

TWO = "First:\n```python\na = 1\n```\nthen\n```py\nb = 2\n```\nDone. ```inline```\n"


def test_the_rule_chooses_among_blocks() -> None:
    assert extract_program(TWO) == "b = 2\n"
    assert extract_program(TWO, "first_fence") == "a = 1\n"
    assert extract_program(TWO, "all_fences") == "a = 1\n\nb = 2\n"
    assert extract_program(TWO, "whole") == TWO


@pytest.mark.parametrize(
    ("reply", "program"),
    DATA["last_block"],
)
def test_the_last_complete_block_is_taken(reply: str, program: str) -> None:
    assert extract_program(reply) == program


@pytest.mark.parametrize(
    "reply",
    DATA["no_program"],
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
    assert strip_thinking("<think>a</think>b\n<think>c") is None
    assert strip_thinking("<think>a</think> <think>c") is None
    assert strip_thinking("<think>\n```\nx\n```</think>```\ny\n```") == "```\ny\n```"
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


CORPUS = replies()


def test_the_corpus_has_the_shapes_that_models_write() -> None:
    assert len(CORPUS) >= 200
    assert len({reply.shape for reply in CORPUS}) >= 50
    assert len({reply.title for reply in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize("reply", CORPUS, ids=lambda reply: reply.title)
def test_the_program_that_is_meant_is_found(reply: Reply) -> None:
    visible = strip_thinking(reply.text)
    assert visible is not None
    found = extract_program(visible, language=reply.asked.language, names=reply.asked.names)
    assert found is not None
    assert found.strip("\n") == reply.program.strip("\n")


@pytest.mark.parametrize(("name", "text"), no_programs())
def test_a_reply_without_a_program_has_none(name: str, text: str) -> None:
    visible = strip_thinking(text)
    assert visible is None or extract_program(visible) is None


@pytest.mark.drawn(6)
@pytest.mark.parametrize(
    "text",
    [
        "```python\nx = (\n" * 20_000,
        "```\n" * 100_000,
        "```python foo bar\n" * 20_000,
        "```python\n" + "``` foo bar\n" * 50_000,
        "```python\n" + "x```\n" * 50_000,
        "".join("`" * n + "\n" for n in range(3, 400)) + "x",
        "</think> x\n" * 50_000,
        "'''python\n" * 20_000,
        "x = 1\n\n(prose here\n\n" * 20_000,
        "a, " * 100_000,
        "[PYTHON]" * 50_000,
        "def f(" * 20_000,
    ],
)
def test_a_hostile_reply_is_read_to_its_end(text: str) -> None:
    """What grew with the square of these lengths would not come to one."""
    assert strip_thinking(text) is not None
    extract_program(text)
    assert extract_program(text, language="rust", names=["f"]) is None or "```" in text


def test_names_that_tests_call_are_read_off_the_problem() -> None:
    tests = {"kind": "assert", "setup": "import math", "asserts": ["assert math.isclose(area(1), 3.14)"]}
    problem = problem_from({"id": "p", "statement": "s", "tests": tests})
    assert names_called(problem) == {"area"}
    call = {"kind": "call", "class": "Solution", "function": "f", "cases": [{"args": [1], "expected": 1}]}
    assert names_called(problem_from({"id": "p", "statement": "s", "tests": call})) == {"Solution"}
    text = {"kind": "stdin", "cases": [{"input": "", "output": "1"}]}
    assert names_called(problem_from({"id": "p", "statement": "s", "tests": text})) == set()


@pytest.mark.cost
def test_a_reply_of_blanks_is_read_in_linear_time() -> None:
    """Half an hour, were each of them tried as the beginning of a closing bracket."""
    assert extract_program(" " * 1_000_000, language="python") is None
