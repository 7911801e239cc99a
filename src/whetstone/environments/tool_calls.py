"""Finds the tool calls in a reply.

The calls of a server or a response parser are taken as they are. Otherwise the text is read, without its
thinking. Three forms are calls:

- ``<tool_call>`` tags around a JSON object with ``name`` and ``arguments``, as Qwen and Hermes write it;
- the same tags around ``<function=NAME>`` with ``<parameter=NAME>`` tags, as Qwen3-Coder writes it;
- a reply that is one JSON object with ``name`` and ``arguments`` or ``parameters``, as Llama writes it.

Everything else is text of the model, such as a ``<tool_response>``. A call that cannot be read has an
``error`` for the model. Each part of the text is parsed once, so that the time is linear.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct

from whetstone.core.verdict import storable
from whetstone.environments.conversation import Reply, ToolCall
from whetstone.environments.generated_cases import MOST_DEPTH, nesting_depth
from whetstone.judge.extract import strip_thinking

_TAG = re.compile(r"(^[ \t]*+)?<(/?)tool_call>", re.MULTILINE)
_BODY = re.compile(r"\s*+(?:\{|<function=)")
_BEGINS_CALL = re.compile(r'\{\s*+"name"\s*+:')
_FENCE = re.compile(r"```(?:json)?[ \t]*+\n")
_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER, _END_PARAMETER = "<parameter=", "</parameter>"
# A longer number is no double and no 64-bit integer, and would take long to convert.
_MOST_DIGITS = 400
_MOST_QUOTED = 60


class Call(Struct, frozen=True):
    """A tool call of a reply.

    ``error`` says why it cannot be run; empty for a call that was read. ``untyped``: the arguments are texts,
    whatever their types. ``id`` is that of the server.
    """

    name: str
    arguments: dict[str, Any] = {}
    error: str = ""
    untyped: bool = False
    id: str = ""


class MalformedCall(Exception):
    """A call that cannot be read. The message tells the model what is wrong."""


def calls_of(reply: Reply) -> list[Call]:
    """Return the tool calls of a reply, in order."""
    if reply.tool_calls is None:
        return read_calls(reply.text)
    return [_reported_call(call) for call in reply.tool_calls]


def read_calls(text: str) -> list[Call]:
    """Return the tool calls in the text of a reply, in order."""
    visible = strip_thinking(text)
    if visible is None:
        return []
    return [_tagged_call(body.strip()) for body in _bodies(visible)] or _bare_calls(visible.strip())


def read_json(text: str) -> Any:
    """Return a JSON value that a model wrote, in linear time. Line ends within its texts are allowed.

    Raises MalformedCall for other text, for a name that is given twice, NaN, numbers that are too long,
    nesting beyond ``MOST_DEPTH``, and texts that are no Unicode.
    """
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_constant=_reject_constant,
        parse_int=_integer,
        parse_float=_number,
        strict=False,
    )
    try:
        value = decoder.decode(text)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise MalformedCall(f"it is not valid JSON: {error.msg} (character {error.pos})") from None
    except RecursionError:
        raise MalformedCall("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise MalformedCall("its text is not valid Unicode") from None
    if nesting_depth(value) > MOST_DEPTH:
        raise MalformedCall("it is nested too deeply")
    return value


def read_object(text: str) -> dict[str, Any]:
    """Return a JSON object that a model wrote. Raises MalformedCall; see ``read_json``."""
    value = read_json(text)
    if not isinstance(value, dict):
        raise MalformedCall("it is not a JSON object")
    return cast("dict[str, Any]", value)


def quoted(text: str) -> str:
    """Return the beginning of a model's text as one short line for a message."""
    return f"`{storable(text[:_MOST_QUOTED])}`"


def _reported_call(call: ToolCall) -> Call:
    try:
        return Call(call.name, read_object(call.arguments), id=call.id)
    except MalformedCall as error:
        return Call(call.name, error=f"the arguments cannot be read: {error}", id=call.id)


def _bodies(text: str) -> Iterator[str]:
    """Yield the text within each pair of tags. The end of the text, or a new line with a tag, also ends it.

    A tag within a line counts if a call follows. Programs may have the tag in their texts.
    """
    start: int | None = None
    for tag in _TAG.finditer(text):
        begins_line, ends = tag[1] is not None, bool(tag[2])
        if start is not None and (ends or begins_line):
            yield text[start : tag.start()]
            start = None
        if start is None and not ends and (begins_line or _BODY.match(text, tag.end())):
            start = tag.end()
    if start is not None:
        yield text[start:]


def _tagged_call(body: str) -> Call:
    try:
        if body.startswith(_FUNCTION):
            return _function_call(body)
        return _call_of(read_object(body))
    except MalformedCall as error:
        return Call("", error=f"the call cannot be read: {error}")


def _bare_calls(text: str) -> list[Call]:
    """Return the call of a text that is one call and nothing else, as an object or in a fenced block."""
    fence = _FENCE.match(text)
    if fence is not None and text.endswith("```"):
        text = text[fence.end() : -3].strip()
    if not (text.startswith("{") and text.endswith("}")):
        return []
    try:
        value = read_object(text)
        is_call = isinstance(value.get("name"), str) and bool({"arguments", "parameters"} & value.keys())
        return [_call_of(value)] if is_call else []
    except MalformedCall as error:
        malformed = Call("", error=f"the call cannot be read: {error}")
        return [malformed] if _BEGINS_CALL.match(text) else []


def _call_of(value: dict[str, Any]) -> Call:
    """Return the call that an object describes. Raises MalformedCall."""
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise MalformedCall("it has no `name`")
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = read_object(arguments)
    if not isinstance(arguments, dict | None):
        raise MalformedCall("`arguments` is not a JSON object")
    return Call(name, cast("dict[str, Any]", arguments or {}))


def _function_call(body: str) -> Call:
    """Return the call in a ``<function=NAME>`` tag. Raises MalformedCall."""
    name, closed, rest = body[len(_FUNCTION) :].partition(">")
    inner, ended, _ = rest.rpartition(_END_FUNCTION)
    if not closed or not ended:
        raise MalformedCall(f"`{_END_FUNCTION}` is missing")
    arguments: dict[str, Any] = {}
    at = inner.find(_PARAMETER)
    while at >= 0:
        begin = inner.find(">", at)
        end = inner.find(_END_PARAMETER, begin)
        if begin < 0 or end < 0:
            raise MalformedCall(f"`{_END_PARAMETER}` is missing")
        parameter = inner[at + len(_PARAMETER) : begin].strip()
        if parameter in arguments:
            raise MalformedCall(f"the argument {quoted(parameter)} is given twice")
        arguments[parameter] = inner[begin + 1 : end].removeprefix("\n").removesuffix("\n")
        at = inner.find(_PARAMETER, end)
    try:
        body.encode()
    except UnicodeEncodeError:
        raise MalformedCall("its text is not valid Unicode") from None
    return Call(name.strip(), arguments, untyped=True)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise MalformedCall(f"the name {quoted(name)} is given twice in an object")
    return found


def _reject_constant(name: str) -> Any:
    raise MalformedCall(f"{name} is not valid JSON")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise MalformedCall("a number has too many digits")
    return int(digits)


def _number(digits: str) -> float:
    if len(digits) > _MOST_DIGITS or not math.isfinite(value := float(digits)):
        raise MalformedCall("a number is too large or has too many digits")
    return value
