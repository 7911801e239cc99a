"""What is special about an input and its answer: what a program that overlooks it would get wrong.

A program that is right but for inputs of a kind that no test has is accepted: it is a mutant that survives,
and it need not be run. A new test with such an input refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

_DEEPEST = 3
_MANY = 8
_BIG = 100


def spots_of(arguments: Sequence[Any], answer: Any) -> frozenset[str]:
    """The properties of an input, each also together with the kind of answer that it has."""
    found = {f"{at}: {spot}" for at, value in enumerate(arguments) for spot in _spots(value, _DEEPEST)}
    found |= {f"{one}-{other}: {spot}" for one, other, spot in _between(arguments)}
    kinds = [f"answer {spot}" for spot in _spots(answer, 1)]
    sort = _sort(answer)
    return frozenset([*found, *kinds, *(f"{spot} -> {sort}" for spot in found)])


def _spots(value: Any, depth: int) -> Iterator[str]:
    if value is None or isinstance(value, bool):
        yield repr(value)
    elif isinstance(value, int | float):
        yield from _of_number(value)
    elif isinstance(value, str):
        yield from _of_text(value)
    elif isinstance(value, list | tuple | set | dict):
        yield from _of_items(cast("Any", value), depth)


def _of_number(value: float) -> Iterator[str]:
    if value != value:
        yield "nan"
        return
    yield "negative" if value < 0 else "zero" if value == 0 else "positive"
    if value in (1, 2, 3, -1):
        yield f"is {value:g}"
    if abs(value) >= _BIG:
        yield "large"
    if isinstance(value, float) and abs(value) < 1e15 and not value.is_integer():
        yield "fraction"
    elif abs(value) < 1e15:
        yield "odd" if int(value) % 2 else "even"
        if _is_prime(int(value)):
            yield "prime"
        digits = str(abs(int(value)))
        yield f"{len(digits)} digits"
        yield f"ends in {digits[-1]}"
        if len(set(digits)) < len(digits):
            yield "digits again"
        if "0" in digits[1:]:
            yield "zero within"
        if value > 0 and int(value) % 3 == 0:
            yield "multiple of 3"
        if value > 3 and round(value**0.5) ** 2 == value:
            yield "square"
        if len(str(abs(int(value)))) > 1 and str(abs(int(value))) == str(abs(int(value)))[::-1]:
            yield "palindrome"


def _is_prime(value: int) -> bool:
    return 2 <= value < 10_000 and all(value % d for d in range(2, int(value**0.5) + 1))


def _of_text(value: str) -> Iterator[str]:
    yield _length(len(value))
    tests = {
        "upper": str.isupper, "lower": str.islower, "digits": str.isdigit, "space": str.isspace,
        "letter": str.isalpha,
    }  # fmt: skip
    for name, holds in tests.items():
        count = sum(map(holds, value))
        if count:
            yield f"{'all' if count == len(value) else 'some'} {name}"
        if value and holds(value[0]):
            yield f"begins {name}"
        if len(value) > 1 and holds(value[-1]):
            yield f"ends {name}"
    if any(not letter.isalnum() and not letter.isspace() for letter in value):
        yield "signs"
    if "  " in value:
        yield "double space"
    if len(value) > 1:
        if value == value[::-1]:
            yield "palindrome"
        if len(set(value)) < len(value):
            yield "letters again"
        if any(one == other for one, other in pairwise(value)):
            yield "same beside"
        yield "odd length" if len(value) % 2 else "even length"
    words = value.split()
    if len(words) > 1 and len(set(words)) < len(words):
        yield "words again"


def _length(count: int) -> str:
    return f"length {count}" if count < _MANY else ("long" if count < 2 * _MANY else "very long")


def _of_items(value: Any, depth: int) -> Iterator[str]:
    yield _length(len(value))
    items = list(value.values() if isinstance(value, dict) else value)
    if len(items) > 1:
        plain = [repr(item) for item in items]
        if len(set(plain)) < len(plain):
            yield "items all the same" if len(set(plain)) == 1 else "items again"
        try:
            if items == sorted(items):
                yield "sorted"
            elif items == sorted(items, reverse=True):
                yield "sorted downwards"
            if items and items.index(max(items)) == 0:
                yield "greatest first"
            if items and items.index(min(items)) == len(items) - 1:
                yield "least last"
        except TypeError:
            pass
        if plain == plain[::-1]:
            yield "palindrome"
        yield "odd length" if len(items) % 2 else "even length"
    if depth:
        kinds = [set(_spots(item, depth - 1)) for item in items]
        for spot in sorted(set[str]().union(*kinds)):
            yield f"{'all' if all(spot in kind for kind in kinds) else 'some'} {spot}"


def _between(arguments: Sequence[Any]) -> Iterator[tuple[int, int, str]]:
    for one in range(len(arguments)):
        for other in range(one + 1, len(arguments)):
            first, second = arguments[one], arguments[other]
            try:
                if first == second:
                    yield one, other, "equal"
                elif isinstance(first, int | float) and isinstance(second, int | float):
                    yield one, other, "less" if first < second else "greater"
                    if second and first % second == 0:
                        yield one, other, "multiple"
                elif isinstance(first, list | tuple | str) and isinstance(second, int):
                    sized = cast("Sequence[Any]", first)
                    yield one, other, "length below" if len(sized) < second else "length reached"
                    if len(sized) == second:
                        yield one, other, "is the length"
                    if not isinstance(first, str):
                        yield one, other, "among" if second in sized else "not among"
                elif type(first) is type(second) and isinstance(first, list | tuple | str):
                    yield one, other, "longer" if len(first) > len(second) else "not longer"
                    yield one, other, "common" if set(map(repr, first)) & set(map(repr, second)) else "apart"
            except (TypeError, ValueError, OverflowError):
                continue


def _sort(answer: Any) -> str:
    """What kind of answer it is, in a word."""
    if answer is None or isinstance(answer, bool):
        return repr(answer)
    if isinstance(answer, int | float):
        return "negative" if answer < 0 else "zero" if answer == 0 else "positive"
    if isinstance(answer, str | list | tuple | set | dict):
        return type(cast("object", answer)).__name__ + (" of some" if answer else " of none")
    return "other"
