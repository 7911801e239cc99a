"""Which expected values count as hidden, and a search for sealed tests that still show theirs."""

from __future__ import annotations

import math
from collections import deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from tests.beside import data_beside
from tests.judge.repository_tasks import make_task, pytest_environment
from whetstone.core.problem import Limits
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.telling import ShownValues

FORMS: dict[str, dict[str, str]] = data_beside(__file__)
HIDDEN: list[Any] = [
    *(3, -3, 2.5, 3 + 4j, "IV", b"IV", [7], (1, 2, 3), {"a": 5}, {1: 2, 3: 4}, {5}, [[None, "x"]]),
    *(date(2020, 1, 2), Decimal("2.5"), Fraction(7, 2), [0, 1, 0, 0, 1, 1, 0, 1], 10**5000),
    *(timedelta(days=3), time(0, 7), range(5), deque([7]), deque([0, 1] * 4), math.inf),
]
GUESSED: list[Any] = [
    *(None, True, False, 0, 1, -2, 2.0, 1j, "", " ", "True", "none", "1", b"", [], (), {}, [None], ["", 0]),
    *([True, True], {"": 1}, [0] * 20, [[], [[]]], ..., bytearray(), Fraction(-3, 2), Decimal("0.00")),
    *(
        Decimal("sNaN"),
        timedelta(0),
        timedelta(days=1),
        time(0),
        range(2),
        deque(),
        deque([1]),
        Fraction(-3, 2),
    ),
]


def test_a_value_is_hidden_if_it_can_hardly_be_guessed() -> None:
    nothing = ShownValues([])
    assert [value for value in HIDDEN if not nothing.leaves_hidden(value)] == []
    assert [value for value in GUESSED if nothing.leaves_hidden(value)] == []


MODULE = '''
"""The docstring is taken out before."""
import pytest
LIMIT = 75
ROWS = [("in", 81), {"key": [4, 5, 6]}]

def test_gives_93(default=94, *, word="some text"):
    if LIMIT: pytest.fail("the result is 95")
    raise ValueError(f"not {LIMIT} but XCVI")

def test_with_other_types(wanted_fixture):
    give(date(2021, 3, 4), Decimal("6.50"), timedelta(days=5), keyed_by=37)
    give(b"bytes", 23, 24, 25).attribute_of.a_result
'''


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        (75, False),
        (75.0, False),
        ([75], False),
        (76, True),
        ("75", True),
        (81, False),
        (93, False),
        (94, False),
        (95, False),
        ("XCVI", False),
        ("xcvi", True),
        ("some text", False),
        ("some", True),
        ((4, 5, 6), False),
        ([6, 5, 4], True),
        ([4, 5], False),
        ([4, 5, None], False),
        ({"in": 81}, False),
        ({"in": 82}, True),
        (Decimal(75), False),
        (Decimal("75.5"), True),
        (Decimal("6.50"), False),
        (timedelta(days=5), False),
        ([timedelta(days=5)], False),
        (timedelta(days=7), True),
        (date(2021, 3, 4), False),
        (datetime(2021, 3, 4), False),
        (date(2021, 4, 3), True),
        (bytearray(b"bytes"), False),
        ("wanted_fixture", False),
        ("keyed_by", False),
        ("attribute_of", False),
        (["bytes", "a_result"], True),
        ([b"bytes", "a_result"], False),
        ({"keyed_by": 37}, False),
        ([b"bytes", 23, 24, 25], False),
        (deque([b"bytes", 23, 24, 25]), False),
        ({25, 24, 23, b"bytes"}, False),
        ([b"bytes", 25, 24, 23], True),
    ],
)
def test_a_value_that_the_module_shows_is_not_hidden(value: object, hidden: bool) -> None:
    assert ShownValues([MODULE]).leaves_hidden(value) is hidden


