"""Plain values: the codec gives back what it got, in one order, and survives hostile objects and bytes."""

from __future__ import annotations

import collections
import contextlib
import datetime
import enum
import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.beside import data_beside
from whetstone.judge.answers.equality import equal
from whetstone.judge.answers.inert import show
from whetstone.judge.set_order import in_canonical_order
from whetstone.judge.values import MAX_DEPTH, NotInert, WireError, decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**70)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters())
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
)
hashables = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3))
values = st.recursive(
    scalars | st.lists(st.integers(), min_size=17) | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.sets(hashables, max_size=4)
        | st.lists(inner).map(collections.deque)
    ),
    max_leaves=20,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def same_types(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple | collections.deque):
        return all(map(same_types, left, right))
    return True


@given(values)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert same_types(back, value)


@given(st.binary())
def test_hostile_bytes_are_refused_or_decoded_never_worse(data: bytes) -> None:
    with contextlib.suppress(WireError):
        decode(data)


@given(values, st.data())
def test_a_damaged_encoding_is_refused_or_decoded_never_worse(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode(value))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        decode(bytes(encoded))
    with pytest.raises(WireError):
        decode(encode(value)[:-1])
    with pytest.raises(WireError):
        decode(encode(value) + b"N")


def test_deep_cyclic_and_large_values_are_refused_with_a_reason() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    branching: Any = 0
    for _ in range(60):
        branching = [branching, branching]
    with pytest.raises(NotInert, match="contains itself"):
        encode(cycle)
    with pytest.raises(NotInert, match="larger"):
        encode(branching, max_bytes=10_000)
    with pytest.raises(WireError, match="deep"):
        decode(b"l\1\0\0\0\0\0\0\0" * 100_000 + b"N")
    with pytest.raises(WireError, match="cut short"):
        decode(b"l" + b"\xff" * 8)


def test_a_set_of_colliding_keys_is_refused_before_it_takes_quadratic_time() -> None:
    modulus = (1 << 61) - 1  # int hashes are taken modulo this prime
    keys = [encode(k * modulus + 1) for k in range(200_000)]
    with pytest.raises(WireError, match="equal hashes"):
        decode(b"S" + len(keys).to_bytes(8, "little") + b"".join(keys))


def test_the_limit_of_depth_is_the_same_on_both_sides() -> None:
    value: Any = None
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode(encode(value)) == value
    assert equal(value, value)


class LyingList(list[Any]):
    def __iter__(self) -> Any:
        return iter([99])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: Any) -> Any:
        return 99

    def __eq__(self, other: object) -> bool:
        return True


class LyingDict(dict[Any, Any]):
    def items(self) -> Any:
        return [("lie", 1)]

    def __iter__(self) -> Any:
        return iter(["lie"])


class LyingInt(int):
    def __add__(self, other: object) -> int:
        return 42

    def __int__(self) -> int:
        return 42

    def __index__(self) -> int:
        return 42


class LyingStr(str):
    def encode(self, *args: Any) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        return b"lie"

    def __str__(self) -> str:
        return "lie"


class Color(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (LyingList([1, 2]), [1, 2]),
        (LyingDict(a=1), {"a": 1}),
        (LyingInt(7), 7),
        (LyingStr("truth"), "truth"),
        (Color.RED, 3),
        (collections.defaultdict(list, {1: [2]}), {1: [2]}),
        (collections.namedtuple("Point", "x y")(1, 2), (1, 2)),  # pyright: ignore[reportUntypedNamedTuple]
    ],
)
def test_a_subclass_crosses_as_the_base_value_it_holds(value: Any, plain: Any) -> None:
    back = decode(encode(value))
    assert back == plain
    assert type(back) is type(plain)


def test_an_object_without_a_plain_form_is_refused() -> None:
    for value in (object(), lambda: 1, [len], {1: object()}):
        with pytest.raises(NotInert, match="no plain form"):
            encode(value)


class Equal:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(3)


