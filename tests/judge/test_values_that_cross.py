"""In ``assert`` tests, a result that the proxy cannot send as it is never counts as the program's exception.

Values of libraries cross by value, so that the test compares them. What remains crosses as an object. A
program gains nothing from such values: it never escapes its verdict with them.
"""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.beside import data_beside
from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, Program
from whetstone.judge import Judge, Judgement, Verdict
from whetstone.judge.answers.inert import key_of
from whetstone.judge.rpc.library_values import describe_value, read_value
from whetstone.judge.value_reader import WireError
from whetstone.judge.values import NotInert, decode, encode

DATA = data_beside(__file__)

pytestmark = pytest.mark.process
IMPORTS = "from datetime import datetime, time, timedelta, timezone, tzinfo\n"
ZONES = IMPORTS + "from zoneinfo import ZoneInfo\n"
NUMPY, PANDAS = "import numpy as np\n", "import pandas as pd\n"
SUMMER = "datetime(2020, 7, 1, tzinfo=ZoneInfo('Europe/Paris'))"
# imports, the returned expression, and what the test asserts of `f()`; an empty text compares it with itself
VALUES: dict[str, tuple[str, str, str]] = DATA["values"]
# As above, for objects that a test uses but does not compare.
OBJECTS: dict[str, tuple[str, str]] = DATA["objects"]
CAUGHT = "def caught(f):\n    try:\n        f()\n    except Exception as error:\n        return error\n"


def judged(judge: Judge, test: str, source: str, *references: str, setup: str = "") -> Judgement:
    tests = AssertTests(check=f"def check(f):\n{textwrap.indent(test, '    ')}", entry_point="f", setup=setup)
    named = [Program("python", reference) for reference in references]
    return judge.judge(Problem("p", "", tests, references=named), Program("python", source))


def apart(judgement: Judgement) -> tuple[Verdict, bool]:
    return judgement.verdict, judgement.shared_interpreter


@pytest.mark.drawn(12)
@pytest.mark.parametrize(("imports", "value", "claim"), VALUES.values(), ids=VALUES)
def test_a_value_of_a_library_reaches_the_test(judge: Judge, imports: str, value: str, claim: str) -> None:
    source = f"{imports}def f(given=None):\n    return {value} if given is None else given == {value}\n"
    test = f"assert {claim or f'f() == {value}'}"
    assert apart(judged(judge, test, source, setup=imports)) == (Verdict.ACCEPTED, False)
    assert apart(judged(judge, test, source, source, setup=imports)) == (Verdict.ACCEPTED, False)
    # And back: as an argument, and what the program returned.
    back = f"assert f({value})\nassert f(f())"
    assert judged(judge, back, source, setup=imports).verdict is Verdict.ACCEPTED
    wrong = f"{imports}def f():\n    return [{value}, 0]\n"
    assert judged(judge, f"assert f() == {value}", wrong, setup=imports).verdict is Verdict.WRONG_ANSWER


@pytest.mark.parametrize(("source", "claim"), OBJECTS.values(), ids=OBJECTS)
def test_a_value_without_a_plain_form_reaches_the_test_as_an_object(
    judge: Judge, source: str, claim: str
) -> None:
    test = f"assert {claim}"
    assert apart(judged(judge, test, source, setup=CAUGHT)) == (Verdict.ACCEPTED, False)


@pytest.mark.parametrize(
    "literal",
    DATA["equal_literals"],
    ids=lambda literal: literal[1],
)
def test_a_container_of_a_library_equals_the_literal_that_it_equals_in_python(
    judge: Judge, literal: tuple[str, str, str]
) -> None:
    imports, value, expected = literal
    source = f"{imports}\ndef f():\n    return {value}"
    assert judged(judge, f"assert f() == {expected}", source).verdict is Verdict.ACCEPTED
    assert judged(judge, f"assert f() == [{expected}, 0]", source).verdict is Verdict.WRONG_ANSWER


DEEP = "def nest(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x\n"


def test_with_a_reference_the_proxy_never_counts_against_a_program(judge: Judge) -> None:
    # No process receives a list of this depth by value, so only one interpreter can compare it.
    right, test = f"{DEEP}def f():\n    return nest(150)", "assert f() == nest(150)"
    assert apart(judged(judge, test, right, right, setup=DEEP)) == (Verdict.ACCEPTED, True)
    wrong = f"{DEEP}def f():\n    return nest(149)"
    assert judged(judge, test, wrong, right, setup=DEEP).verdict is Verdict.WRONG_ANSWER


UNCROSSABLE: dict[str, str] = DATA["uncrossable"]


@pytest.mark.parametrize("source", UNCROSSABLE.values(), ids=UNCROSSABLE)
@pytest.mark.parametrize(
    "test",
    ["assert f(1) == 3", "assert f(1) == {'a': [1, 2]}\nassert f(2) == 1", "x = f(1)\nassert f(x, x) == 2"],
)
def test_a_program_does_not_escape_its_verdict_by_a_value_that_cannot_cross(
    judge: Judge, source: str, test: str
) -> None:
    for references in ([], ["def f(*a):\n    return 3 if a[0] == 1 else 2"]):
        judgement = judged(judge, test, source, *references)
        assert judgement.verdict in (Verdict.WRONG_ANSWER, Verdict.RUNTIME_ERROR, Verdict.MEMORY_LIMIT)


