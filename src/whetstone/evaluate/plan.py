"""The sampling plan of an evaluation."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field, model_validator

from whetstone.core.flag import Flag
from whetstone.core.settings import Count, MaxTokens, Sampling, Temperature

PassK = Annotated[tuple[Count, ...], Field(min_length=1)]
"""The k of the pass@k to report."""


class SamplingPlan(Sampling):
    """The sampling of an evaluation.

    n: replies to every problem; more give narrower intervals.
    k: the k of the pass@k to report; pass@1 is always reported.
    seed: fixes the random streams of the replies.
    """

    n: Count = 8
    k: PassK = (1,)
    temperature: Temperature = 0.8
    max_tokens: MaxTokens = 512
    seed: Annotated[int, Flag("seed of the replies", "N")] = 0

    @model_validator(mode="after")
    def _enough(self) -> SamplingPlan:
        check_k(self.n, self.k)
        return self

    def seed_of(self, problem_id: str) -> int:
        """Return the seed of a problem's replies. It does not depend on the other problems."""
        digest = hashlib.sha256(f"evaluate/{self.seed}/{problem_id}".encode()).digest()
        return int.from_bytes(digest[:7], "big")


def check_k(n: int, k: tuple[int, ...]) -> None:
    """Raise ValueError when ``n`` replies are too few for a k of pass@k."""
    if max(k) > n:
        raise ValueError(f"pass@{max(k)} needs n >= {max(k)}, but n is {n}")
