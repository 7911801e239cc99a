"""An environment with tools: the model calls them, reads the results, and replies again.

An episode is one sequence of tokens. The results are given tokens without loss, and the last reply is
rewarded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Annotated

from msgspec.structs import replace
from pydantic import Field, field_validator

from whetstone.core.problem import Problem
from whetstone.core.settings import NonEmpty
from whetstone.core.verdict import Judgement, Verdict, storable
from whetstone.environments.conversation import Reply
from whetstone.environments.episode import Episode, Rollout
from whetstone.environments.prompt import Message, Prompt, describe_tools
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import Outcome, SingleTurn, sample_of
from whetstone.environments.tool import (
    Tool,
    ToolError,
    ToolFault,
    ToolLimits,
    ToolSession,
    checked_arguments,
    make_tool,
    schema_of,
)
from whetstone.environments.tool_calls import Call, calls_of, quoted

# The name of a message that no tool wrote. Some chat templates need one.
_NO_TOOL = "unknown_tool"


class ToolUseOptions(ToolLimits):
    """The model may call tools before its last reply.

    tools: ``python``, or your own (docs/environments.md).
    calls: the most calls of an episode. It has at most one reply more.
    """

    tools: tuple[NonEmpty, ...] = ("python",)
    calls: Annotated[int, Field(ge=1, le=64)] = 8

    @field_validator("tools")
    @classmethod
    def _check_tools(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        names = [make_tool(name).name for name in tools]
        if not names:
            raise ValueError("there is no tool; name one, or use `kind: single_turn`")
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"two tools have the name `{twice[0]}`; remove one of them")
        return tools


class ToolUse(SingleTurn):
    """Up to ``calls`` calls of tools. The last reply is rewarded as that of ``SingleTurn``.

    Subclasses override ``score`` for another reward. A sample's metrics are its ``turns``, ``tool_calls``,
    ``tool_errors`` (calls that could not be run), and ``calls_NAME`` for each tool.
    """

    Options = ToolUseOptions

    def __init__(self, settings: EnvironmentSection, options: ToolUseOptions) -> None:
        super().__init__(settings)
        self._options = options
        self._tools = {tool.name: tool for tool in map(make_tool, options.tools)}
        self.turns = options.calls + 1

    def prompt(self, problem: Problem) -> Prompt | None:
        """See Environment. Adds the tools."""
        prompt = super().prompt(problem)
        schemas = [schema_of(tool) for tool in self._tools.values()]
        if prompt is None:
            return None
        if not prompt.chat:  # there is no chat template that could present them
            return replace(prompt, user=f"{describe_tools(schemas)}\n\n{prompt.user}", tools=schemas)
        return replace(prompt, tools=schemas)

    async def rollout(self, problem: Problem, episode: Episode) -> Rollout:
        """See Environment."""
        conversation = await episode.begin()
        fault = ""
        async with AsyncExitStack() as resources:
            tools = _EpisodeTools(self._tools, self._options, episode, resources)
            try:
                while messages := await tools.answer(conversation.reply):
                    if await conversation.send(*messages) is None:
                        break
            except ToolFault as error:
                fault = storable(str(error))
        # The sessions have ended here: no process of theirs runs while the last reply is judged.
        if fault:
            tier = episode.program_judge.minimum_tier
            outcome = Outcome(judgement=Judgement(Verdict.JUDGE_ERROR, [], None, tier, fault))
        else:
            outcome = await self.score(episode, conversation.reply)
        metrics = {
            "turns": float(len(conversation.turns)),
            "tool_calls": float(tools.calls.total()),
            "tool_errors": float(tools.errors),
            **{f"calls_{name}": float(tools.calls[name]) for name in self._tools},
        }
        return Rollout({self.models[0]: [sample_of(conversation, outcome, metrics)]})

    async def close(self) -> None:
        """See Environment."""
        async with AsyncExitStack() as tools:
            for tool in self._tools.values():
                tools.push_async_callback(tool.close)


@dataclass
class _EpisodeTools:
    """The tools of one episode. ``calls`` counts the answered calls by tool; ``""`` stands for no tool."""

    tools: Mapping[str, Tool]
    options: ToolUseOptions
    episode: Episode
    resources: AsyncExitStack
    calls: Counter[str] = field(default_factory=Counter[str])
    errors: int = 0
    _sessions: dict[str, ToolSession] = field(default_factory=dict[str, ToolSession])

    async def answer(self, reply: Reply) -> list[Message]:
        """Run the calls of a reply in order, and return their results; empty if the episode is over.

        Raises ToolFault if a tool fails.
        """
        left = self.options.calls - self.calls.total()
        # A reply that was cut has used up its budget.
        if not left or reply.finish_reason != "stop":
            return []
        # Reading a long reply takes a moment. A thread keeps the event loop responsive.
        calls = await asyncio.to_thread(calls_of, reply)
        messages = [await self._answer(call) for call in calls[:left]]
        if len(calls) >= left:
            note = f"This was call {self.options.calls} of {self.options.calls}. Give your answer now."
            messages[-1]["content"] += f"\n\n[{note}]"
        return messages + self._refused(calls[left:])

    def _refused(self, calls: list[Call]) -> list[Message]:
        """Return messages about calls that are too many: one, or one for each call that a server knows."""
        if not calls:
            return []
        text = f"{len(calls)} more calls were not run: no calls are left."
        rest = [_message(_NO_TOOL, "This call was not run.") for call in calls[1:] if call.id]
        return [_message(_NO_TOOL, text), *rest]

    async def _answer(self, call: Call) -> Message:
        tool = None if call.error else self.tools.get(call.name)
        self.calls[tool.name if tool else ""] += 1
        try:
            if tool is None:
                names = ", ".join(f"`{name}`" for name in self.tools)
                raise ToolError(call.error or f"there is no tool {quoted(call.name)}; the tools are: {names}")
            text = await self._call(tool, call)
        except ToolError as error:
            self.errors += 1
            text = f"error: {error}"
        return _message(_NO_TOOL if tool is None else tool.name, clipped(text, self.options.output_chars))

    async def _call(self, tool: Tool, call: Call) -> str:
        """Return the result of a call. Raises ToolError and ToolFault."""
        arguments = checked_arguments(call, tool.parameters)
        session = self._sessions.get(tool.name)
        if session is None:
            session = ToolSession(self.episode, self.options, self.resources)
            self._sessions[tool.name] = session
        limit = asyncio.timeout(tool.timeout_s)
        try:
            async with limit:
                return await tool.call(arguments, session)
        except TimeoutError:
            if not limit.expired():
                raise
            # The model chose the arguments. As a fault, a slow call would spare it a reward of 0.
            raise ToolError(f"the call took longer than {tool.timeout_s:g} s and was stopped") from None


def _message(name: str, content: str) -> Message:
    # Some chat templates remove the space around a message.
    return {"role": "tool", "name": name, "content": content.strip() or "(no output)"}


def clipped(text: str, most: int) -> str:
    """Return a text as valid Unicode; if it has more than ``most`` characters, its beginning and its end."""
    if len(text) > most:
        half = most // 2
        mark = f"\n[... {len(text) - 2 * half} characters omitted ...]\n"
        text = f"{text[:half]}{mark}{text[-half:]}"
    return text.encode("utf-8", "replace").decode()
