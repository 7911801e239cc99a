"""Features of an input and its answer, to tell inputs of different kinds apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

# Small sizes are told apart one by one.
_EXACT = 12


def features_of(arguments: Sequence[Any], answer: Any) -> set[str]:
    """Return the features of each argument, of the answer, and of pairs of arguments."""
    found = {f"{at}:{name}" for at, value in enumerate(arguments) for name in _features(value)}
    found |= {f"answer:{name}" for name in _features(answer)}
    for one in range(len(arguments)):
        for other in range(one):
            a, b = _number(arguments[one]), _number(arguments[other])
            found.add(f"{other},{one}:{'equal' if a == b else 'less' if a > b else 'more'}")
    return found


def has_new_empty(arguments: Sequence[Any], seeds: Sequence[Sequence[Any]]) -> bool:
    """Return whether an argument is an empty collection or a blank string, and that of no given input is."""

    def is_empty(value: Any) -> bool:
        if isinstance(value, str):
            return not value.strip()
        return isinstance(value, list | tuple | set | dict) and not value

    return any(
        is_empty(value) and not any(is_empty(given[at]) for given in seeds)
        for at, value in enumerate(arguments)
    )


def _number(value: Any) -> float:
    """Return the size that is compared with those of other arguments."""
    if isinstance(value, int | float):
        return float(value)
    return float(len(value)) if hasattr(value, "__len__") else 0.0


def _bucket(number: float) -> str:
    size = abs(number)
    if size <= _EXACT:
        return f"{math.ceil(size)}"
    return next((f"up to {most}" for most in (20, 50, 100, 1000) if size <= most), "more")


def _features(value: Any) -> Iterator[str]:
    yield type(value).__name__
    if isinstance(value, bool):
        yield str(value)
    elif isinstance(value, int | float):
        yield f"{'-' if value < 0 else '+'}{_bucket(value)}"
        yield f"remainder {value % 2}" if value % 1 == 0 else "a fraction"
    elif isinstance(value, str):
        yield f"length {_bucket(len(value))}"
        yield f"palindrome {value == value[::-1]}"
        yield f"words {_bucket(len(value.split()))}"
        yield f"distinct {len(set(value)) == len(value)}"
        classes = (str.islower, str.isupper, str.isdigit, str.isspace)
        yield "".join(str(int(any(map(each, value)))) for each in classes)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from _collection_features(list(cast("Any", value)))
    elif isinstance(value, dict):
        yield f"length {_bucket(len(cast('dict[Any, Any]', value)))}"


def _collection_features(items: list[Any]) -> Iterator[str]:
    yield f"length {_bucket(len(items))}"
    texts = [repr(item) for item in items]
    yield f"distinct {len(set(texts)) == len(texts)}"
    yield f"equal {len(set(texts)) == 1}"
    for item in (items[:1], items[-1:]):
        yield from (f"item {type(each).__name__}" for each in item)
    if items and all(hasattr(item, "__len__") for item in items):
        yield f"longest item {_bucket(max(map(len, items)))}"
    if items and all(isinstance(item, int | float) for item in items):
        yield f"least {'-' if min(items) < 0 else '+'}{_bucket(min(items))}"
        yield f"ascending {items == sorted(items)}, descending {items == sorted(items, reverse=True)}"
        yield f"odd {sum(item % 2 for item in items) > 0}"
