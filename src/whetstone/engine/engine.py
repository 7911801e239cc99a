"""What an engine is: token ids in; token ids, log-probs and weight versions out.

An engine knows nothing of problems or rewards. Text never enters or leaves it except for stop
strings, which it matches on the decoded tail of a sample.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from whetstone.sample import FinishReason
from whetstone.settings import Sampling


class GenerationRequest(Struct, frozen=True):
    """``n`` replies to one prompt. Reply i draws from a random stream of its own, fixed by (seed, i)."""

    prompt_ids: list[int]
    params: Sampling
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


class Capabilities(Struct, frozen=True):
    """What an engine promises beyond its methods; who needs it asks (``factory.require``).

    repeatable_streams: the same requests with the same seeds under the same weights give the same tokens.
    weights: the forms in which it takes new ones.
    full_logprobs: log-probs are taken before top-p and top-k, as ``Completion`` has it; else after them,
        which are others unless both are off.
    every_rank: each of several ranks may have one, of its own.
    in_place: it generates with the very model that it was made with, and writes new weights into that.
    """

    repeatable_streams: bool
    weights: frozenset[Literal["tensors", "folder"]]
    full_logprobs: bool = True
    every_rank: bool = True
    in_place: bool = False


class Engine(Protocol):
    """Generates replies, many at a time, and takes new weights between steps."""

    @property
    def capabilities(self) -> Capabilities:
        """What it promises."""
        ...

    @property
    def version(self) -> int:
        """The version of the weights in use."""
        ...

    def check(self, request: GenerationRequest) -> None:
        """Raise UserError for a request that ``generate`` would refuse; nothing is queued."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Completion]:
        """Yield the request's replies as each ends. Concurrent calls share the running batch.

        Calls made before the event loop next runs the engine enter together, in call order, so
        that a synchronous caller gets the same numbers every time. Raises UserError when prompt
        and reply cannot fit the model's context.
        """
        ...

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """Replace the weights by tensors (name, torch tensor) or by those in a model folder, then report
        ``version``.

        Replies in flight continue under the new weights, marked token by token.
        """
        ...

    async def close(self) -> None:
        """Free what the engine holds; replies in flight end with ``abort``."""
        ...


@runtime_checkable
class Sleeper(Protocol):
    """An engine that can lend its part of the device to a trainer, between two steps."""

    async def sleep(self) -> None:
        """Hold no memory of the device until new weights come or a reply is asked for.

        Raises UserError when it cannot; it is not used again then.
        """
        ...
