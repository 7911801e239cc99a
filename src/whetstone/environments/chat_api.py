"""The chat API of OpenAI: reads requests, and writes replies as responses."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from whetstone.core.http.refusal import as_json, bad_request
from whetstone.environments.argument_types import typed_arguments
from whetstone.environments.conversation import Reply, ReplyLimits, ToolCall
from whetstone.environments.formats.calls import call_text
from whetstone.environments.formats.family import END_THINK, THINK
from whetstone.environments.generated_cases import MOST_DEPTH, nesting_depth
from whetstone.environments.prompt import Message
from whetstone.environments.tool_calls import read_text, reported_calls

MessageKey = tuple[str, str, tuple[tuple[str, str], ...]]
"""Role, text and tool calls of a message. The keys of a message are equal however a client writes it."""

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
# A chat template removes the thinking of earlier replies, too.
_THINKING_PARTS = ("thinking", "redacted_thinking", "reasoning")
# More of them would make templates and engines slow.
_MOST_MESSAGES, _MOST_STOPS = 2048, 16
# Ignored fields that the response names, and characters of such a name: clients refuse long headers.
_MOST_IGNORED, _LONGEST_IGNORED = 32, 64


class _Function(Struct, frozen=True):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(Struct, frozen=True):
    function: _Function


class _Part(Struct, frozen=True):
    type: str = "text"
    text: str | None = None
    refusal: str | None = None


class _Message(Struct, frozen=True):
    """``function_call`` is the older form of ``tool_calls``."""

    role: str
    content: str | list[_Part | str] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None

    @property
    def parts(self) -> list[_Part]:
        if not isinstance(self.content, list):
            return [_Part(text=self.content or self.refusal)]
        return [_Part(text=part) if isinstance(part, str) else part for part in self.content]

    @property
    def calls(self) -> list[ToolCall]:
        functions = [call.function for call in self.tool_calls or []]
        functions += [self.function_call] if self.function_call is not None else []
        return [ToolCall(function.name, _json_text(function.arguments)) for function in functions]


class _ToolFunction(Struct, frozen=True, omit_defaults=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(Struct, frozen=True):
    type: Literal["function"]
    function: _ToolFunction


class _StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None


class _Body(Struct, frozen=True):
    """The fields with an effect, and those that must not ask for one."""

    messages: list[_Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    response_format: Any = None
    logprobs: bool | None = None
    functions: Any = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def most(self) -> int | None:
        given = [n for n in (self.max_tokens, self.max_completion_tokens) if n is not None]
        return min(given, default=None)


class ChatRequest(Struct, frozen=True):
    """A request for a reply.

    ``keys`` are the keys of ``messages``. ``parse_calls``: find the tool calls of the reply. ``usage``: a
    stream ends with the usage. ``ignored``: names of fields without effect.
    """

    messages: list[Message]
    keys: list[MessageKey]
    tools: list[dict[str, Any]]
    limits: ReplyLimits
    parse_calls: bool
    stream: bool
    usage: bool
    ignored: list[str]


def read_request(data: bytes) -> ChatRequest:
    """Read the body of a request. Raises RequestRefused (400) if it is invalid or not supported."""
    try:
        body = msgspec.json.decode(data, type=_Body)
        names = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        raise bad_request(f"the body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body {_fault_of_text(data) or f'is not JSON: {error}'}") from None
    if fault := _unsupported(body):
        raise bad_request(fault)
    read = [_read_message(message) for message in body.messages]
    tools: list[dict[str, Any]] = [msgspec.to_builtins(tool) for tool in body.tools or []]
    ignored = [name for name in names if name not in _Body.__struct_fields__]
    # A reply is never forced into a form, because that would change the probabilities of its tokens.
    ignored += ["tool_choice"] if body.tool_choice == "required" else []
    return ChatRequest(
        messages=[message for message, _ in read],
        keys=[key for _, key in read],
        tools=tools,
        limits=ReplyLimits(body.most, body.stops),
        parse_calls=bool(tools) and body.tool_choice != "none",
        stream=body.stream is True,
        usage=body.stream_options is not None and body.stream_options.include_usage is True,
        ignored=[
            name
            for name in ignored
            # Another name could end the header of the response that names it.
            if len(name) <= _LONGEST_IGNORED and name.isascii() and name.isidentifier()
        ][:_MOST_IGNORED],
    )


def _fault_of_text(data: bytes) -> str:
    """Return why the text of a body cannot be read; empty if its text is valid."""
    try:
        json.dumps(json.loads(data.decode()), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return "is not UTF-8; encode it so"
    except UnicodeEncodeError:
        return (
            "has a text with half of a surrogate pair, which no Unicode text may have; remove or replace it"
        )
    except (ValueError, RecursionError):
        pass
    return ""


def _unsupported(body: _Body) -> str:
    """Return why a request cannot have the effect that it asks for; empty if it can."""
    if not 0 < len(body.messages) <= _MOST_MESSAGES:
        return f"`messages` must be 1 to {_MOST_MESSAGES} messages"
    if body.n not in (None, 1):
        return "`n` must be 1; send one request for each reply"
    if body.tool_choice not in (None, "none", "auto", "required"):
        return "`tool_choice` must be `auto`, `none` or `required`: no single tool can be forced"
    if body.response_format not in (None, {"type": "text"}):
        return "`response_format` must be `text`: the form of a reply is never forced"
    if body.logprobs:
        return "`logprobs` are recorded, but not returned; leave it out"
    if body.functions:
        return "`functions` is not supported; use `tools`"
    if body.most is not None and body.most < 1:
        return "`max_tokens` must be at least 1"
    if len(body.stops) > _MOST_STOPS or "" in body.stops:
        return f"`stop` must be at most {_MOST_STOPS} texts, none of them empty"
    # One level for the list of tools, one for the tool, and one for its function.
    if any(nesting_depth(tool.function.parameters) > MOST_DEPTH for tool in body.tools or []):
        return f"the parameters of a tool may be nested {MOST_DEPTH} levels deep"
    return ""


def _read_message(message: _Message) -> tuple[Message, MessageKey]:
    """Return a message for the chat template, and its key. Raises RequestRefused."""
    role = _ROLES.get(message.role)
    if role is None:
        raise bad_request(f"unknown role {message.role[:40]!r}; use system, user, assistant or tool")
    parts = [part for part in message.parts if role != "assistant" or part.type not in _THINKING_PARTS]
    if any(part.type not in _TEXT_PARTS for part in parts):
        raise bad_request("the parts of `content` must have the type `text`: the model only reads text")
    text = "\n".join(part.text or part.refusal or "" for part in parts)
    calls = message.calls
    # Calls of a message that the model did not write, because its own replies stay as they were generated.
    shown = "\n".join([text, *map(call_text, calls)]) if calls else text
    return {"role": role, "content": shown}, _message_key(role, text, calls)


def _json_text(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, str):
        return arguments.strip() or "{}"
    return json.dumps(arguments or {}, ensure_ascii=False)


def _message_key(role: str, text: str, calls: Sequence[ToolCall]) -> MessageKey:
    # Clients strip replies, and format arguments in their own way.
    text = text.strip() if role == "assistant" else text
    return role, text, tuple((call.name, _canonical(call.arguments)) for call in calls)


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


class ChatAnswer(Struct, frozen=True):
    """A reply as its client gets it. ``text`` is without the thinking and the calls."""

    text: str
    thinking: str
    calls: list[ToolCall]
    finish_reason: str

    @property
    def key(self) -> MessageKey:
        """The key of the message as which the reply comes back."""
        return _message_key("assistant", self.text, self.calls)


def answer_to(request: ChatRequest, reply: Reply, number: int) -> ChatAnswer:
    """Return the answer to a request. ``number`` makes the ids of its calls unique in an episode."""
    read = read_text(reply.text)
    thinking = read.thinking.strip().removeprefix(THINK).removesuffix(END_THINK).strip()
    text = _until_stop(read.visible, request.limits.stop)
    found = read.calls if reply.tool_calls is None else reported_calls(reply.tool_calls)
    if not request.parse_calls or not found or any(call.error for call in found):
        # A call that cannot be read stays text, so that the agent can answer it.
        return ChatAnswer(text, thinking, [], reply.finish_reason)
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in request.tools}
    calls = [
        ToolCall(
            call.name,
            json.dumps(typed_arguments(call, schemas.get(call.name, {}))),
            call.id or f"call_{number}_{i}",
        )
        for i, call in enumerate(found)
    ]
    return ChatAnswer(_until_stop(read.before, request.limits.stop).rstrip(), thinking, calls, "tool_calls")


def _until_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))]


def response_to(request: ChatRequest, answer: ChatAnswer, reply: Reply, id: str, model: str) -> str:
    """Return the body of a response: a JSON object, or a stream of events with the whole reply."""
    read, written = reply.prompt_tokens or 0, reply.tokens
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.calls else "")}
    if answer.thinking:
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = [
            {
                "index": index,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(answer.calls)
        ]
    head = {"id": id, "model": model, "created": int(time.time())}
    end = {"index": 0, "finish_reason": answer.finish_reason, "logprobs": None}
    if not request.stream:
        choices = [{**end, "message": message}]
        return _json({**head, "object": "chat.completion", "choices": choices, "usage": usage})
    head["object"] = "chat.completion.chunk"
    begin = {**end, "finish_reason": None, "delta": message}
    chunks: list[dict[str, Any]] = [{"choices": [begin]}, {"choices": [{**end, "delta": {}}]}]
    if request.usage:
        chunks.append({"choices": [], "usage": usage})
    return "".join(f"data: {_json({**head, **chunk})}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _json(value: Any) -> str:
    return as_json(value).decode()
