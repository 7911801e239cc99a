"""A conversation with a model: replies, and the messages between them.

The tokens of a conversation are those that the model read and generated. They are never encoded again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from whetstone.core.problem import Problem
from whetstone.core.sample import Routing, Sample
from whetstone.core.verdict import Judgement
from whetstone.engine.engine import Completion
from whetstone.environments.prompt import Message, Prompt

ReplyEnd = Literal["stop", "length", "failed"]
"""Why a reply ended: at its end or a stop text, at the token limit, or because it failed."""


class ToolCall(Struct, frozen=True):
    """A call of a tool as a server or a response parser reports it, or as a format of replies has it.

    ``arguments`` is JSON text. ``untyped``: the arguments are texts, whatever their types.
    """

    name: str
    arguments: str
    id: str = ""
    untyped: bool = False


class Reply(Struct, frozen=True):
    """One reply, without the given prefix.

    ``text`` includes the thinking in ``<think>`` tags, however the model or server marks it (``formats``);
    unfinished thinking has no closing tag. ``tokens`` counts all tokens, 0 if unknown. ``thinking_tokens``
    and ``prompt_tokens`` are None if unknown. ``error`` is the reason of a ``failed`` reply. ``drawn`` has
    the tokens if Whetstone's engine generated them. ``tool_calls`` are the calls that a server, a response
    parser or the format of the model found; None if the calls are read from the text.
    """

    index: int
    text: str
    finish_reason: ReplyEnd
    tokens: int = 0
    thinking_tokens: int | None = None
    error: str = ""
    prompt_tokens: int | None = None
    drawn: Completion | None = None
    tool_calls: list[ToolCall] | None = None


def failed_reply(index: int, error: str, drawn: Completion | None = None) -> Reply:
    """Return a reply that failed."""
    return Reply(index, "", "failed", error=error, drawn=drawn)


class ReplyLimits(Struct, frozen=True):
    """Ends of a reply in addition to those of the run's sampling: a smaller ``max_tokens``, and further stop
    texts. They end a reply early, and change no token's probability."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


class Turn(Struct, frozen=True):
    """A reply, the messages before it, and their tokens. The first turn follows the prompt directly."""

    messages: list[Message]
    between: list[int]
    reply: Reply


class Conversation:
    """The turns of a conversation. An ``Episode`` begins it."""

    def __init__(
        self,
        prompt: Prompt,
        prompt_ids: list[int],
        first: Reply,
        send: SendMessages,
        *,
        own_prompt: bool = False,
    ) -> None:
        """``prompt_ids`` is empty if the tokens of the prompt are not known. ``send`` requests the reply
        to further messages. ``own_prompt``: the prompt is not that of the group."""
        self.prompt = prompt
        self.prompt_ids = prompt_ids
        self.turns = [Turn([], [], first)]
        self.shared = 0
        """The number of turns at the start that belong to another conversation, see ``fork``."""
        self._send = send
        self._own_prompt = own_prompt

    @property
    def reply(self) -> Reply:
        """The last reply."""
        return self.turns[-1].reply

    async def send(self, *messages: Message | str, limits: ReplyLimits | None = None) -> Reply | None:
        """Add messages and return the reply to them. A text is a message of the user.

        Returns None if the conversation cannot continue: the model's context has no room left, or the last
        reply failed. Nothing is added then.
        """
        if self.reply.finish_reason == "failed":
            return None
        sent = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
        found = await self._send(self, sent, limits)
        if found is None:
            return None
        between, reply = found
        self.turns.append(Turn(sent, between, reply))
        return reply

    def fork(self, turns: int, send: SendMessages) -> Conversation:
        """Return a new conversation with the first ``turns`` turns of this one. In its sample they are part
        of the prompt, because they are trained as turns of this conversation."""
        fork = Conversation(self.prompt, self.prompt_ids, self.reply, send, own_prompt=self._own_prompt)
        fork.turns, fork.shared = self.turns[:turns], turns
        return fork

    def response_ids(self) -> list[int]:
        """Return the tokens after the prompt, of all turns."""
        return _tokens_of(self.turns).ids

    def messages(self) -> list[Message]:
        """Return the whole conversation as messages."""
        found = self.prompt.messages()
        for turn in self.turns:
            found += [*turn.messages, {"role": "assistant", "content": self.prompt.prefix + turn.reply.text}]
        return found

    def sample(
        self,
        *,
        reward: float | None,
        accepted: bool | None = None,
        program: str | None = None,
        judgement: Judgement | None = None,
        metrics: Mapping[str, float] | None = None,
        first_turn: int = 0,
    ) -> Sample:
        """Return the turns from ``first_turn`` on as one training sample; the tokens before are its prompt.
        Turns that are shared with another conversation always belong to the prompt.

        The messages between replies are ``given``: they have log-probs of 0, the weight version of the token
        before them, and no loss.
        """
        first_turn = max(first_turn, self.shared)
        drawn = _tokens_of(self.turns[first_turn:], after=first_turn > 0)
        prompt_ids = self.prompt_ids if self._own_prompt else []
        if first_turn:
            turn = self.turns[first_turn]
            prompt_ids = [*self.prompt_ids, *_tokens_of(self.turns[:first_turn]).ids, *turn.between]
        routing = _routing_of(self.turns)
        prompt_tokens = len(prompt_ids or self.prompt_ids)
        last = self.reply.finish_reason
        dialogue = _dialogue_of(self.turns[first_turn:])
        return Sample(
            response_ids=drawn.ids,
            logprobs=drawn.logprobs,
            versions=drawn.versions,
            supports=drawn.supports if any(drawn.supports) else [],
            finish_reason="abort" if last == "failed" else last,
            text="\n\n".join(text for _, text in dialogue),
            program=program,
            judgement=judgement,
            reward=reward,
            given=drawn.given,
            prompt_ids=prompt_ids,
            metrics=dict(metrics or {}),
            accepted=accepted,
            dialogue=dialogue if len(dialogue) > 1 else [],
            routing=routing and routing.part(prompt_tokens),
            prompt_routing=routing and routing.part(0, prompt_tokens),
        )


