"""The differences between model servers: how to request a reply, and how to load new weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from whetstone.core.sample import FinishReason, Routing
from whetstone.core.settings import Sampling
from whetstone.engine.remote.connection import EndpointConnection


class Generation(Struct, frozen=True):
    """The result of one request. ``abort``: the server ended it before the reply was complete. ``routing``,
    ``supports``: see ``Completion``; None and empty if the server does not return them."""

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: FinishReason
    routing: Routing | None = None
    supports: list[list[int]] = []


class ServerFacts(Struct, frozen=True):
    """What a server reports about itself, None if it does not.

    context: the most tokens of prompt and reply together. dtype: its compute type, with torch's name.
    """

    context: int | None
    dtype: str | None = None


class ServerBackend(Protocol):
    """One kind of server, addressed at its root URL.

    name: as in recipes. routing: whether replies have the experts that processed them. supports: whether they
    have the supports of their tokens.
    """

    name: str
    routing: bool
    supports: bool

    async def probe(self, server: EndpointConnection) -> ServerFacts:
        """Query the server's facts. Raises UserError with a remedy for a server that cannot serve a run."""
        ...

    def check(self, params: Sampling) -> None:
        """Raise UserError for sampling parameters that the server does not accept."""
        ...

    def request(
        self, prompt_ids: list[int], params: Sampling, max_tokens: int, seed: int | None
    ) -> dict[str, Any]:
        """Return the body of a request for one reply of at most ``max_tokens``."""
        ...

    def path(self, params: Sampling) -> str:
        """Return the path for such requests."""
        ...

    def read_reply(self, answer: Any) -> Generation:
        """Parse the answer. Raises KeyError and similar for an answer of another form."""
        ...

    async def pause(self, server: EndpointConnection) -> None:
        """End every reply in progress, and start none."""
        ...

    async def find_weights(self, server: EndpointConnection, folder: Path) -> None:
        """Prepare updates in place of a server that has the weights of a model folder, if it supports
        them."""
        ...

    async def load(
        self, server: EndpointConnection, folder: Path, version: int, changes: Path | None
    ) -> None:
        """Load the weights of a model folder, which the server sees under the same path; drop cached prompts.

        changes: a file with all elements in which they differ from the server's weights; None if unknown.
        """
        ...

    async def sleep(self, server: EndpointConnection) -> None:
        """After ``pause``: drop weights and prompts, and release all device memory."""
        ...

    async def wake(self, server: EndpointConnection, part: Literal["weights", "kv_cache"]) -> None:
        """Allocate memory for one of both again. Its contents are undefined until weights are loaded."""
        ...

    async def resume(self, server: EndpointConnection) -> None:
        """Start replies again."""
        ...
