"""An engine that only checks the lengths of requests and cannot generate.

A trainer whose replicas and evaluation use other servers needs no server just to check prompts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from whetstone.engine.engine import Capabilities, Completion, GenerationRequest, check_request


class DryRunEngine:
    """See Engine. Only ``check`` works."""

    capabilities = Capabilities(repeatable_streams=False, weights=frozenset())
    version = -1

    def __init__(self, *contexts: int | None) -> None:
        """``contexts``: limits of prompt and reply together in tokens, of the model and of the real engine;
        None is no limit."""
        self._context = min((each for each in contexts if each), default=None)

    def check(self, request: GenerationRequest) -> None:
        """See Engine."""
        check_request(request, self._context)

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Raises RuntimeError."""
        raise RuntimeError("a dry-run engine cannot generate")

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """Raises RuntimeError."""
        raise RuntimeError("a dry-run engine has no weights")

    async def close(self) -> None:
        """See Engine."""
