"""What the judge does with an answer is bounded by counts: of lines of code run, and of bytes that are held.

Lines are counted by the interpreter itself, so the figures are the same on every machine. What one line costs
is bounded because no hash table is made of what a program chose, and nothing of more than is expected.
"""

from __future__ import annotations

import itertools
import struct
import sys
import tracemalloc
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.judge.judged_answers import judged
from whetstone.core.problem import CallCase, CallTests, Compare, Limits, Problem, Program
from whetstone.judge import Judge, Verdict
from whetstone.judge.answers.comparisons import add_comparisons
from whetstone.judge.answers.equality import equal
from whetstone.judge.answers.inert import FREE_ITEMS, key_of, read_each, read_one
from whetstone.judge.answers.standard_checkers import CHECKERS, check_standard
from whetstone.judge.answers.text import compare
from whetstone.judge.value_reader import TooManyItems, WireError
from whetstone.judge.values import decode, encode
from whetstone_graders import COMPARISONS

_PRIME = (1 << 61) - 1
_numbers = (
    st.sampled_from([-1, -2, 0, 1, True, 1.0, -2.0, 0.5, float("nan"), float("inf"), 1j, 2 + 0j])
    | st.integers()
    | st.integers(0, 9).map(lambda n: n * _PRIME)
    | st.decimals(places=2, allow_nan=False)
    | st.fractions(max_denominator=5)
)
_keys = st.recursive(
    _numbers
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.none()
    | st.sampled_from([range(3), range(0)]),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=8,
)
_values = st.recursive(
    _keys,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.sets(_keys, max_size=5)
        | st.dictionaries(_keys, inner, max_size=4)
        | st.lists(inner, max_size=4).map(deque)
        | st.dictionaries(_keys, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=20,
)


add_comparisons(COMPARISONS)
_COUNTED = (
    "values.py", "value_reader.py", "inert.py", "equality.py", "whetstone_graders/values.py", "allclose.py",
    "showing.py", "text.py", "texts.py", "kattis.py", "standard_checkers.py", "fractions.py",
)  # fmt: skip


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python ``work`` runs, of the judge and of what it uses that is written in Python."""
    count = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(_COUNTED):
            return None  # the garbage collector's callbacks, say
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@settings(max_examples=60, deadline=None)
@given(_values, _values)
def test_the_counted_cost_of_a_value_is_the_same_in_every_run(value: Any, expected: Any) -> None:
    data, wanted = encode(value), encode(expected)
    judged(data, expected)  # what Python prepares once is no cost of an answer
    first = lines_run(lambda: judged(data, expected))
    assert first <= 1000 + 60 * (len(data) + len(wanted))
    assert lines_run(lambda: judged(data, expected)) == first
    assert lines_run(lambda: judged(data, value)) <= 1000 + 120 * len(data)


def _colliding(levels: int, width: int) -> Any:
    """Sets of sets of tuples, all of one hash at every level, that differ in one element."""
    level: list[Any] = [(Fraction(1, 3), *tail) for tail in itertools.product((-1, -2), repeat=4)]
    for _ in range(levels):
        level = [frozenset(level[:i] + level[i + 1 :]) for i in range(width)]
    return set(level)


def _one_table(size: int) -> list[int]:
    """Integers that a table of this size looks for one after the other."""
    slot, keys = 1, list[int]()
    for _ in range(size // 2):
        keys.append(slot)
        slot = (5 * slot + 1) & (size - 1)
    return keys + [key | size << 5 for key in keys]


@pytest.mark.parametrize(
    "value",
    [
        _colliding(2, 8),
        {k * _PRIME for k in range(300)},
        {Decimal(k * _PRIME): k for k in range(300)},
        dict.fromkeys(_one_table(1 << 9)),
        {(0,) * 50 + tail for tail in itertools.product((-1, -2), repeat=6)},
    ],
)
def test_keys_that_collide_cost_no_more_than_others(value: Any) -> None:
    data = encode(value)
    assert lines_run(lambda: judged(data, value)) <= 1000 + 120 * len(data)
    assert equal(read_one(data, value), value)
    other = set(value) if isinstance(value, set) else dict(value)
    other.pop(next(iter(other))) if isinstance(other, dict) else other.pop()
    assert not equal(read_one(data, other), other)


def test_where_hash_tables_are_made_colliding_keys_are_counted_before() -> None:
    for value in (_colliding(2, 16), {k * _PRIME for k in range(5000)}):
        with pytest.raises(WireError, match="equal hashes"):
            decode(encode(value))
    honest = dict.fromkeys(itertools.product((-1, -2), repeat=9), 1)
    assert decode(encode(honest)) == honest


@given(_keys, _keys)
@example((1, frozenset([2.0])), (True, frozenset([Fraction(2)])))
@example(range(0), range(3, 3))
@example(Decimal("1E+5"), 100_000)
@example(Decimal("0.5"), Fraction(1, 2))
@example(float("inf"), Decimal("inf"))
@example(b"#1", 1)
def test_keys_are_alike_where_python_calls_them_equal(left: Any, right: Any) -> None:
    if _exotic(left) and _exotic(right):
        return  # a Decimal and a Fraction that no float equals: two kinds, as documented
    assert (key_of(left) == key_of(right)) == (left == right) or _holds_nan(left)


def _leaves(value: Any) -> list[Any]:
    return (
        [leaf for item in value for leaf in _leaves(item)]
        if isinstance(value, tuple | frozenset)
        else [value]
    )


def _exotic(value: Any) -> bool:
    return any(isinstance(leaf, Decimal | Fraction) for leaf in _leaves(value))


def _holds_nan(value: Any) -> bool:
    return any(leaf != leaf for leaf in _leaves(value))


_ITEMS = {
    "integers apart": b"i" + struct.pack("<q", 619),
    "empty sets": b"S" + struct.pack("<Q", 0),
    "empty deques": b"E" + struct.pack("<Q", 0),
    "empty mappings": b"O" + struct.pack("<Q", 0),
    "nothings": b"N",
    "decimals": b"D" + struct.pack("<Q", 1) + b"7",
    "short texts": b"u\3" + "€".encode(),
    "texts by number": b"v\0",
}


@pytest.mark.parametrize("item", _ITEMS.values(), ids=_ITEMS)
def test_a_long_answer_is_not_held_unless_it_can_be_right(item: bytes) -> None:
    count = (3 << 20) // len(item)
    data = b"l" + struct.pack("<Q", 1) + b"u\3abc" + b"l" + struct.pack("<Q", count) + item * count
    data = b"l" + struct.pack("<Q", 2) + data[9:]
    tracemalloc.start()
    with pytest.raises(TooManyItems):
        read_each(data, lambda: [[1, 2, 3]])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_an_answer_as_large_as_the_expected_one_is_read() -> None:
    expected = [float(n) if n % 2 else n for n in range(2 * FREE_ITEMS)]
    assert equal(read_one(encode(expected), expected), expected)


_MODES: tuple[str, ...] = (
    "tokens", "exact", "lines", "floats", "ignore_case", "unordered_lines", "kattis",
    "grader:lcb", "grader:scalebox",
)  # fmt: skip
_TEXTS = ["19 ", "1\n", "1e5 ", "\n", "\r", "\n\r", "a\r\n", "\u0390 ", "0.1\n", "Case 1:\n3\n"]


@pytest.mark.parametrize("text", _TEXTS)
def test_no_more_of_an_output_is_taken_apart_than_is_expected(text: str) -> None:
    """Beside copies of the output, as text and in lower case: a character may take twelve bytes there."""
    output = text.encode() * ((3 << 20) // len(text.encode()) + 1)
    output = output[: 3 << 20]
    for work in (
        *(partial(compare, output, "19 20\n", Compare(mode)) for mode in _MODES),
        *(partial(check_standard, name, output, b"19 20\n") for name in CHECKERS),
    ):
        tracemalloc.start()
        count = lines_run(work)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count < 1000
        assert peak < 12 * len(output)


_LARGE = Problem(
    "large",
    "",
    CallTests([CallCase(expected=[], args=[])], "f"),
    limits=Limits(cpu_s=10, memory_mb=1024, output_mb=128),
)


@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("def f(): return 'x' * (65 << 20)", "larger than 64 MiB"),
        ("import os\ndef f(): os.write(7, b'x' * (129 << 20))", "128 MiB of output_mb"),
    ],
)
def test_a_value_that_is_too_large_is_output_limit_and_says_which(
    judge: Judge, source: str, limit: str
) -> None:
    judged = judge.judge(_LARGE, Program("python", source))
    assert judged.verdict is Verdict.OUTPUT_LIMIT
    assert limit in judged.reason
    assert judged.score == 0.0


def test_a_counter_equals_a_dict_and_nothing_else_is_a_set() -> None:
    assert equal(read_one(encode(Counter("aab")), {}), {"a": 2, "b": 1})
    assert not equal(read_one(encode({1: 2}), {}), [1, 2])
    assert not equal(read_one(encode({1, 2}), set()), [1, 2])
    assert equal(read_one(encode(deque([1, 2])), []), [1, 2])
