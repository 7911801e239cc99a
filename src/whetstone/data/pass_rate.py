"""How often a given model solves a problem: ``meta.pass_rate``, and what is kept by it.

A group of replies that are all right or all wrong has no signal for policy gradients with a group baseline,
so a problem is worth training on when the model solves it in 1 to n - 1 of n replies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.data.decisions import Decision
from whetstone.errors import UserError
from whetstone.problem import Problem

STEP = "difficulty"
KEY = "pass_rate"
"""In ``meta``; a source's own word for it, such as "introductory", stays in ``meta.difficulty``."""


class PassRate(Struct, frozen=True):
    """Of ``n`` judged replies of a model ``passed`` were right. One without a verdict is not in ``n``."""

    model: str
    n: int
    passed: int


class Keep(Struct, frozen=True):
    """From how many to how many right replies of ``of`` a problem is kept."""

    low: int
    high: int
    of: int

    def holds(self, rate: PassRate) -> bool:
        """Whether the share of right replies is within the bounds, also of fewer judged ones than ``of``."""
        return self.low * rate.n <= rate.passed * self.of <= self.high * rate.n


def parse_keep(text: str | None, n: int) -> Keep:
    """Bounds such as ``1..7`` (or ``1..n-1``, the default) of ``n`` replies. Raises UserError."""
    found = re.fullmatch(r"(\d+)\.\.(n(?:-(\d+))?|\d+)", text or "1..n-1")
    if found is None:
        raise UserError(f"--keep is {text!r}; give bounds such as 1..{max(n - 1, 1)} or 1..n-1")
    low = int(found[1])
    high = n - int(found[3] or 0) if found[2].startswith("n") else int(found[2])
    if not 0 <= low <= high <= n:
        raise UserError(f"--keep {text or '1..n-1'}: no count is in it for n = {n}; sample more with --n")
    return Keep(low, high, n)


def rate_of(problem: Problem) -> PassRate | None:
    """The pass rate that stands in a problem's ``meta``; None where there is none."""
    try:
        return msgspec.convert(problem.meta.get(KEY), PassRate)
    except msgspec.ValidationError:
        return None


def keep_by_pass_rate(
    rates: Mapping[str, PassRate], keep: Keep
) -> Callable[[Iterator[Problem]], Iterator[Problem | Decision]]:
    """The step that writes pass rates by problem id into ``meta`` and drops what is outside ``keep``.

    A problem of which no reply was judged is kept and marked: a judge that failed says nothing of it.
    """

    def step(problems: Iterator[Problem]) -> Iterator[Problem | Decision]:
        for problem in problems:
            rate = rates.get(problem.id)
            if rate is None or rate.n == 0:
                yield Decision(problem.id, STEP, "mark", "not_measured", "no judged reply", problem.source)
                yield problem
                continue
            if keep.holds(rate):
                meta: dict[str, Any] = {**problem.meta, KEY: msgspec.to_builtins(rate)}
                yield msgspec.structs.replace(problem, meta=meta)
                continue
            reason = "pass_rate_outside"
            if rate.passed in (0, rate.n):
                reason = "never_solved" if rate.passed == 0 else "always_solved"
            detail = (
                f"{rate.model} solved it in {rate.passed} of {rate.n} replies; {keep.low} to {keep.high} stay"
            )
            yield Decision(problem.id, STEP, "drop", reason, detail, problem.source)

    return step