def test_a_test_that_passes_an_unsupported_value_gives_no_verdict_to_any_program(judge: Judge) -> None:
    test, setup = "assert f(Lock()) is True", "import _thread\nLock = _thread.allocate_lock"
    for source in ("def f(x):\n    return hasattr(x, 'acquire')", "def f(x):\n    return False"):
        judgement = judged(judge, test, source, setup=setup)
        assert judgement.verdict is Verdict.JUDGE_ERROR
        assert "cannot be given to the program" in judgement.reason


@pytest.mark.parametrize(
    ("test", "source"),
    [
        # The program chose what the test then passes on.
        (
            "assert f(1) == 1\nassert f(f([2])) == 3",
            f"{DEEP}def f(x):\n    return nest(99) if x == [2] else 1",
        ),
        ("assert f([DATA]) == 3", f"{DEEP}DATA = nest(100)\ndef f(x):\n    return 4"),
        ("assert f(iter(DATA)) == 3", "DATA = [0] * 1_000_002\ndef f(x):\n    return 4"),
        ("assert f(1) == 1\nassert f(Lock()) is True", "def f(x):\n    return 1"),
    ],
)
def test_an_error_that_the_program_may_have_caused_is_no_escape(judge: Judge, test: str, source: str) -> None:
    setup = "import _thread\nLock = _thread.allocate_lock"
    assert judged(judge, test, source, setup=setup).verdict is Verdict.WRONG_ANSWER


def test_values_with_time_zones_are_results_of_calls(judge: Judge) -> None:
    source = IMPORTS + "def f():\n    return {str(datetime(2020, 1, 1, tzinfo=timezone.utc)): 1}"
    tests = CallTests([CallCase(expected={"2020-01-01 00:00:00+00:00": 1})], function="f")
    assert judge.judge(Problem("p", "", tests), Program("python", source)).verdict is Verdict.ACCEPTED
    zoned = IMPORTS + "def f():\n    return [datetime(2020, 1, 1, tzinfo=timezone.utc)]"
    refused = judge.judge(Problem("p", "", tests), Program("python", zoned))
    assert refused.verdict is Verdict.WRONG_ANSWER


MOMENTS: list[Any] = [
    datetime(2020, 1, 1, tzinfo=UTC),
    datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(2020, 7, 1, tzinfo=ZoneInfo("Europe/Paris")),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=23))),
    datetime(2020, 1, 1),
    time(1, tzinfo=UTC),
    time(0, tzinfo=timezone(-timedelta(hours=1))),
    time(1),
    UTC,
    timezone(timedelta(0), "GMT"),
    timezone(timedelta(microseconds=-1)),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=repr)
def test_times_are_the_same_after_the_wire_and_as_keys(moment: Any) -> None:
    returned = decode(encode(moment))
    assert returned == moment
    assert str(returned) == str(moment)
    for other in MOMENTS:
        assert (key_of(decode(encode(other))) == key_of(returned)) == (other == moment)


@pytest.mark.parametrize(
    "parts",
    [
        *[(2020, 1, 1, 0, 0, 0, 0), (2020, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, None, 5), "text", [1], None],
        *[(2020, 1, 1, 0, 0, 0, 0, 2, 0, 0, 0, None, None), (2020, 1, 1, 0, 0, 0, 0, 0, 9, 0, 0, None, None)],
        *[(2020, 1, 1, 0, 0, 0, 0, 0, 0, -5, 0, None, None), (2020, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 7, None)],
        (2020, 1, 1, 0, 0, 0, 0, 0, 1 << 200, 0, 0, None, None),
        (1 << 80, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, None, None),
    ],
    ids=repr,
)
def test_a_malformed_time_is_refused(parts: Any) -> None:
    for tag in b"567":
        with pytest.raises(WireError):
            decode(bytes([tag]) + encode(parts))


def test_a_malformed_value_of_a_library_is_refused() -> None:
    odd: list[Any] = [None, 5, -1, "x", b"ab", [], {}, (), 1 << 400, "../../etc/passwd", 1.5, [[1]]]
    tags = [
        "uuid",
        "address",
        "struct_time",
        "array",
        "memory",
        "mapping",
        "keys",
        "fraction",
        "range",
        "os.system",
    ]
    for tag in tags:
        for first in odd:
            for parts in ([first], [first, first], [first] * 3):
                try:
                    found = read_value(tag, parts)
                except WireError:
                    continue
                # What is no error has the type that its tag stands for.
                assert type(found).__module__ in (
                    "builtins",
                    "array",
                    "fractions",
                    "uuid",
                    "time",
                    "ipaddress",
                )


def test_only_values_of_a_closed_list_are_described() -> None:
    assert describe_value(object()) is None
    assert describe_value(b"".join) is None
    with pytest.raises(NotInert):
        encode(object())
