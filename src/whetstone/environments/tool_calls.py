"""Finds the tool calls in a reply.

The calls of a server or a response parser are taken as they are. Otherwise the text is read, without its
thinking. Four forms are calls:

- ``<tool_call>`` tags around JSON objects with ``name`` and ``arguments``, as Qwen and Hermes write them;
- ``<function=NAME>`` with ``<parameter=NAME>`` tags, with ``<tool_call>`` or without, as Qwen3-Coder writes;
- ``<function=NAME>`` with a JSON object of the arguments, as Llama 3.1 writes it for tools of users;
- a reply that is one JSON object with ``name`` and ``arguments`` or ``parameters``, as Llama writes it.

A JSON call ends where its object ends, so its texts may contain any tag. Everything else is text of the
model, such as a ``<tool_response>``. A call that cannot be read has an ``error`` for the model. Each part of
the text is parsed once, so that the time is linear.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

from msgspec import Struct

from whetstone.core.verdict import storable
from whetstone.environments.conversation import Reply, ToolCall
from whetstone.environments.function_tags import (
    END_FUNCTION,
    END_PARAMETER,
    FUNCTION,
    QWEN_TAGS,
    FunctionCall,
)
from whetstone.environments.generated_cases import MOST_DEPTH, nesting_depth
from whetstone.judge.extract import strip_thinking

_START = re.compile(r"(^[ \t]*+)?(?:(<tool_call>)\s*+|(?=<function=))", re.MULTILINE)
_NEXT_TAG = re.compile(r"</tool_call>|^[ \t]*+<tool_call>", re.MULTILINE)
_NAMED_OBJECT = re.compile(r"<function=([^<>\n]{1,200}+)>\s*+(?=\{)")
_NEXT_OBJECT = re.compile(r"\s*+(?=\{)")
_JSON_TOKEN = re.compile(r'\s*+(?:([,:])|([{\[])|([}\]])|"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+.\w]++)', re.DOTALL)
_BEGINS_CALL = re.compile(r'\{\s*+"name"\s*+:')
_FENCE = re.compile(r"```(?:json)?[ \t]*+\n")
_THINK = re.compile(r"</?think>")
# A longer number is no double and no 64-bit integer, and would take long to convert.
_MOST_DIGITS = 400
_MOST_QUOTED = 60
# Calls that are searched for tags of the thinking. An episode has far fewer.
_MOST_MASKED = 256
# The end of a deeper object is not searched: it cannot be read.
_MOST_SCANNED_DEPTH = 4 * MOST_DEPTH


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


class ReadText(Struct, frozen=True):
    """The parts of a reply's text: ``thinking`` with its tags, and the ``visible`` text after it.

    ``calls`` are in the visible text, and ``before`` is what precedes them; all of it without calls.
    """

    thinking: str
    visible: str
    before: str
    calls: list[Call]


class MalformedCall(Exception):
    """A call that cannot be read. The message tells the model what is wrong."""


def calls_of(reply: Reply) -> list[Call]:
    """Return the tool calls of a reply, in order."""
    return read_text(reply.text).calls if reply.tool_calls is None else reported_calls(reply.tool_calls)


def reported_calls(calls: list[ToolCall]) -> list[Call]:
    """Return the calls that a server or a response parser found."""
    found: list[Call] = []
    for call in calls:
        try:
            found.append(Call(call.name, read_object(call.arguments), untyped=call.untyped, id=call.id))
        except MalformedCall as error:
            found.append(Call(call.name, error=f"the arguments cannot be read: {error}", id=call.id))
    return found


def read_text(text: str) -> ReadText:
    """Return the parts of a reply's text."""
    found = _placed_calls(text)
    placed = [*islice(found, _MOST_MASKED)]
    begin = _end_of_thinking(text, placed)
    visible = text[begin:]
    bare = _bare_calls(visible)
    if bare and not bare[0].error:
        return ReadText(text[:begin], visible, "", bare)
    # A draft in the thinking may have tags that do not end. It must not hide the calls after it.
    placed = [*_placed_calls(visible)] if begin else [*placed, *found]
    if not placed:
        return ReadText(text[:begin], visible, "" if bare else visible, bare)
    return ReadText(text[:begin], visible, visible[: placed[0].start], [each.call for each in placed])


def read_calls(text: str) -> list[Call]:
    """Return the tool calls in the text of a reply, in order."""
    return read_text(text).calls


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


class _PlacedCall(Struct, frozen=True):
    """A call, and its place in a text."""

    call: Call
    start: int
    end: int


