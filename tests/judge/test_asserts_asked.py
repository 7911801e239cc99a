"""Asserts that only compare, which the judge asks by itself: they mean what Python says they mean."""

from __future__ import annotations

import socket
import struct
from collections import Counter, OrderedDict, deque
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.beside import data_beside
from tests.judge.judge_problems import assert_problem, python
from tests.tiers import ALL_TIERS, skip_unless_offered
from whetstone.core.problem import AssertTests, problem_from
from whetstone.judge import Judge, Verdict
from whetstone.judge.answers.inert import read_one
from whetstone.judge.kinds.assert_calls import Plain, plain_asserts
from whetstone.judge.kinds.assert_conversation import AssertConversation, is_judged_by_calls
from whetstone.judge.kinds.assert_processes import described_unit
from whetstone.judge.values import WireError, encode
from whetstone.sandbox import Tier

DATA = data_beside(__file__)

CHECK = "def check(candidate):\n    "
SCALARS = st.one_of(
    *(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.integers(),
        st.text(max_size=3),
        st.binary(max_size=2),
    ),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
)
KEYS = st.one_of(st.booleans(), st.integers(-2, 2), st.text("ab", max_size=1), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(KEYS, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=6,
)


def asserts(*tests: str, entry_point: str | None = None, setup: str = "", **more: Any) -> list[Plain] | None:
    problem = problem_from(assert_problem(asserts=list(tests), entry_point=entry_point, setup=setup, **more))
    assert isinstance(problem.tests, AssertTests)
    units = [plain_asserts(described_unit(problem, problem.tests, n)) for n in range(len(tests))]
    return None if None in units else [one for unit in units for one in unit or ()]


@given(value=VALUES, expected=VALUES, other=st.booleans(), close=st.booleans())
def test_a_value_is_compared_as_python_compares_it(
    value: object, expected: object, other: bool, close: bool
) -> None:
    """``close``: the same value in other types, which Python's ``==`` looks through."""
    if close:
        expected = value
        value = relatives(value)
    plain = asserts(f"assert f() {'!=' if other else '=='} {expected!r}")
    assert plain is not None
    answer = read_one(encode(["value", value]), expected)[1]
    assert plain[0].rule.right(answer) is ((value == expected) is not other)
    at_once = encode(["value", value]) == plain[0].rule.answer
    assert at_once <= ((value == expected) and not other)
    assert other or encode(["value", expected]) == plain[0].rule.answer


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 * 5 * 7 - 1", 104),
        ("[0] * 3 + [1]", [0, 0, 0, 1]),
        ("{'a' * 2: -(1 + 1)}", {"aa": -2}),
        ("(7 // 2, 7 % 4, 7 / 2, 2 ** 10, 0 ** 0)", (3, 3, 3.5, 1024, 1)),
        ("set([1, 1])", {1}),
        ("tuple('ab')", ("a", "b")),
        ("{1 + 1, 3}", {2, 3}),
    ],
)
def test_a_constant_has_the_value_that_python_computes(text: str, value: object) -> None:
    [plain] = asserts(f"assert f() == {text}") or []
    assert plain.rule.expected == value
    assert type(plain.rule.expected) is type(value)


def relatives(value: Any) -> Any:
    match value:
        case list():
            return [relatives(item) for item in value]
        case tuple():
            return tuple(relatives(item) for item in value)
        case dict():
            return OrderedDict((key, relatives(item)) for key, item in reversed(value.items()))
        case set():
            return frozenset(value)
        case int() if abs(value) < 2**50:
            return float(value)
        case _:
            return value


@given(value=VALUES | st.builds(deque, st.lists(KEYS, max_size=1)) | st.builds(Counter, st.text(max_size=1)))
def test_a_value_is_as_true_as_it_was(value: object) -> None:
    [true, false] = asserts("assert f()", "assert not f()") or []
    answer = read_one(encode(["value", value]), True)[1]
    assert true.rule.right(answer) is bool(value)
    assert false.rule.right(answer) is not bool(value)


@pytest.mark.parametrize(
    "test",
    DATA["only_compare"],
)
def test_asserts_that_only_compare_are_judged_by_calls(test: str) -> None:
    assert asserts(test)


@pytest.mark.parametrize(
    "test",
    [
        *DATA["do_more"],
        "assert f(1) == " + "'" + "x" * 300_000 + "'",
    ],
)
def test_asserts_that_do_more_have_a_test_process(test: str) -> None:
    assert asserts(test) is None


@pytest.mark.parametrize(
    "check",
    DATA["checks_that_do_more"],
)
def test_a_check_that_does_more_has_a_testing_process(check: str) -> None:
    assert not is_judged_by_calls(problem_from(assert_problem(check=check, entry_point="f")))


def test_a_check_that_only_compares_is_asked() -> None:
    check = (
        "METADATA = {'author': 'x'}\n\n"
        + CHECK
        + "'''Doc.'''\n    assert True\n    assert candidate(1) == 2\n"
    )
    assert is_judged_by_calls(problem_from(assert_problem(check=check, entry_point="f")))


UNITS = [asserts("assert f(1) == 2\nassert f(3) == 4"), asserts("assert f(5)"), asserts("assert f(6) == [7]")]
RIGHT = [["value", 2], ["value", 4], ["value", True], ["value", [7]]]


