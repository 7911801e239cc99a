"""Comparisons that a judge is given beyond its own: the rules of other graders.

A problem names one in ``Compare.mode``, as ``grader:NAME``. What stands behind the name is code, so a problem
cannot bring it: whoever makes the judge says which modules hold comparisons (``Judge(comparisons=…)``), and
its workers import these and no others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whetstone.errors import UserError, did_you_mean
from whetstone.judge.answers.equality import equal
from whetstone.problem import GRADER_PREFIX, CallTests, Compare, Problem

UNPLAIN = object()
"""Stands for a returned object that has no plain form: all that is known of it is that it is not None."""


class ValueRule(Protocol):
    """Decides the values of one case, in order; ``args`` are the arguments of the call that gave one."""

    def __call__(self, value: object, expected: object, args: Sequence[Any]) -> bool: ...


@dataclass(frozen=True)
class Comparison:
    """How a grader compares, for the kinds of test that it has a rule for.

    ``texts`` holds printed text against expected text, and gives a reason where they differ. ``values``
    makes the rule for one case's returned values, which may remember what it saw; a value may be ``UNPLAIN``.
    ``oracles`` are the special rules for tasks that it knows.
    """

    texts: Callable[[bytes, bytes, Compare], tuple[bool, str]] | None = None
    values: Callable[[Compare], ValueRule] | None = None
    oracles: tuple[str, ...] = ()


_ADDED: dict[str, Comparison] = {}


def add_comparisons(modules: Iterable[str]) -> frozenset[str]:
    """Make the comparisons of these modules known in this process; returns the modes that name them.

    A module holds them in ``COMPARISONS``, by mode. Raises UserError for one that cannot be imported.
    """
    modes: set[str] = set()
    for name in modules:
        try:
            found: Mapping[str, Comparison] = importlib.import_module(name).COMPARISONS
        except (ImportError, AttributeError) as error:
            raise UserError(
                f"comparisons: {error}; give names of modules that hold a mapping `COMPARISONS`, which the "
                "judge's workers can import as well"
            ) from None
        _ADDED.update(found)
        modes |= found.keys()
    return frozenset(modes)


def check_comparison(problem: Problem, modes: frozenset[str]) -> None:
    """Raise UserError for a comparison that is not among ``modes``, or is for other tests than these."""
    mode = problem.compare.mode
    if not mode.startswith(GRADER_PREFIX):
        return
    if mode not in modes:
        known = f"it has {', '.join(sorted(modes))}" if modes else "it was given none"
        raise UserError(
            f"problem {problem.id!r} is compared by `{mode}`, which this judge does not have: {known}"
            f"{did_you_mean(mode, modes)}. Make it with Judge(comparisons=…); those of published graders are "
            "in `whetstone.graders.comparisons`"
        )
    oracle, oracles = problem.compare.oracle, _ADDED[mode].oracles
    if oracle is not None and oracle not in oracles:
        hint = did_you_mean(oracle, oracles)
        raise UserError(f"problem {problem.id!r}: the comparison `{mode}` has no oracle `{oracle}`{hint}")
    if _ADDED[mode].texts is None and not isinstance(problem.tests, CallTests):
        raise UserError(f"problem {problem.id!r}: the comparison `{mode}` is for `call` tests only")


def text_rule(compare: Compare) -> Callable[[bytes, bytes, Compare], tuple[bool, str]] | None:
    """The added rule for printed text that ``compare`` names; None where it names none. Raises UserError."""
    added = _added(compare)
    return None if added is None else added.texts


def value_rule(compare: Compare) -> ValueRule:
    """The rule of a problem's ``call`` tests; a new one for every case. Raises UserError."""
    added = _added(compare)
    return _ours if added is None or added.values is None else added.values(compare)


def _added(compare: Compare) -> Comparison | None:
    if not compare.mode.startswith(GRADER_PREFIX):
        return None
    if compare.mode not in _ADDED:
        raise UserError(f"the comparison `{compare.mode}` is not known here: give a Judge its module first")
    return _ADDED[compare.mode]


def _ours(value: object, expected: object, args: Sequence[Any]) -> bool:
    return value is not UNPLAIN and equal(value, expected)