def _end_of_thinking(text: str, calls: list[_PlacedCall]) -> int:
    """Return where the visible text begins. A tag in the arguments of a call ends no thinking."""
    bare = _bare_calls(text)
    if bare and not bare[0].error:
        return 0
    parts: list[str] = []
    at = 0
    for each in calls:
        if not each.call.error:
            hidden = text[each.start : each.end]
            parts += [text[at : each.start], _THINK.sub(lambda tag: "x" * len(tag[0]), hidden)]
            at = each.end
    visible = strip_thinking("".join([*parts, text[at:]]))
    return len(text) - len(visible) if visible is not None else len(text)


def _placed_calls(text: str) -> Iterator[_PlacedCall]:
    """Yield the calls in tags.

    A tag within a line counts if a call follows. Programs may have the tag in their texts.
    """
    functions, at = QWEN_TAGS.calls(text), 0
    while (tag := _START.search(text, at)) is not None:
        start, body, is_tagged = tag.start(), tag.end(), tag[2] is not None
        function = functions.get(body)
        at = body if is_tagged else body + 1
        if is_tagged and text.startswith("{", body):
            for call in _json_calls(text, start, body):
                at = call.end
                yield call
        elif function is not None and function.end is not None:
            at = function.end
            yield _PlacedCall(_function_call(function, text), start, at)
        elif (is_tagged or tag[1] is not None) and (named := _NAMED_OBJECT.match(text, body)):
            at = end_of_object(text, named.end()) or _end_of_body(text, body)
            yield _PlacedCall(_named_call(named[1].strip(), text[named.end() : at]), start, at)
        elif tag[1] is not None and (is_tagged or function is not None):
            at = _end_of_body(text, tag.end(2) if is_tagged else body)
            yield _PlacedCall(_malformed_call(text[body:at].strip()), start, at)


def _json_calls(text: str, start: int, at: int) -> Iterator[_PlacedCall]:
    """Yield the calls of the objects that begin at ``at``. The last one may be malformed."""
    while True:
        end = end_of_object(text, at)
        if end is None:
            end = _end_of_body(text, at)
        call = _json_call(text[at:end].strip())
        yield _PlacedCall(call, start, end)
        following = _NEXT_OBJECT.match(text, end)
        if following is None or call.error:
            return
        start = at = following.end()


def end_of_object(text: str, at: int) -> int | None:
    """Return where the JSON object ends that begins at ``at``; None if it has no end.

    It is found by tokens, and a tag outside of texts is none. So of several places where an object could
    begin, at most one is read far beyond the next.
    """
    depth, follows_value = 0, False
    while (token := _JSON_TOKEN.match(text, at)) is not None:
        separator, opening, closing = token.groups()
        if separator is None and closing is None and follows_value:
            return None
        depth += (opening is not None) - (closing is not None)
        at = token.end()
        if depth == 0:
            return at
        if depth > _MOST_SCANNED_DEPTH:
            return None
        follows_value = separator is None and opening is None
    return None


def _end_of_body(text: str, at: int) -> int:
    """Return where a call ends that cannot be read: at the next tag, or with the text."""
    tag = _NEXT_TAG.search(text, at)
    return len(text) if tag is None else tag.start()


def _json_call(body: str) -> Call:
    try:
        return _call_of(read_object(body))
    except MalformedCall as error:
        return Call("", error=f"the call cannot be read: {error}")


def _named_call(name: str, arguments: str) -> Call:
    try:
        return Call(name, read_object(arguments))
    except MalformedCall as error:
        return Call("", error=f"the call cannot be read: {error}")


def _malformed_call(body: str) -> Call:
    if not body.startswith(FUNCTION):
        return _json_call(body)
    missing = END_FUNCTION if END_FUNCTION not in body else END_PARAMETER
    fault = f"`{missing}` is missing" if missing not in body else "its tags do not fit together"
    return Call("", error=f"the call cannot be read: {fault}")


def _function_call(found: FunctionCall, text: str) -> Call:
    """Return the call in a ``<function=NAME>`` tag."""
    try:
        arguments = _unique(found.parameters(text))
        "".join([found.name, *arguments, *arguments.values()]).encode()
    except MalformedCall as error:
        return Call("", error=f"the call cannot be read: {error}")
    except UnicodeEncodeError:
        return Call("", error="the call cannot be read: its text is not valid Unicode")
    return Call(found.name, arguments, untyped=True)


def _bare_calls(text: str) -> list[Call]:
    """Return the call of a text that is one call and nothing else, as an object or in a fenced block."""
    text = text.strip()
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


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise MalformedCall(f"the name {quoted(name)} is given twice")
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
