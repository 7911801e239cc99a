"""Test cases as plain atoms of input and output, independent of their notation.

``assert f([3, 1], "ab") == 4`` and a program that reads ``2``, ``3 1`` and ``ab`` and prints ``4`` have the
same case. An input has several forms, one of which must match: its atoms in order, with lists after their
lengths, or with the arguments in another order. The information of a case, in bits, shows how unlikely it is
by chance: ``f(2) == 4`` is in many problems, and is weak evidence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from math import log2
from typing import Any, cast

from msgspec import Struct

from whetstone.core.asserted_call import asserted_expressions, is_named, read_asserted_call
from whetstone.core.problem import AssertTests, CallTests, InteractiveTests, Problem
from whetstone.core.syntax import parsed
from whetstone.data.similarity.words import hash64

# Cases of a problem that are compared.
MAX_CASES = 200

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_LITERAL_STARTS = ("[", "(", "{", '"', "'")
_SYNONYMS = {"yes": "true", "no": "false", "null": "none"}
# One large number or long word must not be enough evidence alone.
_BITS_CAP = 24.0
_MAX_TEXT = 4096
_CONVERSIONS = ("set", "sorted", "list", "tuple", "frozenset", "Counter", "round", "str", "float", "int")


class FlatCase(Struct, frozen=True):
    """``wholes`` are hashes of the forms of the input, each with the output; ``bits`` the information of the
    case."""

    wholes: tuple[int, ...]
    bits: float


def read_cases(problem: Problem) -> list[FlatCase]:
    """Return the first cases of a problem whose arguments and results are plain values."""
    try:
        return _cases(problem)
    except RecursionError:
        # Deeply nested lists.
        return []


def _cases(problem: Problem) -> list[FlatCase]:
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return [_case(_forms(args), _atoms(expected)) for args, expected in _assert_pairs(tests)]
    if isinstance(tests, CallTests):
        cases = tests.cases[:MAX_CASES]
        return [_case(_forms([*c.args, *c.kwargs.values()]), _atoms(c.expected)) for c in cases]
    if isinstance(tests, InteractiveTests):
        return []
    return [_case([_text_atoms(c.input)], _text_atoms(c.output)) for c in tests.cases[:MAX_CASES]]


def _case(forms: list[list[str]], output: list[str]) -> FlatCase:
    printed = " ".join(_SYNONYMS.get(atom, atom) for atom in output)
    wholes = {hash64(f"{' '.join(form)}\0{printed}") for form in forms}
    return FlatCase(tuple(sorted(wholes)), _bits(forms[0]) + _bits(output))


def _forms(args: list[Any]) -> list[list[str]]:
    """Return the orders in which an input may list the arguments."""
    plain = [_atoms(value) for value in args]
    counted = [atom for value in args for atom in _counted(value)]
    lines = [atom for value in args for atom in _counted(value, once=True)]
    sized = [atom for value in args for atom in _sized(value)]
    ordered = [atom for atoms in sorted(plain) for atom in atoms]
    return [[atom for atoms in plain for atom in atoms], counted, lines, sized, ordered]


def _atoms(value: Any) -> list[str]:
    """Return the atoms of a value in order; those of sets and dicts are sorted."""
    if isinstance(value, list | tuple):
        return [atom for item in cast("list[Any]", value) for atom in _atoms(item)]
    if isinstance(value, set | frozenset):
        return [a for item in sorted(map(_atoms, cast("set[Any]", value))) for a in item]
    if isinstance(value, dict):
        pairs = sorted((_atoms(k), _atoms(v)) for k, v in cast("dict[Any, Any]", value).items())
        return [atom for key, item in pairs for atom in (*key, *item)]
    if isinstance(value, str):
        return [_atom(word) for word in value[:_MAX_TEXT].split()]
    if isinstance(value, bool) or value is None:
        return [str(value).casefold()]
    return [_number(value)] if isinstance(value, int | float) else [str(value)[:_MAX_TEXT]]


def _counted(value: Any, *, once: bool = False) -> list[str]:
    """Return the atoms, with every list after its length; for ``once``, only the outermost lists."""
    if not isinstance(value, list | tuple):
        return _atoms(value)
    items = cast("list[Any]", value)
    return [str(len(items)), *(atom for item in items for atom in (_atoms(item) if once else _counted(item)))]


def _sized(value: Any) -> list[str]:
    """Return the atoms, with a list after its length, and a table after its rows and columns."""
    if not isinstance(value, list | tuple):
        return _atoms(value)
    items = cast("list[Any]", value)
    first = items[0] if items else None
    columns = [str(len(cast("list[Any]", first)))] if isinstance(first, list | tuple) else []
    return [str(len(items)), *columns, *_atoms(items)]


def _text_atoms(text: str) -> list[str]:
    """Return the atoms of a program's input or output: of lines that are literals, those of the values."""
    atoms: list[str] = []
    for line in text[:_MAX_TEXT].splitlines():
        stripped = line.strip()
        value = _literal(stripped) if stripped.startswith(_LITERAL_STARTS) else None
        if value is not None:
            atoms += _atoms(value[0])
        else:
            words = stripped.split()
            # Some inputs separate numbers by commas. In other text a comma belongs to the word.
            if "," in stripped:
                parts = [part for word in words for part in word.split(",") if part]
                words = parts if all(_NUMBER.fullmatch(part) for part in parts) else words
            atoms += [_atom(word) for word in words]
    return atoms


def _literal(text: str) -> tuple[Any] | None:
    tree = parsed(text)
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return None
    try:
        return (ast.literal_eval(tree.body[0].value),)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _atom(word: str) -> str:
    # A longer number overflows a float.
    if _NUMBER.fullmatch(word) and len(word) < 300:
        return _number(float(word)) if any(sign in word for sign in ".eE") else str(int(word))
    return word.casefold()


def _number(value: int | float) -> str:
    """Return the text of a number: whole numbers exactly, others with six digits."""
    if isinstance(value, int):
        # Python refuses the decimal digits of very large numbers, and computes them in quadratic time.
        return str(value) if value.bit_length() < 1000 else hex(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _bits(atoms: list[str]) -> float:
    """Return the approximate information of the atoms in bits. Small or consecutive numbers have little."""
    total, last = 0.0, None
    # A few dozen atoms are already more evidence than any rule requires.
    for atom in atoms[:64]:
        if _NUMBER.fullmatch(atom):
            number = float(atom)
            consecutive = last is not None and number - last in (0.0, 1.0)
            total += 1.0 if consecutive else min(1.0 + log2(1.0 + abs(number)), _BITS_CAP)
            last = number
        else:
            total += 1.0 if atom in ("true", "false", "none") else min(3.0 * len(set(atom)), _BITS_CAP)
    return total


def _assert_pairs(tests: AssertTests) -> Iterator[tuple[list[Any], Any]]:
    """Yield arguments and results of asserts about a call with plain values."""
    tree = parsed(tests.check or tests.unittest or "\n".join(tests.asserts or []))
    conditions = asserted_expressions(tree) if tree else ()
    found = (read_asserted_call(test, _plain_value, _CONVERSIONS) for test in conditions)
    cases = (case for case in found if case is not None and case.relation != "unequal")
    for case in islice(cases, MAX_CASES):
        yield [*case.args, *case.kwargs.values()], case.expected


def _plain_value(node: ast.expr) -> Any:
    """Return the value of a literal, also of one that is written as ``set((4, 5))``."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and is_named(node.func, _CONVERSIONS):
        value = _plain_value(node.args[0])
        return set(value) if is_named(node.func, ("set", "frozenset")) else value
    return ast.literal_eval(node)
