"""The interface of an engine: token ids in; token ids, log-probs and weight versions out.

An engine knows nothing about problems or rewards. It handles text only to match stop strings in the decoded
end of a sample.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.sample import FinishReason, Routing
from whetstone.core.settings import Sampling


class GenerationRequest(Struct, frozen=True):
    """``n`` replies to one prompt. Reply i has its own random stream, fixed by (seed, i).

    routing: whether the replies have the experts that processed them. supports: whether they have the
    supports of their tokens, as in training.
    """

    prompt_ids: list[int]
    params: Sampling
    n: int = 1
    seed: int = 0
    routing: bool = False
    supports: bool = False


class Completion(Struct, frozen=True):
    """One reply. ``index`` is its number among the request's ``n``.

    ``supports`` has the token ids that top-p and top-k left for each token, in ascending order; it is empty
    if the request truncates nothing or does not need them. ``logprobs`` are natural logarithms of the sampled
    tokens' probabilities under softmax(logits / temperature) over these ids, or over the whole vocabulary
    (temperature 1 for greedy sampling).

    ``routing`` are the experts that processed the prompt and the reply except its last token, if requested.
    """

    index: int
    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: FinishReason
    routing: Routing | None = None
    supports: list[list[int]] = []


class Capabilities(Struct, frozen=True):
    """Properties of an engine beyond its methods; see ``factory.check_capabilities``.

    repeatable_streams: equal requests, seeds and weights give equal tokens.
    weights: the supported forms of new weights.
    supports: it returns the support of each token, so that top-p and top-k may be used in training.
    every_rank: each of several ranks may have its own engine.
    in_place: it generates with the model object that it was built with, and writes new weights into it.
    routing: it can return the experts that processed a reply.
    """

    repeatable_streams: bool
    weights: frozenset[Literal["tensors", "folder"]]
    supports: bool = False
    every_rank: bool = True
    in_place: bool = False
    routing: bool = False


class Engine(Protocol):
    """Generates replies concurrently, and accepts new weights between steps."""

    @property
    def capabilities(self) -> Capabilities:
        """Its properties."""
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

        Calls made before the event loop next runs the engine enter together in call order, so a synchronous
        caller always gets the same numbers. Raises UserError if prompt and reply exceed the model's context.
        """
        ...

    async def update_weights(self, weights: Iterable[tuple[str, object]] | Path, version: int) -> None:
        """Replace the weights by tensors (name, torch tensor) or by those in a model folder, then report
        ``version``.

        Replies in progress continue with the new weights; each token records its version.
        """
        ...

    async def close(self) -> None:
        """Free the engine's resources; replies in progress end with ``abort``."""
        ...


@runtime_checkable
class VersionTracker(Protocol):
    """An engine that knows which weights have generated the tokens of a request."""

    def oldest_version(self, request: GenerationRequest) -> int:
        """Return a version of weights such that no token of this unfinished request, now or later, is older.

        ``request`` is the object that was passed to ``generate``.
        """
        ...


@runtime_checkable
class Sleeper(Protocol):
    """An engine that can release its device memory between two steps."""

    async def sleep(self) -> None:
        """Release all device memory until new weights arrive or a reply is requested.

        Raises UserError if it fails; the engine is then not used again.
        """
        ...


class ProcessGroup(Protocol):
    """The ranks of a run; see ``trainer.ranks.Ranks``. This process is number ``rank`` of ``size``.

    ``local_size`` of them are on each machine, with consecutive numbers.
    """

    rank: int
    size: int
    local_size: int

    def gather(self, data: bytes, description: str) -> list[bytes]:
        """Return the bytes of every process, in rank order, on every process. ``description`` names the wait
        in errors."""
        ...


def check_request(
    request: GenerationRequest,
    context: int | None,
    *,
    owner: str = "the",
    remedy: str = "lower max_tokens or shorten the prompt",
) -> None:
    """Raise UserError for an empty prompt, for no reply, and for a length above ``context`` in tokens.

    ``owner`` says in the error whose context it is, and ``remedy`` what to do about the length.
    """
    prompt, wanted = len(request.prompt_ids), request.params.max_tokens
    if prompt == 0:
        raise UserError("the prompt is empty; give at least one token, such as the tokenizer's bos token")
    if request.n < 1:
        raise UserError(f"n is {request.n}; ask for at least one reply")
    if context is not None and prompt + wanted > context:
        raise UserError(
            f"a prompt of {prompt} tokens and up to {wanted} new ones exceed {owner} context of {context}; "
            f"{remedy}"
        )
