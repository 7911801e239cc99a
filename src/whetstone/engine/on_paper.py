"""An engine on paper: it knows which requests would be too long, where nobody is to generate.

The trainer of a run whose replicas and evaluation have servers of their own starts none to check prompts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from whetstone.engine.engine import Capabilities, Completion, GenerationRequest
from whetstone.errors import UserError


class OnPaper:
    """See Engine: ``check`` is all that it is for."""

    capabilities = Capabilities(repeatable_streams=False, weights=frozenset())
    version = -1

    def __init__(self, *contexts: int | None) -> None:
        """``contexts``: bounds of prompt and reply together in tokens, of the model and of the real engine;
        None is no bound."""
        self._context = min((each for each in contexts if each), default=None)

    def check(self, request: GenerationRequest) -> None:
        """See Engine."""
        prompt, wanted = len(request.prompt_ids), request.params.max_tokens
        if self._context is not None and prompt + wanted > self._context:
            raise UserError(
                f"a prompt of {prompt} tokens and up to {wanted} new ones exceed the context of "
                f"{self._context}; lower max_tokens or shorten the prompt"
            )

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Nobody asks: raises RuntimeError."""
        raise RuntimeError("an engine on paper generates nothing")

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """Nobody asks: raises RuntimeError."""
        raise RuntimeError("an engine on paper has no weights")

    async def close(self) -> None:
        """See Engine."""
