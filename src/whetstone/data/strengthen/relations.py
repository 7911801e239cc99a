"""What holds between the arguments of all inputs that are there, and has to hold for new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, cast

from msgspec import Struct

# Inputs that show a relation, two unless it is here: what holds often by chance needs more of them.
_FEWEST = {"is not greater": 5, "bounds all": 3, "is within the length": 3, "is an index": 3}

_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "same length": lambda one, other: _sized(one) and _sized(other) and len(one) == len(other),
    "is the length": lambda one, other: _whole(one) and _sized(other) and one == len(other),
    "is an index": lambda one, other: _whole(one) and _sized(other) and 0 <= one < len(other),
    "is within the length": lambda one, other: _whole(one) and _sized(other) and 0 < one <= len(other),
    "is not greater": lambda one, other: _number(one) and _number(other) and one <= other,
    "bounds all": lambda one, other: _whole(one) and bool(_flat(other)) and one >= max(_flat(other)),
    "is among": lambda one, other: isinstance(other, list | tuple | set) and one in cast("list[Any]", other),
    "same": lambda one, other: type(one) is type(other) and one == other,
}
_STRONGER = {"is an index": ("is within the length",)}


class Relation(Struct, frozen=True):
    """Between the arguments at two places."""

    name: str
    one: int
    other: int


def relations(inputs: Sequence[Sequence[Any]]) -> list[Relation]:
    """What holds in every input, of which each has as many arguments."""
    if len({len(arguments) for arguments in inputs}) != 1:
        return []
    found: list[Relation] = []
    for one, other in permutations(range(len(inputs[0])), 2):
        if {_is_pair(arguments, one, other) for arguments in inputs} == {False}:
            continue
        for name, holds in _HOLDS.items():
            implied = any(
                r for r in found if (r.one, r.other) == (one, other) and name in _STRONGER.get(r.name, ())
            )
            symmetric = name in ("same length", "same") and one > other
            if len(inputs) < _FEWEST.get(name, 2) or implied or symmetric:
                continue
            if all(_try(holds, a[one], a[other]) for a in inputs):
                found.append(Relation(name, one, other))
    return found


def kept(found: Sequence[Relation], arguments: Sequence[Any]) -> bool:
    """Whether all relations hold in a new input."""
    return all(_try(_HOLDS[r.name], arguments[r.one], arguments[r.other]) for r in found)


def mended(found: Sequence[Relation], arguments: list[Any]) -> list[Any]:
    """The input with what can be mended plainly: lengths evened, numbers brought within them."""
    made = list(arguments)
    for relation in found:
        one, other = made[relation.one], made[relation.other]
        if _try(_HOLDS[relation.name], one, other):
            continue
        match relation.name:
            case "same length" if _sized(one) and _sized(other) and len(one):
                if isinstance(other, list | tuple | str) and len(other):
                    times = len(one) // len(other) + 1
                    made[relation.other] = (other * times)[: len(one)]
            case "is the length" if _sized(other):
                made[relation.one] = len(other)
            case "is an index" | "is within the length" if _sized(other) and len(other) and _whole(one):
                made[relation.one] = one % len(other) + (relation.name != "is an index")
            case "is not greater" if _number(one) and _number(other):
                made[relation.one], made[relation.other] = other, one
            case "bounds all" if _whole(one) and one > 0:
                made[relation.other] = _within(other, one)
            case "same":
                made[relation.other] = one
            case _:
                pass
    return made


def _is_pair(arguments: Sequence[Any], one: int, other: int) -> bool:
    """Something that a relation could say anything about."""
    plain = (bool, type(None))
    return not isinstance(arguments[one], plain) and not isinstance(arguments[other], plain)


def _try(holds: Callable[[Any, Any], bool], one: Any, other: Any) -> bool:
    try:
        return holds(one, other)
    except TypeError:
        return False


def _sized(value: Any) -> bool:
    return isinstance(value, list | tuple | str | dict | set)


def _flat(value: Any) -> list[int]:
    """All integers in a list and in what it holds; none for what is no list."""
    if not isinstance(value, list | tuple):
        return []
    found: list[int] = []
    for item in cast("list[Any]", value):
        found += [item] if _whole(item) else _flat(item)
    return found


def _within(value: Any, most: int) -> Any:
    """The same with every integer brought to ``most`` or below, as remainders do."""
    if isinstance(value, list | tuple):
        made = [_within(item, most) for item in cast("list[Any]", value)]
        return made if isinstance(value, list) else tuple(made)
    return (value - 1) % most + 1 if _whole(value) and value > most else value


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
