"""Values that JSON does not have survive as text, exactly; and reading such text runs nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whetstone.core.literal import read_literal, write_literal

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.just(...),
)
_HASHABLE = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
_VALUES = st.recursive(
    _SCALARS | st.sets(_HASHABLE, max_size=3) | st.frozensets(_HASHABLE, max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(_HASHABLE, inner, max_size=3)
    ),
    max_leaves=12,
)


def _identical(left: Any, right: Any) -> bool:
    """Equal, of equal types all the way down, with the signs of zeros, and nan like nan."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        same = left == right and math.copysign(1, left) == math.copysign(1, right)
        return same or (math.isnan(left) and math.isnan(right))
    if isinstance(left, complex):
        return _identical(left.real, right.real) and _identical(left.imag, right.imag)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_identical, left, right))
    if isinstance(left, set | frozenset):
        return sorted(map(repr, left)) == sorted(map(repr, right))
    if isinstance(left, dict):
        return _identical(list(map(repr, left)), list(map(repr, right))) and all(
            map(_identical, left.values(), right.values())
        )
    return left == right


@given(_VALUES)
def test_a_written_literal_is_read_with_its_types(value: Any) -> None:
    assert _identical(read_literal(write_literal(value)), value)


def test_an_integer_too_long_for_decimal_text_is_kept() -> None:
    assert read_literal(write_literal(-(7**20000))) == -(7**20000)


@pytest.mark.parametrize(
    "text",
    ["__import__('os').getpid()", "open('x')", "[].append", "x", "1 + 1", "[i for i in ()]", "f'{1}'", "",
     "set([1])", "{**{}}", "lambda: 0", "'a' 'b' %", "-'a'", "[[]" , "{[]: 1}", "(" * 500 + ")" * 500],
)  # fmt: skip
def test_an_invalid_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a Python literal"):
        read_literal(text)


@pytest.mark.parametrize("value", [object(), print, bytearray(), range(3), [object()], {1: iter(())}])
def test_a_value_without_a_literal_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="has no literal"):
        write_literal(value)
