"""What an engine is: token ids in; token ids, log-probs and weight versions out.

An engine knows nothing of problems or rewards. Text never enters or leaves it except for stop
strings, which it matches on the decoded tail of a sample.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from whetstone.sample import FinishReason


class SamplingParams(Struct, frozen=True, forbid_unknown_fields=True):
    """How replies are drawn.

    ``temperature`` 0 is greedy. ``top_k`` 0 and ``top_p`` 1 switch truncation off. Generation ends
    at an end-of-sequence token (kept in the sample), at a stop string (its tokens are kept), or at
    ``max_tokens``.
    """

    max_tokens: Annotated[int, Meta(gt=0)]
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    stop: tuple[str, ...] = ()


class GenerationRequest(Struct, frozen=True):
    """``n`` replies to one prompt. Reply i draws from a random stream of its own, fixed by (seed, i)."""

    prompt_ids: list[int]
    params: SamplingParams
    n: int = 1
    seed: int = 0


class Completion(Struct, frozen=True):
    """One reply. ``index`` is its place among the request's ``n``.

    ``logprobs`` are natural logs of the drawn tokens under softmax(logits / temperature), before
    top-p and top-k (temperature 1 when greedy).
    """

    index: int
    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: FinishReason


class Engine(Protocol):
    """Generates replies, many at a time, and takes new weights between steps."""

    @property
    def version(self) -> int:
        """The version of the weights in use."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield the request's replies as each ends. Concurrent calls share the running batch.

        Calls made before the event loop next runs the engine enter together, in call order, so
        that a synchronous caller gets the same numbers every time. Raises UserError when prompt
        and reply cannot fit the model's context.
        """
        ...

    async def update_weights(self, tensors: Iterable[tuple[str, object]], version: int) -> None:
        """Replace the weights by ``tensors`` (name, torch tensor), then report ``version``.

        Replies in flight continue under the new weights, marked token by token.
        """
        ...

    async def close(self) -> None:
        """Free what the engine holds; replies in flight end with ``abort``."""
        ...
