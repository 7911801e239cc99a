"""Replies from an OpenAI-compatible endpoint: chat completions, or completions of plain text.

Each request is for one reply and has its own seed. So finished replies are never requested again, and a
failed request is repeated alone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.engine.remote.connection import (
    AnswerBroken,
    EndpointConnection,
    RequestFailed,
    http_client,
    texts_of,
)
from whetstone.engine.remote.server import RemoteServer, probe_server
from whetstone.environments.conversation import Conversation, Reply, ReplyLimits, ToolCall, failed_reply
from whetstone.environments.formats.family import (
    END_THINK,
    GENERIC,
    THINK,
    ChatSettings,
    family_named,
)
from whetstone.environments.formats.reading import read_plain
from whetstone.environments.prompt import Message, Prompt, as_user
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.turn_barrier import TurnBarrier
from whetstone.evaluate.plan import SamplingPlan
from whetstone.evaluate.replies.settings import EndpointSettings
from whetstone.evaluate.replies.writer import ReplyRequest


class EndpointModel:
    """An OpenAI-compatible endpoint as a model. The constructor asks the server for its model.

    Raises UserError if it does not answer, or serves no such model.
    """

    def __init__(
        self,
        url: str,
        model: str | None,
        settings: EndpointSettings,
        *,
        format: str = "",
        template_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        family_named(format or GENERIC)
        self._chat = ChatSettings(format, template_arguments or {})
        self._server = probe_server(url, model)
        self._settings = settings
        self.manifest: dict[str, Any] = {
            "endpoint": self._server.url,
            "source": self._server.model,
            "owner": self._server.owner,
            "root": self._server.root,
            "context": self._server.context,
            "version": self._server.version,
            "body": dict(settings.body),
            "thinks": settings.thinks,
            "format": format,
            "template_arguments": dict(self._chat.arguments),
        }

    def writer(self, plan: SamplingPlan, settings: EnvironmentSection) -> EndpointWriter:
        """Return the writer of one evaluation. Raises UserError for a prefix that the server does not
        support."""
        if settings.chat and settings.prefix and not self._server.continues_replies:
            raise UserError(
                f"{self._server.url} is not known to continue a reply begun in a chat, as vLLM and SGLang; "
                "give --no-chat with a --prompt that holds all of it, or leave --prefix out"
            )
        return EndpointWriter(self._server, plan, self._settings, self._chat)

    async def close(self) -> None:
        """Do nothing: no connection stays open between evaluations."""


class EndpointWriter:
    """An endpoint as a ReplyWriter."""

    def __init__(
        self,
        server: RemoteServer,
        plan: SamplingPlan,
        settings: EndpointSettings,
        chat: ChatSettings | None = None,
    ) -> None:
        self._server = server
        self._chat = chat or ChatSettings()
        self._plan = plan
        self._settings = settings
        self._connection: EndpointConnection | None = None
        self._resources = AsyncExitStack()
        # A server composes its batches by itself, so nothing is gained by waiting for other conversations.
        self.barrier = TurnBarrier()

    def waiting(self) -> str:
        """See ReplyWriter."""
        return self._connection.describe_wait() if self._connection else ""

    def failures(self) -> str:
        """See ReplyWriter."""
        return self._connection.describe_failures() if self._connection else ""

    async def begin(
        self, problem: Problem, prompt: Prompt, *, seed: int, limits: ReplyLimits | None = None
    ) -> tuple[list[int], Reply]:
        """See ModelClient. The tokens are not known."""
        return [], await self._post(self._request(prompt, prompt.messages(), seed_of(seed, 0), limits), 0)

    async def reply_to(
        self,
        conversation: Conversation,
        messages: Sequence[Message],
        *,
        seed: int,
        limits: ReplyLimits | None = None,
    ) -> tuple[list[int], Reply] | None:
        """See ModelClient. The tokens are not known, and a conversation that is too long fails."""
        whole = _server_messages(conversation, messages)
        request = self._request(conversation.prompt, whole, seed_of(seed, 0), limits)
        return [], await self._post(request, conversation.reply.index)

    async def close(self) -> None:
        """Close the connection."""
        self._connection = None
        await self._resources.aclose()

    async def write(
        self, questions: Iterable[ReplyRequest], *, several_turns: bool = False
    ) -> AsyncGenerator[tuple[ReplyRequest, Reply], None]:
        """Yield each wanted reply as it comes, ``concurrency`` requests at a time; see ReplyWriter."""
        # A generator, since problems are read only as fast as requests are sent.
        missing = ((question, index) for question in questions for index in sorted(question.wanted))
        running: set[asyncio.Task[tuple[ReplyRequest, Reply]]] = set()
        try:
            while True:
                while len(running) < self._settings.concurrency and (job := next(missing, None)):
                    running.add(asyncio.create_task(self._request_reply(*job)))
                if not running:
                    return
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    running.discard(task)
                    yield task.result()
        finally:
            # Requests without a reader would keep the server busy.
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _request_reply(self, question: ReplyRequest, index: int) -> tuple[ReplyRequest, Reply]:
        prompt = question.prompt
        request = self._request(prompt, prompt.messages(), seed_of(question.seed, index))
        return question, await self._post(request, index)

    async def _post(self, request: tuple[str, dict[str, Any]], index: int) -> Reply:
        """Request one reply, with retries. Raises UserError for an error that every request would have."""
        if self._connection is None:
            client = http_client(self._server, self._settings)
            await self._resources.enter_async_context(client)
            self._connection = EndpointConnection(client, self._server, self._settings)
        try:
            path, body = request[0], {name: value for name, value in request[1].items() if value is not None}
            return await self._connection.post(path, body, lambda answer: self._parse_reply(index, answer))
        # One failed request is a failed reply. It must not end the evaluation of the others.
        except RequestFailed as error:
            return failed_reply(index, str(error))

    def _request(
        self, prompt: Prompt, messages: list[Message], seed: int, limits: ReplyLimits | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Return path and body of the request for one reply."""
        plan, server = self._plan, self._server
        limits = limits or ReplyLimits()
        body: dict[str, Any] = {
            "model": server.model,
            "temperature": plan.temperature,
            "top_p": plan.top_p,
            "max_tokens": min(plan.max_tokens, limits.max_tokens or plan.max_tokens),
            "seed": seed,
            # A stream shows that the server is alive while a long reply is generated.
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if stop := [*plan.stop, *limits.stop]:
            body["stop"] = stop
        if plan.top_k:
            body["top_k"] = plan.top_k
        if server.continues_replies:
            # Otherwise these servers use the values in the model's folder, which the manifest would not show.
            body |= {"top_k": plan.top_k or -1, "min_p": 0.0, "repetition_penalty": 1.0}
        if self._chat.format and server.continues_replies:
            # The marks of most formats are special tokens, which servers leave out of a text.
            body["skip_special_tokens"] = False
        if not prompt.chat:
            text = prompt.user + prompt.prefix
            for message in messages[1:]:
                content = str(as_user(message)["content"])
                text += content if message["role"] == "assistant" else f"\n{content}\n{prompt.prefix}"
            return "completions", {**body, "prompt": text, **self._settings.body}
        if self._chat.arguments:
            body["chat_template_kwargs"] = dict(self._chat.arguments)
        if prompt.tools:
            # The parts of a call in a stream have no common form, so the reply comes as a whole.
            body |= {"tools": prompt.tools, "stream": False}
            del body["stream_options"]
        messages = list(messages)
        if prompt.prefix:
            messages.append({"role": "assistant", "content": prompt.prefix})
            # The server continues this message, and does not begin another one after it.
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return "chat/completions", {**body, "messages": messages, **self._settings.body}

    def _parse_reply(self, index: int, answer: dict[str, Any]) -> Reply:
        """Return the reply in an answer's body. Raises for a body of another form, as reading it does."""
        choice = answer["choices"][0]
        end = choice.get("finish_reason")
        if end in ("abort", "error"):
            # What there is of the reply is no answer of the model.
            raise AnswerBroken(f"the server gave up a reply (finish_reason `{end}`)")
        cut = end == "length"
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        content, thinking = texts_of(message.get("content"))
        thinking = thinking or message.get("reasoning") or message.get("reasoning_content")
        # The stop text belongs to the reply. Servers remove it, and some report which one it was.
        stop = choice.get("stop_reason", choice.get("matched_stop"))
        text = content + (stop if isinstance(stop, str) else "")
        calls = [_tool_call(call) for call in message.get("tool_calls") or []]
        found = calls or None
        if thinking:
            # A reply that was cut while it thought has no end of thinking.
            text = f"{THINK}{thinking}" + ("" if cut and not content else END_THINK + text)
        elif self._chat.format:
            read = read_plain(family_named(self._chat.format), text, opened=self._settings.thinks)
            text, found = read.text, calls or read.calls
        # The template wrote the opening tag into the prompt, so the reply does not repeat it.
        elif self._settings.thinks and THINK not in text:
            text = THINK + text
        usage = answer.get("usage") or {}
        details = usage.get("completion_tokens_details") or {}
        thinking_tokens = details.get("reasoning_tokens")
        return Reply(
            index,
            text,
            "length" if cut else "stop",
            int(usage.get("completion_tokens") or 0),
            # Servers may send null or leave the field out. That is not the same as 0 tokens.
            thinking_tokens if isinstance(thinking_tokens, int) else None,
            prompt_tokens=read if isinstance(read := usage.get("prompt_tokens"), int) else None,
            tool_calls=found,
        )


def _tool_call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    return ToolCall(str(function["name"]), str(function.get("arguments") or "{}"), str(call.get("id") or ""))


def _server_messages(conversation: Conversation, messages: Sequence[Message]) -> list[Message]:
    """Return a conversation and further ``messages`` in the form in which the server reported its replies.

    If the server parsed the calls of a reply, they are sent back as calls, and the tools' messages name them.
    """
    prompt = conversation.prompt
    found = prompt.messages()
    pending: list[str] = []
    for turn in conversation.turns:
        found += _with_call_ids(turn.messages, pending)
        calls = turn.reply.tool_calls or []
        pending = [call.id for call in calls if call.id]
        text = (prompt.prefix if prompt.chat else "") + turn.reply.text
        found.append({"role": "assistant", "content": text, **_calls_field(calls)})
    return found + _with_call_ids(messages, pending)


def _with_call_ids(messages: Sequence[Message], pending: list[str]) -> list[Message]:
    ids = iter(pending)
    found: list[Message] = []
    for message in messages:
        call_id = next(ids, None) if message["role"] == "tool" else None
        found.append(as_user(message) if call_id is None else {**message, "tool_call_id": call_id})
    return found


def _calls_field(calls: Sequence[ToolCall]) -> dict[str, Any]:
    if not calls:
        return {}
    named = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in calls]
    return {"tool_calls": [{"id": id_, "type": "function", "function": named_} for id_, named_ in named]}


def seed_of(seed: int, index: int) -> int:
    """Return the seed of one reply: 31 bits, which every server accepts."""
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
