"""Inputs with several right answers, such as two pairs of numbers that are equally close.

If no given input has another answer with one of its lists reversed, or sorted, this change does not matter.
An input on which it does matter has a tie, which a right program may resolve in another way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

from whetstone_curation.strengthen.forms import LabelledInput
from whetstone_curation.strengthen.invariants import ordered

# Given inputs that show that the order of a list does not matter.
_SEVERAL = 3

Label = Callable[[list[list[Any]]], list[LabelledInput]]
Order = Callable[[list[Any]], list[Any]]
FreeOrder = tuple[int, Order]
"""The number of an argument, and a change of its order that changes no answer."""


def free_orders(given: Sequence[LabelledInput], label: Label) -> list[FreeOrder]:
    """Return the changes of order that change the answer of no given input.

    given: the given inputs with their answers. label: returns inputs with the answers of the reference.
    """
    found: list[FreeOrder] = []
    width = len(given[0].arguments) if given else 0
    for at, order in itertools.product(range(width), (_reversed, ordered)):
        changes = [each for each in _order_changes(given, at, order, label) if each is not None]
        if len(changes) >= _SEVERAL and not any(changes):
            found.append((at, order))
    return found


def without_ties(
    labelled: Sequence[LabelledInput], orders: Sequence[FreeOrder], label: Label
) -> list[LabelledInput]:
    """Return the inputs whose answer none of ``orders`` changes. label: as for ``free_orders``."""
    kept = list(labelled)
    for at, order in orders:
        changes = _order_changes(kept, at, order, label)
        kept = [one for one, change in zip(kept, changes, strict=True) if not change]
    return kept


def _order_changes(inputs: Sequence[LabelledInput], at: int, order: Order, label: Label) -> list[bool | None]:
    """Return for each input whether its answer changes if argument ``at`` gets another order. None: it is no
    list, it already has this order, or the reference has no answer then."""
    changed: dict[int, list[Any]] = {}
    for number, one in enumerate(inputs):
        value = one.arguments[at]
        if isinstance(value, list) and (other := order(cast("list[Any]", value))) != value:
            changed[number] = [*one.arguments[:at], other, *one.arguments[at + 1 :]]
    answers = {repr(each.arguments): _rounded(each.answer) for each in label(list(changed.values()))}
    changes: list[bool | None] = [None] * len(inputs)
    for number, arguments in changed.items():
        if (text := repr(arguments)) in answers:
            changes[number] = answers[text] != _rounded(inputs[number].answer)
    return changes


def _reversed(items: list[Any]) -> list[Any]:
    return items[::-1]


def _rounded(value: Any) -> Any:
    """Return an answer with rounded numbers: the order of a sum changes its last digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in cast("Sequence[Any]", value)]
    return value