def _routing_of(turns: Sequence[Turn]) -> Routing | None:
    """Return the experts of the prompt and of all turns, as far as they were recorded.

    Each reply is generated after another pass over all tokens before it. The first pass over a token counts,
    because the log-probs of the reply that it belongs to, or that follows it, are from this pass.
    """
    whole: Routing | None = None
    for turn in turns:
        found = turn.reply.drawn and turn.reply.drawn.routing
        if found is not None:
            whole = found if whole is None else whole.extended(found)
    return whole


class _Tokens(Struct):
    """The tokens of turns, with the fields of a ``Sample``; ``supports`` has a list for each token."""

    ids: list[int] = []
    logprobs: list[float] = []
    versions: list[int] = []
    supports: list[list[int]] = []
    given: list[tuple[int, int]] = []


def _tokens_of(turns: Sequence[Turn], *, after: bool = False) -> _Tokens:
    """Return the tokens of turns. ``after``: without the messages before the first reply, which belong to the
    prompt."""
    found = _Tokens()
    for number, turn in enumerate(turns):
        drawn = turn.reply.drawn
        if turn.between and not (after and number == 0):
            found.given.append((len(found.ids), len(found.ids) + len(turn.between)))
            found.ids += turn.between
            found.logprobs += [0.0] * len(turn.between)
            # If nothing was generated before, the reply after it has a version.
            version = (found.versions[-1:] or (drawn.versions[:1] if drawn else [])) or [0]
            found.versions += version * len(turn.between)
            found.supports += [[]] * len(turn.between)
        if drawn is not None:
            found.ids += drawn.token_ids
            found.logprobs += drawn.logprobs
            found.versions += drawn.versions
            found.supports += drawn.supports or [[]] * len(drawn.token_ids)
    return found


def _dialogue_of(turns: Sequence[Turn]) -> list[tuple[str, str]]:
    """Return role and text of each message from the first reply on."""
    found: list[tuple[str, str]] = [("assistant", turns[0].reply.text)]
    for turn in turns[1:]:
        found += [(str(message["role"]), str(message["content"])) for message in turn.messages]
        found += [("assistant", turn.reply.text)]
    return found


SendMessages = Callable[
    [Conversation, Sequence[Message], ReplyLimits | None], Awaitable[tuple[list[int], Reply] | None]
]
"""Requests the reply to further messages of a conversation; see ``ModelClient.reply_to``."""


class ModelClient(Protocol):
    """A model that continues conversations: an engine, or an endpoint."""

    async def begin(
        self, problem: Problem, prompt: Prompt, *, seed: int, limits: ReplyLimits | None = None
    ) -> tuple[list[int], Reply]:
        """Return the tokens of a prompt (empty if unknown) and one reply to it.

        ``seed`` fixes the random stream. Raises UserError for a prompt that is too long.
        """
        ...

    async def reply_to(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        seed: int,
        limits: ReplyLimits | None = None,
    ) -> tuple[list[int], Reply] | None:
        """Return the tokens of ``messages`` (empty if unknown) and the reply to them. None if the model's
        context has no room for them."""
        ...
