"""The pass rate of a model on a problem (``meta.pass_rate``), and the selection by it.

A group of replies with equal rewards has no gradient under a group baseline. So a problem is worth training
on if the model solves it in 1 to n - 1 of n replies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Struct
from pydantic import Field, model_validator

from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.problem import Problem
from whetstone.core.settings import Count, MaxTokens, NonEmpty, Section, Temperature
from whetstone.data.decisions import ProblemDecision

STEP = "difficulty"
# The key in `meta`. The source's own difficulty, such as "introductory", stays in `meta.difficulty`.
KEY = "pass_rate"


class PassRate(Struct, frozen=True):
    """``passed`` of ``n`` judged replies of a model were right. Replies without a verdict are
    not in ``n``."""

    model: str
    n: int
    passed: int


class RateBounds(Section):
    """The pass rates that are kept, and an evaluation that has measured them, if any."""

    keep: Annotated[
        str | None,
        Field(pattern=r"^\d+\.\.(n(-\d+)?|\d+)$"),
        Flag("right replies with which a problem stays (default: 1..n-1)", "LO..HI"),
    ] = None
    from_eval: Annotated[
        NonEmpty | None,
        Flag("take the pass rates of a finished `whetstone eval --out DIR`; no reply is drawn", "DIR"),
    ] = None


class DifficultyStep(RateBounds):
    """Measure with a local model or an endpoint. Other options are those of evaluations.

    model: the folder, GGUF file or hub id of the model; with ``endpoint``, the name that it serves.
    endpoint: the address of an OpenAI-compatible server that writes the replies instead.
    n: replies to each problem; null is 8, and more replies tell rates apart that are closer.
    temperature: of the sampling, 0 is greedy; null is 0.8.
    max_tokens: the longest reply in tokens; null is 512.
    seed: of the replies; null is 0.
    """

    model: NonEmpty | None = None
    endpoint: NonEmpty | None = None
    n: Count | None = None
    temperature: Temperature | None = None
    max_tokens: MaxTokens | None = None
    seed: int | None = None

    @model_validator(mode="after")
    def _check_source(self) -> DifficultyStep:
        if self.from_eval is None and self.model is None and self.endpoint is None:
            raise ValueError("give `model`, `endpoint`, or `from_eval` with a finished evaluation")
        if self.from_eval is not None and (self.model or self.endpoint):
            raise ValueError("`from_eval` has measured pass rates; leave out model and endpoint")
        return self


class Keep(Struct, frozen=True):
    """The lowest and highest number of right replies, of ``of``, with which a problem is kept."""

    low: int
    high: int
    of: int

    def includes(self, rate: PassRate) -> bool:
        """Return whether the share of right replies is within the bounds, also for fewer judged replies."""
        return self.low * rate.n <= rate.passed * self.of <= self.high * rate.n


def parse_keep(text: str | None, n: int) -> Keep:
    """Parse bounds such as ``1..7`` (or ``1..n-1``, the default) of ``n`` replies. Raises UserError."""
    found = re.fullmatch(r"(\d+)\.\.(n(?:-(\d+))?|\d+)", text or "1..n-1")
    if found is None:
        raise UserError(f"--keep is {text!r}; give bounds such as 1..{max(n - 1, 1)} or 1..n-1")
    low = int(found[1])
    high = n - int(found[3] or 0) if found[2].startswith("n") else int(found[2])
    if not 0 <= low <= high <= n:
        raise UserError(f"--keep {text or '1..n-1'}: no count is within it for n = {n}; sample more with --n")
    return Keep(low, high, n)


def rate_of(problem: Problem) -> PassRate | None:
    """Return the pass rate in a problem's ``meta``; None if there is none."""
    try:
        return msgspec.convert(problem.meta.get(KEY), PassRate)
    except msgspec.ValidationError:
        return None


def keep_by_pass_rate(
    rates: Mapping[str, PassRate], keep: Keep
) -> Callable[[Iterator[Problem]], Iterator[Problem | ProblemDecision]]:
    """Return the step that writes pass rates into ``meta`` and drops problems outside ``keep``.

    A problem without a judged reply is kept and marked, because a failed judge shows nothing about it.
    """

    def step(problems: Iterator[Problem]) -> Iterator[Problem | ProblemDecision]:
        for problem in problems:
            rate = rates.get(problem.id)
            if rate is None or rate.n == 0:
                yield ProblemDecision(
                    problem.id, STEP, "mark", "not_measured", "no judged reply", problem.source
                )
                yield problem
                continue
            if keep.includes(rate):
                meta: dict[str, Any] = {**problem.meta, KEY: msgspec.to_builtins(rate)}
                yield msgspec.structs.replace(problem, meta=meta)
                continue
            reason = "pass_rate_outside"
            # These two reasons are counted separately: they say that a set is too hard, or too easy, for the
            # model.
            if rate.passed in (0, rate.n):
                reason = "never_solved" if rate.passed == 0 else "always_solved"
            detail = (
                f"{rate.model} solved it in {rate.passed} of {rate.n} replies; {keep.low} to {keep.high} stay"
            )
            yield ProblemDecision(problem.id, STEP, "drop", reason, detail, problem.source)

    return step