def framed(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def says_true(message: bytes) -> bool:
    try:
        said = read_one(message, True)
    except WireError:
        return False
    return isinstance(said, list) and said[:1] == ["value"] and len(said) == 2 and bool(said[1])


MESSAGES = st.one_of(
    st.sampled_from([*RIGHT, ["value", 3], ["unplain"], ["missing"], ["raised", "E"], ["passed"]]).map(
        encode
    ),
    st.sampled_from([["loaded"], ["failed", "x"], [], ["value"], ["value", 2, 2], 2]).map(encode),
    st.binary(max_size=12),
    st.just(b""),
)


@settings(max_examples=300)
@given(messages=st.lists(MESSAGES, max_size=7), end=st.binary(max_size=6), pieces=st.lists(st.integers(1, 9)))
def test_no_message_makes_the_judge_raise_wait_or_accept_a_wrong_answer(
    messages: list[bytes], end: bytes, pieces: list[int]
) -> None:
    """Whatever comes, in whatever pieces: each unit has at most one outcome, and passes by right answers."""
    near, far = socket.socketpair()
    said = framed(encode(["loaded"])) + b"".join(map(framed, messages)) + end
    with closing(AssertConversation([unit for unit in UNITS if unit], near)) as talk, far:
        going = True
        for size in [*pieces, len(said)]:
            if going and said:
                far.sendall(said[:size])
                said = said[size:]
                going = talk.receive()
        far.close()
        talk.finish()
        assert 1 <= len(talk.outcomes) <= len(UNITS)
        passed = [outcome.status == "passed" for outcome in talk.outcomes]
        first, second, _, last = map(encode, RIGHT)
        assert not passed[0] or messages[:2] == [first, second]
        assert not any(passed[1:2]) or any(map(says_true, messages[1:]))
        assert not any(passed[2:]) or last in messages[2:]


@pytest.mark.parametrize(
    "test",
    DATA["of_no_bytes"],
)
def test_an_answer_of_no_bytes_is_no_answer(test: str) -> None:
    near, far = socket.socketpair()
    with closing(AssertConversation([asserts(test) or []], near)) as talk, far:
        far.sendall(framed(encode(["loaded"])) + framed(b""))
        while talk.receive():
            pass
        assert [outcome.status for outcome in talk.outcomes] == ["gone"]


@settings(max_examples=40)
@given(junk=st.binary(min_size=1, max_size=64))
def test_a_flood_ends_the_conversation(junk: bytes) -> None:
    near, far = socket.socketpair()
    flood = framed(encode(["loaded"])) + framed(encode(["unplain"])) * 50 + junk
    with closing(AssertConversation([asserts("assert f(5)") or []], near)) as talk, far:
        far.sendall(flood)
        while talk.receive():
            pass
        assert [outcome.status for outcome in talk.outcomes] == ["gone"]


SECRET = "a8f3e1"
SEARCHES = DATA["searches"]


@pytest.mark.parametrize("source", SEARCHES, ids=["frames", "collector", "memory"])
def test_expected_values_never_reach_the_programs_process(judge: Judge, source: str) -> None:
    problem = assert_problem(asserts=[f"assert f('k{n}-') == 'k{n}-{SECRET}'" for n in range(3)])
    assert is_judged_by_calls(problem_from(problem))
    assert not any(case.verdict is Verdict.ACCEPTED for case in judge.judge(problem, python(source)).cases)


NEAR = DATA["near"]


@pytest.mark.parametrize("tier", ALL_TIERS)
def test_each_way_of_ending_has_its_verdict(tier: Tier) -> None:
    """As through a testing process: the same program, and a test with one statement more."""
    sources = DATA["sources"]
    converted = DATA["converted"]
    skip_unless_offered(tier)
    limits = {"cpu_s": 1.0, "memory_mb": 256.0, "output_mb": 1.0}
    with Judge(2, tier=tier.label, confirm_time_limit=False) as judge:
        for tests, programs, right in (
            (["assert f(1) == 2", "assert f(3) == 4", "assert f(5) != {5: 6}"], sources, (0, 14)),
            (["assert set(f(1)) == {2}", "assert set(f(3)) == {4}"], converted, (0, 1, 5)),
            (["assert abs(f(1) - 2) < 1e-6, str(f(1))", "assert abs(f(3) - 4.0) < 1e-6"], NEAR, (0, 1)),
        ):
            asked, apart = (
                {**assert_problem(asserts=tests, setup=setup, entry_point="f"), "limits": limits}
                for setup in ("", "apart = 1")
            )
            assert is_judged_by_calls(problem_from(asked))
            assert not is_judged_by_calls(problem_from(apart))
            for number, source in enumerate(programs):
                one, other = (judge.judge(problem, python(source)) for problem in (asked, apart))
                assert [case.verdict for case in one.cases] == [case.verdict for case in other.cases], source
                assert one.accepted is (number in right)


def test_an_endless_function_meets_its_own_limit_alone(judge: Judge) -> None:
    source = "def f(n):\n    while n == 3: pass\n    return n + 1"
    tests = [f"assert f({n}) == {n + 1}" for n in range(1, 6)]
    problem = {
        **assert_problem(asserts=tests),
        "limits": {"cpu_s": 0.3, "memory_mb": 256.0, "output_mb": 1.0},
    }
    verdicts = [case.verdict for case in judge.judge(problem, python(source)).cases]
    assert verdicts == [Verdict.ACCEPTED] * 2 + [Verdict.TIME_LIMIT] + [Verdict.ACCEPTED] * 2
