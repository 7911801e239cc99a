"""The sampling plan of an evaluation."""

from __future__ import annotations

import hashlib

from msgspec import Struct

from whetstone.engine.base import SamplingParams
from whetstone.errors import UserError


class Plan(Struct, frozen=True):
    """``n`` replies to every problem, and the k of the pass@k to report; pass@1 always is.

    ``top_k`` 0 and ``top_p`` 1 truncate nothing. ``seed`` fixes the random streams of the replies and of
    the bootstrap.
    """

    n: int = 8
    k: tuple[int, ...] = (1,)
    temperature: float = 0.8
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1 or self.max_tokens < 1:
            raise UserError("an evaluation plan needs `n` and `max_tokens` of at least 1")
        if not self.k or min(self.k) < 1:
            raise UserError("the k of pass@k are numbers of at least 1, such as 1,8")
        if max(self.k) > self.n:
            raise UserError(f"pass@{max(self.k)} needs at least n = {max(self.k)} replies; n is {self.n}")
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise UserError("`temperature` and `top_k` are at least 0, and `top_p` in (0, 1]")

    def params(self) -> SamplingParams:
        """The plan as the engine takes it."""
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            stop=self.stop,
        )

    def seed_of(self, problem_id: str) -> int:
        """The seed of a problem's replies, whichever other problems are evaluated with it."""
        digest = hashlib.sha256(f"evaluate/{self.seed}/{problem_id}".encode()).digest()
        return int.from_bytes(digest[:7], "big")
