"""Which expected values a program can neither guess nor read, so that giving them shows that it is right.

A value is guessable if it is None, a truth value, empty, a number from -2 to 2, or the text of one of these.
It is shown if it is a constant of a sealed module, or a word of a name, a message or an f-string there,
because the code under test can read the module. A number with a tolerance is also guessable or shown if such
a number is near it. A container tells something if it has an item that is neither guessable nor shown. It
also does if it does not stand in the module as a whole, and has three different items that are not guessable,
or eight that are not all the same. The arguments of a call stand there as a whole, in any kind of container.
A date or a duration is a container of its numbers.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from whetstone.core.syntax import parsing
from whetstone.judge.repository.assertions import Tolerance
from whetstone.judge.values import NotInert, encode

GUESSED_NUMBERS = range(-2, 3)
_GUESSED_TEXTS = frozenset(
    {"", "true", "false", "none", "ellipsis", "[]", "{}", "()", *map(str, GUESSED_NUMBERS)}
)
# An order of so many different unusual items, or of so many items that are not all the same, is hidden.
_UNUSUAL, _SEVERAL = 3, 8
_WORD = re.compile(r"\w+(?:\.\d+)?")
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_NUMBERS = (int, float, complex, Decimal, Fraction)
# Types whose text shows the numbers that they consist of. A datetime is a date.
_OF_NUMBERS = (date, time, timedelta, range)
# Functions whose arguments are messages to people.
_MESSAGES = frozenset({"fail", "skip", "skipif", "xfail", "exit", "warn", "print", "subTest"})


class ShownValues:
    """The values that sealed modules show."""

    def __init__(self, modules: Iterable[str]) -> None:
        """Read the sources. The time is linear in their size, for displays of a bounded depth."""
        with parsing():
            trees = [ast.parse(source) for source in modules]
        literals = [value for tree in trees for value in _literals(tree)]
        self._values = set(map(_key, literals))
        self._values.update(_unordered(value) for value in literals if isinstance(value, list | tuple))
        self._numbers = sorted({*GUESSED_NUMBERS, *filter(_is_real, literals)})
        self._text = "\n".join(text for tree in trees for text in _messages(tree))
        self._words = set(_WORD.findall(self._text))
        self._words.update(part for word in list(self._words) for part in word.split("_"))

    def leaves_hidden(self, value: Any, tolerance: Tolerance | None = None) -> bool:
        """Return whether a value that a program gives, within a tolerance, shows that it computes it."""
        value = _unfolded(value)
        if not isinstance(value, _CONTAINERS):
            return self._hides(value, tolerance)
        atoms = list(_atoms(value))
        different = {_key(atom): atom for atom in atoms}
        unusual = sum(1 for atom in different.values() if not _is_guessable(atom))
        arranged = unusual >= _UNUSUAL or (len(different) > 1 and len(atoms) >= _SEVERAL)
        # A container near this one may stand there, so a tolerance hides no order.
        if arranged and tolerance is None and _key(value) not in self._values:
            return True
        return any(self._hides(atom, tolerance) for atom in atoms)

    def _hides(self, atom: Any, tolerance: Tolerance | None) -> bool:
        if _is_guessable(atom) or _key(atom) in self._values:
            return False
        text = _text_of(atom)
        if isinstance(atom, Decimal) and _key(text) in self._values:  # modules write it as a text
            return False
        if tolerance is not None and isinstance(atom, _NUMBERS):
            number: Any = atom
            if not _is_real(number):
                return False
            # Rounding must not make a number that is accepted look far.
            reach = max(tolerance[0] * abs(number), tolerance[1]) * (1 + 1e-9)
            place = bisect_left(self._numbers, number - reach)
            return place == len(self._numbers) or self._numbers[place] > number + reach
        return text not in self._words and (text.isalnum() or text not in self._text)


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e300  # sums of larger ones may overflow


def _is_guessable(atom: Any) -> bool:
    if isinstance(atom, _NUMBERS):
        try:
            return not abs(atom) > GUESSED_NUMBERS[-1]
        except ArithmeticError:  # a Decimal that is no number
            return True
    return atom is None or _text_of(atom).lower() in _GUESSED_TEXTS


def _text_of(atom: Any) -> str:
    if isinstance(atom, bytes | bytearray):
        return atom.decode("latin-1").strip()
    try:
        return str(atom).strip()
    except ValueError:  # an integer with very many digits
        return repr(_key(atom))


def _literals(tree: ast.AST) -> Iterator[Any]:
    """Yield the constants, the containers that are written out, and the arguments of calls."""
    for node in ast.walk(tree):
        with suppress(ValueError, TypeError, ArithmeticError, MemoryError, RecursionError):
            match node:
                case ast.Call(_, arguments, keywords):
                    yield [ast.literal_eval(each) for each in arguments]
                    yield {each.arg: ast.literal_eval(each.value) for each in keywords}
                case _:
                    yield ast.literal_eval(cast("ast.expr", node))


def _messages(tree: ast.AST) -> Iterator[str]:
    """Yield all names, the texts of messages, and the fixed parts of f-strings."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name) | ast.alias(name):
                yield name
            case ast.Name(name) | ast.Attribute(_, name) | ast.arg(name) | ast.keyword(str() as name):
                yield name
            case ast.JoinedStr() | ast.Raise():
                yield from _texts_in(node)
            case ast.Call(ast.Attribute(_, name) | ast.Name(name)) if name in _MESSAGES:
                yield from _texts_in(node)
            case _:
                pass


def _texts_in(node: ast.AST) -> Iterator[str]:
    constants = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return (value for value in constants if isinstance(value, str))


def _unfolded(value: Any) -> Any:
    """Return the numbers of a date, a duration or a range, without zeros at the end; others as they are."""
    if not isinstance(value, _OF_NUMBERS):
        return value
    numbers = list(map(int, re.findall(r"\d+", str(cast("object", value)))))
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _atoms(value: Any) -> Iterator[Any]:
    """Yield what is in a container at any depth, or a value that is none."""
    waiting = [value]
    while waiting:
        item = _unfolded(waiting.pop())
        if isinstance(item, dict):
            waiting += cast("dict[Any, Any]", item).values()
        if isinstance(item, _CONTAINERS):
            waiting += item
        else:
            yield item


def _unordered(items: Iterable[Any]) -> bytes:
    return b"{%b}" % b",".join(sorted(map(_key, items)))


def _key(value: Any) -> bytes:
    """Return bytes that are equal for values that can replace each other: lists and tuples, equal numbers."""
    value = _unfolded(value)
    if isinstance(value, dict):
        return _unordered(cast("dict[Any, Any]", value).items())
    if isinstance(value, set | frozenset):
        return _unordered(cast("set[Any]", value))
    if isinstance(value, list | tuple | deque):
        return b"(%b)" % b",".join(map(_key, cast("list[Any]", value)))
    try:
        if isinstance(value, _NUMBERS):
            return b"#%d" % hash(value)  # the same for equal numbers of all types
        return encode(bytes(value) if isinstance(value, bytearray) else value)
    except (NotInert, TypeError):
        return repr(value).encode()
