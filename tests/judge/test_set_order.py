"""What a message says of a set tells nothing of how the process that wrote it hashes."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.judge.set_order import in_canonical_order
from whetstone.judge.values import decode, encode

WRITES = """
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random
from whetstone.judge.rpc.link import changes, content
from whetstone.judge.values import encode
texts = ["%s", "", "a", "b", "c", "ab", "ba", "\\ud800", *map(str, range(40))]
numbers = [-2**63, 2**70, 1.5, float("nan"), 3 + 4j, Decimal("1.25"), Fraction(10**5000, 7)]
times = [date(2020, 1, 2), datetime(2020, 1, 2), time(3), timedelta(4)]
mixed = [*texts, *numbers, *times, None, ..., b"x", b"", range(5), range(0), (), (None,), ("a", None)]
sets = [
    set(texts), frozenset(texts), {b"a", b"b", b"c", b"d"}, {"%s", -2**63}, set(mixed), {None, "a"},
    {(a, b) for a in texts for b in texts}, {(a, i) for i, a in enumerate(texts)},
    {(1, "a"), ("a", 1), (2.5, b"")}, {frozenset(texts[i : i + 3]) for i in range(20)},
    {(frozenset(texts), "a"), (frozenset(texts[1:]), "a")},
    {float("nan"), "a", "b", ("a", float("nan"))}, [set(texts[:9]), {"k": set(texts[9:])}],
]
for one in sets:
    print(encode(one).hex())
shared = set(texts[:5])
before = content(shared)
shared |= {*mixed[:60]}
print(encode(changes([shared], [before])).hex())
"""

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
