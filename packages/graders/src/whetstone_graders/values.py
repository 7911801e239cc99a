"""Returned values against expected ones by the rules of LiveCodeBench and EvalPlus.

Both sides are values that ``inert`` read or ``literal`` built: exact builtin types, so that no method of
a program runs in an ``==`` here. That, and what happens to objects without a plain form, is where these rules
are on purpose stricter than their models, which compare inside the program's own process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from whetstone.judge.answers.comparisons import UNPLAIN
from whetstone.judge.answers.inert import MAPPING, Inert, key_of
from whetstone_graders.allclose import allclose

RELATIVE_TOLERANCE = 1e-7
FLOAT_TOLERANCE = 1e-6


def lcb_equal(value: object, expected: object, args: Sequence[Any]) -> bool:
    """LiveCodeBench at 28fef95, ``testing_util.grade_call_based``.

    Python's ``==``, after a tuple was made a list: the outermost one alone. So floats have no tolerance, nan
    is never right, and a list of tuples is no list of lists.
    """
    return _same(list(cast("tuple[object]", value)) if isinstance(value, tuple) else value, expected)


class EvalplusValues:
    """EvalPlus 0.3.1 (and 26d6d00), ``evalplus.eval.unsafe_execute``, over the calls of one task in order.

    Python's ``==``, so that a list is no tuple; or, once a tolerance is in force, a value of the same type
    within it, as ``numpy.allclose`` says. It is in force from the start where the task has an ``atol``, and
    otherwise from the first expected float (or list or tuple of floats alone) on, for whatever comes
    after it: then integers from 10**7 on have a tolerance too. ``oracle`` names the rule of a task that has
    one of its own.
    """

    def __init__(self, atol: float, oracle: str | None) -> None:
        self._atol = atol
        self._oracle = oracle

    def __call__(self, value: object, expected: object, args: Sequence[Any]) -> bool:
        """Whether ``value`` counts as right. What raises an exception there is refused here."""
        if value is UNPLAIN:  # nothing is known of it but that it is not None
            return self._oracle == "not_none" and expected is True
        try:
            return self._decide(value, expected, args)
        except (ArithmeticError, TypeError, ValueError, RecursionError):
            return False

    def _decide(self, value: Any, expected: Any, args: Sequence[Any]) -> bool:
        if self._oracle == "polynomial_root":
            return abs(_polynomial(args[0], value)) <= self._atol
        exact = _same(value, expected)
        if self._oracle is not None:
            exact = _SPECIAL[self._oracle](exact, value, expected, args, self._atol)
        if self._atol == 0 and _is_floats(expected):
            self._atol = FLOAT_TOLERANCE
        if exact or self._atol == 0:
            return exact
        if type(value) is not type(expected):
            return False
        if isinstance(expected, list | tuple) and len(value) != len(expected):
            return False
        return allclose(value, expected, relative=RELATIVE_TOLERANCE, absolute=self._atol)


def _same(left: object, right: object) -> bool:
    try:
        return bool(left == right)
    except (ArithmeticError, RecursionError):  # a signalling decimal nan, deep nesting
        return False


def _is_floats(expected: object) -> bool:
    if isinstance(expected, list | tuple) and expected:
        return all(isinstance(item, float) for item in cast("list[object]", expected))
    return isinstance(expected, float)


def _pyramid_surface(base: Any, height: Any) -> int:
    """Of a square pyramid, rounded; the height is from the base to the apex (Mbpp/581)."""
    slant = math.sqrt((base / 2) ** 2 + height**2)
    return round(base**2 + 4 * (base * slant) / 2)


def _digit_distance(left: Any, right: Any) -> int:
    """The sum of the differences between digits at the same place, from the right (Mbpp/558)."""
    words = str(left), str(right)
    width = max(map(len, words))
    return sum(abs(int(a) - int(b)) for a, b in zip(*(word.zfill(width) for word in words), strict=True))


def _polynomial(coefficients: Any, x: Any) -> float:
    """The value at x; the coefficient of the lowest power comes first (HumanEval/32)."""
    return sum([coefficient * math.pow(x, power) for power, coefficient in enumerate(coefficients)])


def _same_set(value: Any, expected: Any) -> bool:
    """``set(value) == set(expected)``, without hashes of what a program chose."""
    items = value.items[:: 2 if value.kind == MAPPING else 1] if isinstance(value, Inert) else value
    wanted = set(map(key_of, expected))
    most = max(map(len, wanted), default=0)
    found: set[str | bytes] = set()
    for item in items:
        key = key_of(item, most)
        if key not in wanted:
            return False
        found.add(key)
    return found == wanted


def _not_none(value: Any, expected: Any) -> bool:
    return value == expected if isinstance(value, bool) else expected == (value is not None)


_Decide = Callable[[bool, Any, Any, Sequence[Any], float], bool]
_SPECIAL: dict[str, _Decide] = {
    "anything": lambda exact, value, expected, args, atol: True,
    "zero_too": lambda exact, value, expected, args, atol: exact or value == 0,
    "pyramid_surface": lambda exact, value, expected, args, atol: (
        exact or abs(value - _pyramid_surface(*args)) <= atol
    ),
    "digit_distance": lambda exact, value, expected, args, atol: exact or value == _digit_distance(*args),
    "same_set": lambda exact, value, expected, args, atol: _same_set(value, expected),
    "not_none": lambda exact, value, expected, args, atol: _not_none(value, expected),
}
ORACLES = (*_SPECIAL, "polynomial_root")
"""The special rules that single tasks of HumanEval+ and MBPP+ have."""
