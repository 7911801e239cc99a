"""A sample, the group of samples that share a prompt, and the batch a step trains on.

Plain data without torch: token ids, the engine's log-probs, the weight version of every token,
and the reward. A reward of None means "no reward": the judge or an engine failed, or the verdict could have
been forged, so the sample is left out of its group's baseline and of the loss.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, structs

from whetstone.verdict import Judgement

FinishReason = Literal["stop", "length", "abort"]


class Sample(Struct, frozen=True):
    """One reply to a prompt, or several to each other and to what was said between them.

    ``response_ids``, ``logprobs`` (natural log, under the sampling temperature, before top-p and
    top-k) and ``versions`` (of the weights that produced the token) have equal length.

    ``given`` are the spans [start, end) of it, in order, that the model was given to read and did not write,
    such as feedback: they carry no loss, and have log-probs of 0. ``prompt_ids`` is what the sample answers
    where that is not its group's prompt; else it is empty. ``notes`` are numbers that the workflow tells of
    the episode, which metrics show the means of.
    """

    response_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: FinishReason
    text: str
    program: str | None = None
    judgement: Judgement | None = None
    reward: float | None = None
    given: list[tuple[int, int]] = []
    prompt_ids: list[int] = []
    notes: dict[str, float] = {}

    def __post_init__(self) -> None:
        if not len(self.response_ids) == len(self.logprobs) == len(self.versions):
            raise ValueError(
                f"{len(self.response_ids)} tokens, {len(self.logprobs)} log-probs, "
                f"{len(self.versions)} versions"
            )
        edges = [edge for span in self.given for edge in span]
        if edges != sorted(set(edges)) or (edges and not 0 <= edges[0] < edges[-1] <= len(self.response_ids)):
            raise ValueError(f"spans {self.given} in a reply of {len(self.response_ids)} tokens")

    def written(self) -> list[bool]:
        """Of each token of ``response_ids``, whether the model wrote it."""
        wrote = [True] * len(self.response_ids)
        for start, end in self.given:
            wrote[start:end] = [False] * (end - start)
        return wrote

    def with_notes(self, notes: dict[str, float], reward: float | None) -> Sample:
        """The same with the ``reward`` and the notes of a finished episode."""
        return structs.replace(self, notes=notes, reward=reward)

    @property
    def length(self) -> int:
        """How many tokens the model wrote."""
        return len(self.response_ids) - sum(end - start for start, end in self.given)


class Group(Struct, frozen=True):
    """All samples of one prompt, which share a baseline. ``meta["source"]`` is where the problem is from."""

    problem_id: str
    prompt_ids: list[int]
    samples: list[Sample]
    meta: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.prompt_ids or not self.samples:
            raise ValueError(f"group {self.problem_id!r} needs a prompt and at least one sample")

    def rewards(self) -> list[float]:
        """The rewards that exist, in sample order."""
        return [s.reward for s in self.samples if s.reward is not None]


class Batch(Struct, frozen=True):
    """The groups of one training step, and why others were dropped (reason → count of groups)."""

    groups: list[Group]
    dropped: dict[str, int] = {}