@given(json_values)
def test_a_value_is_equal_to_itself_and_to_its_tuple_form(value: Any) -> None:
    def tupled(part: Any) -> Any:
        if isinstance(part, list):
            return tuple(map(tupled, part))
        return {k: tupled(v) for k, v in part.items()} if isinstance(part, dict) else part

    assert equal(value, value)
    assert equal(tupled(value), value)
    assert not equal([value], value)
    assert len(show(value)) <= 60


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (True, 1),
        (0, False),
        (3.0, 3),
        (3, 3.0),
        (0.1 + 0.2, 0.3),
        (math.nan, math.nan),
        (math.inf, math.inf),
        (Decimal("0.3"), 0.3),
        (Decimal(3), 3),
        (Fraction(1, 2), 0.5),
        (3 + 0j, 3),
        ({1, 2}, {2, 1}),
        ({0.1 + 0.2}, {0.3}),
        ({1: "a", None: 2}, {"1": "a", "null": 2}),
        ({(0, 1): 2}, {(0, 1): 2}),
        (collections.deque([1]), [1]),
        (range(3), [0, 1, 2]),
        (b"a", bytearray(b"a")),
        (2**80, 2**80),
    ],
)
def test_equal_answers(actual: Any, expected: Any) -> None:
    assert equal(actual, expected)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ("3", 3),
        (3, "3"),
        (None, 0),
        (None, False),
        (0, None),
        ("", None),
        ([], None),
        (2.9999999, 3),
        (3 + 1e-12, 3),
        (1.0000001, 1.0),
        (math.nan, 1.0),
        (math.nan, 1),
        (1.0, math.nan),
        (math.inf, -math.inf),
        (math.inf, 1e308),
        (10**400, 1.5),
        (Decimal("NaN"), 1.0),
        (Decimal("1E+999999999"), 1),
        ([1, 2], [2, 1]),
        ([1, 2], {1, 2}),
        ({1, 2}, [1, 2]),
        ({1, 2}, [1, 2, 2]),
        ({1, 2}, [1, 3]),
        ({1: "a", "1": "b"}, {"1": "a"}),
        ({1: "a", "1": "a"}, {"1": "a", "2": "a"}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([("a", 1)], {"a": 1}),
        ("ab", ["a", "b"]),
        (b"a", "a"),
        ([[]], [[], []]),
        (Equal(), 3),
        ([Equal()], [3]),
        (datetime.date(2020, 1, 1), "2020-01-01"),
    ],
)
def test_different_answers(actual: Any, expected: Any) -> None:
    assert not equal(actual, expected)


def test_the_text_of_a_value_is_short_whatever_it_is() -> None:
    for value in (10**100_000, "x" * 10**6, [[1] * 1000] * 1000, {i: i for i in range(10_000)}, Decimal(1)):
        assert len(show(value)) <= 60


DATA = data_beside(__file__)

WRITES = DATA["writes"]

plain = st.recursive(
    st.one_of(
        st.text(max_size=3),
        st.integers(),
        st.booleans(),
        st.none(),
        st.floats(allow_nan=False),
        st.binary(max_size=2),
        st.just(Decimal("2.5")),
        st.just(Fraction(1, 3)),
        st.dates(),
        st.timedeltas(),
    ),
    lambda inner: st.one_of(st.tuples(inner), st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=6,
)


def _written(seed: str) -> str:
    command = [sys.executable, "-c", WRITES]
    return subprocess.run(
        command, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.process
def test_processes_that_hash_differently_write_the_same() -> None:
    first, *others = (_written(seed) for seed in ("1", "2", "3", "random"))
    assert all(other == first for other in others)


@given(st.frozensets(plain, max_size=12), st.randoms(use_true_random=False))
def test_the_order_in_a_set_is_not_told(held: frozenset[object], random: Random) -> None:
    mixed = list(held)
    random.shuffle(mixed)
    assert _numbers(held) or in_canonical_order(mixed) == in_canonical_order(list(held))
    assert decode(encode(held)) == held


def _numbers(value: object) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_numbers, value))
    return isinstance(value, (int, float, Decimal, Fraction))


@pytest.mark.parametrize(
    "numbers",
    [[8, 0], [0, 8], [16, 8, 0, 1], [(8, 1), (0, 1)], [0.5, 8, 0], [Decimal(8), Fraction(0), 1]],
)
def test_numbers_stay_as_python_keeps_them(numbers: list[object]) -> None:
    """An honest program may have been asked for the list of a set of small numbers."""
    held = set(numbers)
    assert list(decode(encode(held))) == list(held)
    assert in_canonical_order(list(held)) == list(held)
