"""A sample, the group of samples that share a prompt, and the batch of a training step.

These are plain data without torch: token ids, the engine's log-probs, the weight version of every token, and
the reward. A reward of None means "no reward": the judge or an engine failed, or the verdict could have been
forged. Such a sample is left out of its group's baseline and of the loss.
"""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any, Literal

from msgspec import Struct, structs

from whetstone.core.verdict import Judgement


def finite_number(value: Any) -> float | None:
    """Return a finite number as a float: of Python, or an array or tensor of one number. None otherwise."""
    if not isinstance(value, Real | Decimal):
        # Arrays and tensors have this method. It fails for more than one number.
        item = getattr(value, "item", None)
        try:
            value = item() if callable(item) else None
        except (TypeError, ValueError, RuntimeError):
            return None
        if not isinstance(value, Real):
            return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


FinishReason = Literal["stop", "length", "abort"]


class Routing(Struct, frozen=True, array_like=True):
    """The experts of a mixture-of-experts model that processed some consecutive tokens.

    ``data`` is [tokens, layers, k], numbers of experts in uint8, or in little-endian uint16 if ``wide``.
    Layers without experts have zeros. Raises ValueError for data of another size.
    """

    layers: int
    k: int
    wide: bool
    data: bytes

    def __post_init__(self) -> None:
        if min(self.layers, self.k) < 1 or len(self.data) % self._token_bytes:
            raise ValueError(f"{len(self.data)} bytes of routing for {self.layers} layers and k {self.k}")

    @property
    def _token_bytes(self) -> int:
        return self.layers * self.k * (2 if self.wide else 1)

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.data) // self._token_bytes

    def part(self, start: int, end: int | None = None) -> Routing:
        """Return that of the tokens from ``start`` to ``end``."""
        size = self._token_bytes
        data = self.data[start * size : None if end is None else end * size]
        return structs.replace(self, data=data)

    def extended(self, later: Routing) -> Routing:
        """Return this, and that of ``later`` for further tokens of the same sequence, whose beginning both
        have. Raises ValueError if they are not of one model."""
        if structs.replace(later, data=b"") != structs.replace(self, data=b""):
            raise ValueError("the routing of one sequence is that of two models")
        return structs.replace(self, data=self.data + later.data[len(self.data) :])


class Sample(Struct, frozen=True):
    """One reply to a prompt, or all replies of a conversation with the texts between them.

    ``response_ids``, ``logprobs`` (natural log, under the sampling temperature, over the token's support)
    and ``versions`` (of the weights that produced the token) have equal length. ``supports`` has the token
    ids that top-p and top-k left for each token; an empty list stands for the whole vocabulary. It is empty
    if nothing was truncated.

    ``given`` are the spans [start, end) of ``response_ids``, in order, that the model did not write, such as
    feedback. They have no loss, and log-probs of 0. ``prompt_ids`` is the prompt of the sample if it differs
    from the prompt of its group, else it is empty. ``dialogue`` are the texts of an episode of several turns,
    each after its role (``assistant``, ``user`` or ``tool``), in order; it is empty for a single reply.
    ``text`` always holds all texts.

    ``accepted`` is whether the task was solved; None if the environment does not say, or if there is no
    verdict that counts. ``metrics`` are numbers of the environment about the episode, whose means are
    metrics of the run.

    ``routing`` are the experts that processed the tokens of ``response_ids`` except the last one, and
    ``prompt_routing`` those of the prompt, unless its group has them; None if they were not recorded. If a
    conversation was read several times, each token has the experts of the pass that first sampled after it.
    """

    response_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: FinishReason
    text: str
    program: str | None = None
    judgement: Judgement | None = None
    reward: float | None = None
    accepted: bool | None = None
    given: list[tuple[int, int]] = []
    prompt_ids: list[int] = []
    metrics: dict[str, float] = {}
    dialogue: list[tuple[str, str]] = []
    routing: Routing | None = None
    prompt_routing: Routing | None = None
    supports: list[list[int]] = []

    def __post_init__(self) -> None:
        # The scalars of other libraries that an environment computed become floats.
        if type(self.reward) not in (float, NoneType):
            structs.force_setattr(self, "reward", _float_of("the reward", self.reward))
        if not all(type(value) in (float, int) for value in self.metrics.values()):
            metrics = {name: _float_of(f"the metric `{name}`", value) for name, value in self.metrics.items()}
            structs.force_setattr(self, "metrics", metrics)
        if not len(self.response_ids) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"{len(self.response_ids)} tokens, {len(self.logprobs)} log-probs, "
                f"{len(self.versions)} versions"
            )
        if self.supports and len(self.supports) != len(self.response_ids):
            raise ValueError(f"{len(self.response_ids)} tokens, {len(self.supports)} supports")
        edges = [edge for span in self.given for edge in span]
        if edges != sorted(set(edges)) or (edges and not 0 <= edges[0] < edges[-1] <= len(self.response_ids)):
            raise ValueError(f"spans {self.given} in a reply of {len(self.response_ids)} tokens")

    def written(self) -> list[bool]:
        """Return for each token of ``response_ids`` whether the model generated it."""
        wrote = [True] * len(self.response_ids)
        for start, end in self.given:
            wrote[start:end] = [False] * (end - start)
        return wrote

    def trainable(self, oldest: int | None) -> list[bool]:
        """Return for each token of ``response_ids`` whether the model generated it with weights of version
        ``oldest`` or later; None: any version."""
        if oldest is None:
            return self.written()
        pairs = zip(self.written(), self.versions, strict=True)
        return [wrote and version >= oldest for wrote, version in pairs]

    def with_metrics(self, metrics: dict[str, float], reward: float | None) -> Sample:
        """Return a copy with the ``reward`` and the metrics of a finished episode."""
        return structs.replace(self, metrics=metrics, reward=reward)

    @property
    def length(self) -> int:
        """The number of tokens that the model wrote."""
        return len(self.response_ids) - sum(end - start for start, end in self.given)

    @property
    def turns(self) -> int:
        """The number of texts that the model wrote."""
        return max(1, sum(role == "assistant" for role, _ in self.dialogue))


def _float_of(what: str, value: Any) -> float:
    if isinstance(value, float):
        return float(value)
    number = finite_number(value)
    if number is None:
        raise ValueError(f"{what} of a sample is {value!r}, not a finite number")
    return number


class Group(Struct, frozen=True):
    """All samples of one prompt, which share a baseline. ``meta["source"]`` is where the problem is from.

    ``prompt_routing`` are the experts that processed the prompt, recorded with its first sample.
    """

    problem_id: str
    prompt_ids: list[int]
    samples: list[Sample]
    meta: dict[str, Any] = {}
    prompt_routing: Routing | None = None

    def __post_init__(self) -> None:
        if not self.prompt_ids or not self.samples:
            raise ValueError(f"group {self.problem_id!r} needs a prompt and at least one sample")

    def rewards(self) -> list[float]:
        """Return the rewards that are not None, in the order of samples."""
        return [s.reward for s in self.samples if s.reward is not None]


class Batch(Struct, frozen=True):
    """The groups of one training step, and the numbers of dropped groups by reason.

    ``oldest``: tokens of an older weight version carry no loss; None: none is too old.
    """

    groups: list[Group]
    dropped: dict[str, int] = {}
    oldest: int | None = None
