"""Which expected values a program can neither guess nor read, so that giving them shows that it is right.

A value is guessable if it is None, a truth value, empty, a number from -2 to 2, or the text of one of these.
It is shown if it is a constant of a sealed module, or a word of a name, a message or an f-string there,
because the code under test can read the module. A container tells something if it has an item that is neither
guessable nor shown. It also does if it does not stand in the module as a whole, and has three different items
that are not guessable, or eight that are not all the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

from whetstone.core.syntax import parsing
from whetstone.judge.values import NotInert, encode

GUESSED_NUMBERS = range(-2, 3)
_GUESSED_TEXTS = frozenset(
    {"", "true", "false", "none", "ellipsis", "[]", "{}", "()", *map(str, GUESSED_NUMBERS)}
)
# An order of so many different unusual items, or of so many items that are not all the same, is hidden.
_UNUSUAL, _SEVERAL = 3, 8
_WORD = re.compile(r"\w+(?:\.\d+)?")
_CONTAINERS = (list, tuple, set, frozenset, dict)
# Functions whose arguments are messages to people.
_MESSAGES = frozenset({"fail", "skip", "skipif", "xfail", "exit", "warn", "print", "subTest"})


class ShownValues:
    """The values that sealed modules show."""

    def __init__(self, modules: Iterable[str]) -> None:
        """Read the sources. The time is linear in their size, for displays of a bounded depth."""
        with parsing():
            trees = [ast.parse(source) for source in modules]
        self._values = {_key(value) for tree in trees for value in _literals(tree)}
        self._text = "\n".join(text for tree in trees for text in _messages(tree))
        self._words = set(_WORD.findall(self._text))
        self._words.update(part for word in list(self._words) for part in word.split("_"))

    def leaves_hidden(self, value: Any) -> bool:
        """Return whether a value that a program gives shows that it computes it."""
        if not isinstance(value, _CONTAINERS):
            return self._hides(value)
        atoms = list(_atoms(value))
        different = {_key(atom): atom for atom in atoms}
        unusual = sum(1 for atom in different.values() if not _is_guessable(atom))
        arranged = unusual >= _UNUSUAL or (len(different) > 1 and len(atoms) >= _SEVERAL)
        return any(map(self._hides, atoms)) or (arranged and _key(value) not in self._values)

    def _hides(self, atom: Any) -> bool:
        if _is_guessable(atom) or _key(atom) in self._values:
            return False
        text = _text_of(atom)
        return text not in self._words and (text.isalnum() or text not in self._text)


def _is_guessable(atom: Any) -> bool:
    if isinstance(atom, int | float | complex):
        return abs(atom) <= GUESSED_NUMBERS[-1]
    return atom is None or _text_of(atom).lower() in _GUESSED_TEXTS


def _text_of(atom: Any) -> str:
    if isinstance(atom, bytes | bytearray):
        return atom.decode("latin-1").strip()
    try:
        return str(atom).strip()
    except ValueError:  # an integer with very many digits
        return repr(_key(atom))


def _literals(tree: ast.AST) -> Iterator[Any]:
    """Yield the constants, and the containers that are written out."""
    for node in ast.walk(tree):
        try:
            yield ast.literal_eval(cast("ast.expr", node))
        except (ValueError, TypeError, MemoryError, RecursionError):
            continue


def _messages(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions and classes, the texts of messages, and the fixed parts of f-strings."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
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


def _atoms(value: Any) -> Iterator[Any]:
    """Yield what is in a container at any depth, or a value that is none."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += cast("dict[Any, Any]", item).values()
        if isinstance(item, _CONTAINERS):
            waiting += item
        else:
            yield item


def _key(value: Any) -> bytes:
    """Return bytes that are equal for values that can replace each other: lists and tuples, whole numbers."""
    if isinstance(value, dict):
        items = sorted(_key(pair) for pair in cast("dict[Any, Any]", value).items())
        return b"{%b}" % b",".join(items)
    if isinstance(value, list | tuple):
        return b"(%b)" % b",".join(map(_key, cast("list[Any]", value)))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return encode(value)
    except NotInert:
        return repr(value).encode()
