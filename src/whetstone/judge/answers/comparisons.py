"""Additional comparisons of a judge: the rules of other graders.

A problem names one in ``Compare.mode``, as ``grader:NAME``. A comparison is code, so a problem cannot contain
it. The creator of the judge names the modules that contain comparisons (``Judge(comparisons=…)``). The
workers import these modules and no others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.optional_packages import install_command
from whetstone.core.problem import GRADER_PREFIX, CallTests, Compare, Problem
from whetstone.judge.answers.any_order import ValueComparison
from whetstone.judge.answers.equality import equal

# Stands for a returned object without a plain form. It is known only that it is not None.
UNPLAIN = object()


class ValueRule(Protocol):
    """Compares the values of one case, in order; ``args`` are the arguments of the call that returned a
    value."""

    def __call__(self, value: object, expected: object, args: Sequence[Any]) -> bool: ...


@dataclass(frozen=True)
class Comparison:
    """How a grader compares, for the kinds of test that it supports.

    texts: compares printed text with expected text; returns whether it is correct, and a reason if not.
    values: creates the rule for the returned values of one case. The rule may have a state; a value may be
        ``UNPLAIN``.
    oracles: names of the grader's special rules for single tasks.
    """

    texts: Callable[[bytes, bytes, Compare], tuple[bool, str]] | None = None
    values: Callable[[Compare], ValueRule] | None = None
    oracles: tuple[str, ...] = ()


_ADDED: dict[str, Comparison] = {}


def add_comparisons(modules: Iterable[str]) -> frozenset[str]:
    """Load the comparisons of these modules in this process. Returns the modes that name them.

    A module has a mapping ``COMPARISONS`` from modes to comparisons. Raises UserError for a module that
    cannot be imported.
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
    """Raise UserError for a comparison that is not in ``modes``, or that is for another kind of test."""
    mode = problem.compare.mode
    if not mode.startswith(GRADER_PREFIX):
        return
    if mode not in modes:
        known = f"it has {', '.join(sorted(modes))}" if modes else "it has none"
        raise UserError(
            f"problem {problem.id!r} uses the comparison `{mode}`, which this judge does not have: {known}"
            f"{did_you_mean(mode, modes)}. Pass the module that defines it with Judge(comparisons=…); the "
            f"comparisons of published graders need the package whetstone-graders: "
            f"{install_command(package='whetstone-graders')}"
        )
    oracle, oracles = problem.compare.oracle, _ADDED[mode].oracles
    if oracle is not None and oracle not in oracles:
        hint = did_you_mean(oracle, oracles)
        raise UserError(f"problem {problem.id!r}: the comparison `{mode}` has no oracle `{oracle}`{hint}")
    if _ADDED[mode].texts is None and not isinstance(problem.tests, CallTests):
        raise UserError(f"problem {problem.id!r}: the comparison `{mode}` is for `call` tests only")


def text_rule(compare: Compare) -> Callable[[bytes, bytes, Compare], tuple[bool, str]] | None:
    """Return the added rule for printed text that ``compare`` names; None if it names none.

    Raises UserError.
    """
    added = _added_comparison(compare)
    return None if added is None else added.texts


def value_rule(compare: Compare) -> ValueRule:
    """Return the rule of a problem's ``call`` tests. Each case needs a new one. Raises UserError."""
    if compare.mode == "values":
        compared = ValueComparison(compare)
        return lambda value, expected, args: value is not UNPLAIN and compared(value, expected, args)
    added = _added_comparison(compare)
    return _default_rule if added is None or added.values is None else added.values(compare)


def same_value(value: object, expected: object, compare: Compare) -> bool:
    """Return whether two expected values are one answer, by the problem's comparison or the default one."""
    rule = _default_rule if compare.mode.startswith(GRADER_PREFIX) else value_rule(compare)
    return rule(value, expected, [])


def _added_comparison(compare: Compare) -> Comparison | None:
    if not compare.mode.startswith(GRADER_PREFIX):
        return None
    if compare.mode not in _ADDED:
        raise UserError(
            f"the comparison `{compare.mode}` is not loaded: pass its module with Judge(comparisons=…)"
        )
    return _ADDED[compare.mode]


def _default_rule(value: object, expected: object, args: Sequence[Any]) -> bool:
    return value is not UNPLAIN and equal(value, expected)
