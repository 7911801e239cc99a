"""An episode: what an environment may use to play it, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from whetstone.core.problem import Problem, Program
from whetstone.core.sample import Sample
from whetstone.core.settings import stream_seed
from whetstone.core.verdict import Judgement
from whetstone.environments.conversation import (
    Conversation,
    ModelClient,
    Reply,
    ReplyLimits,
    SendMessages,
)
from whetstone.environments.prompt import Message, Prompt

# The name of the model in a run with one model.
POLICY = "policy"


class ProgramJudge(Protocol):
    """The judge that an episode needs: an ``AsyncJudge`` or a substitute."""

    @property
    def minimum_tier(self) -> str:
        """The weakest isolation that programs may run with."""
        ...

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        """Return the verdict on one program; NO_CODE for a blank one."""
        ...


@dataclass(frozen=True)
class Rollout:
    """The result of an episode: the samples of each model, in order.

    A conversation with one model is one sample. It has tokens, log-probs, weight versions, the spans without
    loss, the reward, ``accepted``, metrics, and the verdict if there is one. An evaluation counts the last
    sample of the first model. ``state`` is what ``Environment.finish_group`` needs in addition.
    """

    samples: dict[str, list[Sample]]
    state: object = None


class FirstReply(Protocol):
    """The prompt that the runner has requested for an episode, and the first reply to it."""

    @property
    def prompt(self) -> Prompt:
        """The prompt."""
        ...

    @property
    def prompt_ids(self) -> list[int]:
        """Its tokens; empty if they are not known."""
        ...

    async def wait(self) -> Reply:
        """Return the reply once it has ended."""
        ...


@dataclass(frozen=True)
class KnownReply:
    """A first reply that has ended already."""

    prompt: Prompt
    reply: Reply
    prompt_ids: list[int] = field(default_factory=list[int])

    async def wait(self) -> Reply:
        """See FirstReply."""
        return self.reply


async def _no_wait() -> None:
    pass


class Episode:
    """One episode of a problem. The runner makes it, and ``Environment.rollout`` plays it.

    ``problem`` is the task. ``index`` is the number of the episode in its group. ``models`` are the names of
    the models that can be sampled: an evaluation only has the first one. ``seed`` fixes every random stream
    of the group; an environment that draws random numbers derives them from ``seed`` and ``index``.
    """

    def __init__(
        self,
        problem: Problem,
        clients: Mapping[str, ModelClient],
        judge: ProgramJudge,
        *,
        index: int = 0,
        seed: int = 0,
        first: FirstReply | None = None,
        options: Mapping[str, Any] | None = None,
        wait_turn: Callable[[], Awaitable[None]] = _no_wait,
    ) -> None:
        """``first``: the requested first reply. ``options``: of every judgement by the problem's tests.
        ``wait_turn``: waits until the next reply may be requested."""
        self.problem = problem
        self.index = index
        self.seed = seed
        self.models = tuple(clients)
        self.program_judge = judge
        self.conversations: list[Conversation] = []
        """All conversations so far."""
        self._clients = clients
        self._first = first
        self._options = dict(options or {})
        self._wait_turn = wait_turn

    async def begin(
        self, prompt: Prompt | None = None, *, model: str = "", limits: ReplyLimits | None = None
    ) -> Conversation:
        """Begin a conversation with a model (by default the first one), and return it with its first reply.

        Without ``prompt``, it begins with the environment's prompt. The runner has requested the replies to
        that prompt for the whole group, so this works once in an episode. ``limits`` are for other prompts
        only. Raises UserError for a prompt that is too long.
        """
        name = model or self.models[0]
        client, number = self._clients[name], len(self.conversations)
        send = self._sender(client, number)
        if prompt is None:
            first, self._first = self._first, None
            if first is None:
                raise ValueError("the environment's prompt was already used; begin with a prompt of your own")
            conversation = Conversation(first.prompt, first.prompt_ids, await first.wait(), send)
        else:
            await self._wait_turn()
            seed = stream_seed("begin", name, self.seed, self.index, number)
            prompt_ids, reply = await client.begin(self.problem, prompt, seed=seed, limits=limits)
            conversation = Conversation(prompt, prompt_ids, reply, send, own_prompt=True)
        self.conversations.append(conversation)
        return conversation

    async def fork(
        self,
        conversation: Conversation,
        turns: int,
        *messages: Message,
        model: str = "",
        limits: ReplyLimits | None = None,
    ) -> Conversation | None:
        """Continue a conversation from the end of its first ``turns`` turns with other messages.

        Returns the new conversation; None if the model's context has no room for it. ``model`` is that of
        the conversation.
        """
        client = self._clients[model or self.models[0]]
        fork = conversation.fork(turns, self._sender(client, len(self.conversations)))
        if await fork.send(*messages, limits=limits) is None:
            return None
        self.conversations.append(fork)
        return fork

    def _sender(self, client: ModelClient, number: int) -> SendMessages:
        """Return how the conversation with this number requests its replies."""

        async def send(
            conversation: Conversation, messages: Sequence[Message], limits: ReplyLimits | None
        ) -> tuple[list[int], Reply] | None:
            await self._wait_turn()
            parts = ("turn", self.seed, self.index, len(conversation.turns), *([number] if number else []))
            return await client.reply_to(conversation, messages, seed=stream_seed(*parts), limits=limits)

        return send

    async def judge(self, program: Program, *, problem: Problem | None = None, **options: Any) -> Judgement:
        """Return the verdict of the problem's tests on a program; NO_CODE for a blank one.

        All episodes of a group are judged on the same cases. ``problem`` replaces the episode's problem, and
        ``options`` those of the run (see ``JudgeOptions``).
        """
        return await self.program_judge.judge(
            problem or self.problem, program, **{**self._options, **options}
        )
