"""A name that starter, statement or entry point defines belongs to the program, builtin or not."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from tests.judge.judge_problems import assert_problem, python
from whetstone.judge import Judge, Verdict
from whetstone.judge.kinds.assert_names import naming_lines
from whetstone.judge.kinds.assert_names import test_names as names_of
from whetstone.judge.rpc.containers import refill

ASSERTS = ["assert sum(10, 15) == 6", "assert sum(100, 150) == 93", "assert sum(4, 6) == 3"]
RIGHT = (
    "import builtins\ndef sum(a, b):\n"
    "    return builtins.sum(i for i in range(1, min(a, b)) if a % i == b % i == 0)"
)
_CHECK = "def check(f):\n    seen = f(10, 15)\n    assert sum(10, 15) == seen == 6"
_CLASS = "class Solution:\n    def sum(self, a):\n        pass\n"
TESTS = {
    "asserts": {"asserts": ASSERTS},
    "check": {"check": _CHECK, "entry_point": "sum"},
    "unittest": {
        "unittest": "import unittest\nclass T(unittest.TestCase):\n"
        "    def test(self):\n        self.assertEqual(sum(10, 15), 6)"
    },
    "a testing process": {"setup": "apart = 1", "asserts": ["total = sum(10, 15)\nassert total == 6"]},
}  # fmt: skip
SHOWN = {
    "starter": {"starter": "def sum(a, b):\n"},
    "starter of several": {"starter": "import math\n\ndef gcd(a, b):\n    pass\ndef sum(a, b):\n    pass\n"},
    "statement": {"statement": "The sum of the common divisors.\n\n    def sum(a, b): ...\n"},
    "fenced statement": {"statement": "Complete:\n```python\ndef sum(a: int, b: int) -> int:\n```\n"},
    "doctest": {"statement": "The sum of the common divisors.\n\n>>> sum(10, 15)\n6\n"},
    "quoted": {"statement": "Write a function `sum(a, b)` that adds the common divisors."},
    "quoted alone": {"statement": "Write the function `sum`, which adds the common divisors.\nimport math\n"},
    "asserts": {"statement": "Add the common divisors. Your code should pass:\n\n" + "\n".join(ASSERTS)},
}


@pytest.mark.drawn(25)
@pytest.mark.process
@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("tests", TESTS)
@pytest.mark.parametrize("references", [(), (RIGHT,)], ids=["alone", "with a reference"])
def test_a_builtin_that_the_problem_defines_is_the_programs(
    judge: Judge, shown: str, tests: str, references: tuple[str, ...]
) -> None:
    """Mbpp/126 defines ``sum(a, b)``."""
    problem = {**assert_problem(references, **TESTS[tests]), **SHOWN[shown]}
    judgement = judge.judge(problem, python(RIGHT))
    assert judgement.accepted, judgement.reason
    for wrong in ("def sum(a, b):\n    return 5", "def total(a, b):\n    return 6"):
        judgement = judge.judge(problem, python(wrong))
        assert judgement.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR)


def program_names(code: str, references: tuple[str, ...] = (), **shown: str) -> tuple[str, ...]:
    texts = (shown.get("statement", ""), shown.get("starter", ""))
    whole = names_of(code, None, references, texts, frozenset())
    assert whole == names_of(code, None, references, (naming_lines(*texts),), frozenset())
    return whole.program


FORGERIES: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
    # What is a method of a class is no function of the program's.
    ("assert sum(f(3)) == 6", (), {"starter": _CLASS + "def f(n): ..."}),
    ("assert len(f(3)) == 6", (), {"statement": "def f(n):\n    def len(x):\n        ...\n"}),
    # The test calls another name of the program's, so that a builtin in an example is a builtin.
    ("assert sorted(f(3)) == [1]", (), {"statement": ">>> sorted(f(3))\n[1]\nUse `sorted`."}),
    ("assert set(f(3)) == {1}", (), {"statement": "assert set(f(3)) == {1}"}),
    # The references pass with Python's own.
    ("assert max(f(3)) == 2", ("def f(n): return [2]",), {"statement": "def max(xs): ...\ndef f(n): ..."}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "references", "shown"), FORGERIES)
def test_a_builtin_that_the_test_compares_with_is_not_the_programs(
    code: str, references: tuple[str, ...], shown: dict[str, str]
) -> None:
    assert program_names(code, references, **shown) == ("f",)


def test_an_import_of_a_reference_is_the_programs_name_if_the_starter_defines_it() -> None:
    reference: Any = ("from math import gcd",)
    code = "assert gcd(6, 4) == 2"
    assert program_names(code, reference, starter="def gcd(a, b):\n    ...\n") == ("gcd",)
    assert program_names(code, (), starter="def gcd(a, b):\n    ...\n") == ("gcd",)
    assert program_names("assert f(gcd(6, 4)) == 2", (), statement="from math import gcd\nf(x)") == ("f",)


def test_code_that_names_nothing_of_the_program_stays_so() -> None:
    assert program_names("assert sum([1, 2]) == 3", statement="Add the numbers.") == ()


STATEMENT = (
    "```python\nfrom datetime import datetime\nimport xml.etree.ElementTree as ET\nclass Clock: ...\n```"
)
IMPORTED_NAMES = [
    ("Clock(datetime(2024, 1, 1))", "", {"datetime": ("datetime", "datetime")}),
    ("Clock(datetime.now())", "", {"datetime": ("datetime", "datetime")}),
    ("Clock(datetime.datetime.now())", "", {"datetime": ("datetime", "")}),
    ("Clock(datetime.min, ET.fromstring(''))", STATEMENT,
     {"datetime": ("datetime", "datetime"), "ET": ("xml.etree.ElementTree", "")}),
    ("Clock(math.pi)", "", {"math": ("math", "")}),
    ("Clock(copy([1]))", "", {}),
    ("Clock(gcd(1, 2))", "from math import gcd", {"gcd": ("math", "gcd")}),
    ("Clock(gcd(1, 2))", "from math import gcd\ndef gcd(a, b):", {}),
    ("Clock(load())", "from solution import load", {}),
    # Else the test would hold without any program.
    ("assert gcd(4, 6) == 2", "Do not use this:\nfrom math import gcd", {}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "statement", "imports"), IMPORTED_NAMES)
def test_a_name_is_imported_as_the_problem_says(
    code: str, statement: str, imports: dict[str, tuple[str, str]]
) -> None:
    sorted_out = names_of(code, None, (), (statement,), frozenset())
    assert sorted_out.imports == imports
    assert sorted_out == names_of(code, None, (), (naming_lines(statement),), frozenset())
    assert sorted_out.program


def test_an_ordered_mapping_that_is_given_other_content_keeps_an_order() -> None:
    mapping = OrderedDict(a=1, b=2)
    refill(mapping, {"c": 3, "a": 4})
    mapping.move_to_end("c")
    assert list(mapping.items()) == [("a", 4), ("c", 3)]
    assert list(reversed(mapping)) == ["c", "a"]