@pytest.mark.parametrize(
    ("value", "tolerance", "hidden"),
    [
        (75.001, (0.0, 0.01), False),
        (75.001, (0.0, 0.0001), True),
        (80.9, (0.01, 0.0), False),
        (80.9, (0.0001, 0.0), True),
        (2.5, (0.0, 0.5), False),
        ([2.5, 2.25], (0.0, 0.5), False),
        ([2.5, 90.5], (0.0, 0.5), True),
        ([4.001, 5.001, 6.001], (0.0, 0.01), False),
        ([6.001, 5.001, 4.001], (0.0, 0.01), False),
        ({"key": [4.001]}, (0.0, 0.01), False),
        (75.0 + 1e-20j, (0.0, 0.01), False),
        (math.inf, (0.0, 0.01), False),
        (10**400, (0.1, 0.0), False),
    ],
)
def test_a_value_with_a_shown_number_in_its_tolerance_is_not_hidden(
    value: object, tolerance: tuple[float, float], hidden: bool
) -> None:
    assert ShownValues([MODULE]).leaves_hidden(value, tolerance) is hidden


LIMITS = Limits(cpu_s=20.0, memory_mb=512.0, output_mb=16.0)
PACKAGE = "def f(key): return VALUES[key]\n"


def module_of(random: Random, number: int) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return a test module, what the code gives for each key, and what would tell the value of each test.

    Each test compares ``f(KEY)`` with SECRET in one form. A place of the module may show the secret too.
    Every secret has a number that nothing else has.
    """
    parts: list[str] = []
    values: dict[str, Any] = {}
    telling: dict[str, str] = {}
    for index in range(random.randint(2, 5)):
        name = f"{number}{chr(97 + index)}"
        secret = 70_000 + random.randrange(20) * 1000 + number * 10 + index
        kind = random.choice(("number", "text", "list", "pair"))
        text = {
            "number": f"{secret}",
            "text": f"'q{secret}'",
            "list": f"[{secret}, 'a']",
            "pair": f"({secret}, None)",
        }
        values[name] = {
            "number": secret,
            "text": f"q{secret}",
            "list": [secret, "a"],
            "pair": (secret, None),
        }[kind]
        compared = random.choice(list(FORMS["compared"].values()))
        shown = random.choice(list(FORMS["shown"].values())) if random.random() < 0.5 else ""
        for form in (compared, shown):
            replaced = form.replace("SECRET", text[kind]).replace("KEY", repr(name)).replace("NAME", name)
            parts.append(replaced)
        telling[name] = str(secret)
    random.shuffle(parts)
    return "\n".join((FORMS["head"]["text"], *parts)), values, telling


@pytest.mark.process
@pytest.mark.drawn(1)
@pytest.mark.parametrize("seed", range(4))
def test_no_sealed_test_shows_its_value_in_its_module(seed: int) -> None:
    random = Random(seed)
    modules = [module_of(random, number) for number in range(30)]
    tests = {f"tests/test_{number}.py": source for number, (source, _, _) in enumerate(modules)}
    values = {name: value for _, given, _ in modules for name, value in given.items()}
    base = {"src/package.py": (PACKAGE + "VALUES = dict.fromkeys(" + repr([*values]) + ")\n").encode()}
    right = {"src/package.py": f"{PACKAGE}VALUES = {values!r}\n".encode()}
    with pytest_environment() as folder, RepositoryGrader(str(folder)) as grader:
        task = make_task(grader, base, right, tests, ["src"], LIMITS, every_test=False)
    kept = [test for test in task.fail_to_pass if any(each.value is not None for each in test.observations)]
    sealed = [test for test in kept if test.is_sealed(())]
    for test in kept:
        path, _, name = test.id.partition("::")
        key = name.partition("[")[0].rpartition("_")[2]
        telling = next(found[key] for _, _, found in modules if key in found)
        shown = telling in task.tests[path]
        assert (test in sealed) is not shown, (test.id, task.tests[path])
    assert len(sealed) > 20
    assert len(kept) - len(sealed) > 10
