"""What servers of models differ in: how a reply is asked for, and how new weights reach them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from whetstone.engine.remote.connection import Connection
from whetstone.sample import FinishReason
from whetstone.settings import Sampling


class Drawn(Struct, frozen=True):
    """What one request brought. ``abort``: the server ended it before the reply did."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason


class Facts(Struct, frozen=True):
    """What a server says of itself, None where it does not say.

    context: the longest prompt and reply together. dtype: what it computes in, as torch calls it.
    """

    context: int | None
    dtype: str | None = None


class Dialect(Protocol):
    """One kind of server, spoken to at its root address.

    name: as a recipe calls it. full_logprobs: whether log-probs are taken before top-p and top-k.
    """

    name: str
    full_logprobs: bool

    async def look(self, server: Connection) -> Facts:
        """Ask what it is. Raises UserError for one that cannot serve a run, naming the way out."""
        ...

    def request(
        self, prompt_ids: list[int], params: Sampling, max_tokens: int, seed: int | None
    ) -> dict[str, Any]:
        """The body that asks for one reply of at most ``max_tokens``."""
        ...

    @property
    def path(self) -> str:
        """Where that is asked for."""
        ...

    def drawn(self, answer: Any) -> Drawn:
        """Read the answer. Raises KeyError and its like for one of another form."""
        ...

    async def pause(self, server: Connection) -> None:
        """End every reply that is being written, and begin none."""
        ...

    async def load(self, server: Connection, folder: Path, version: int) -> None:
        """Read the weights of a model folder, which the server sees under the same path; forget prompts."""
        ...

    async def sleep(self, server: Connection) -> None:
        """After ``pause``: forget weights and prompts, and hold no memory of the device."""
        ...

    async def wake(self, server: Connection, part: Literal["weights", "kv_cache"]) -> None:
        """Have memory for one of both again; what weights are then in it is anybody's guess."""
        ...

    async def resume(self, server: Connection) -> None:
        """Write replies again."""
        ...
