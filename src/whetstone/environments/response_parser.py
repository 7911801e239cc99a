"""Reads replies with the response template of a tokenizer, for models with a format of their own.

transformers (5.13 and newer) applies the template. Its patterns run on text of the model, so only templates
and texts are used whose cost is bounded: delimiters must be literal texts, and contents text or plain JSON.
For everything else, and for replies that the template does not fit, the text is read (``tool_calls``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from whetstone.environments.conversation import ToolCall
from whetstone.environments.prompt import Tokenizer

# Each delimiter found makes the parser search the rest of the text for all delimiters.
_MOST_SEARCHED = 50_000_000
_PLAIN_CONTENTS = ("text", "json")


class ParsedReply(Struct, frozen=True):
    """What a response template finds in a reply. The thinking is without its marks."""

    thinking: str
    content: str
    calls: list[ToolCall]


def parsed_reply(
    tokenizer: Tokenizer, reply: str, before: str, tools: Sequence[dict[str, Any]]
) -> ParsedReply | None:
    """Return what the tokenizer's response template finds in a reply with its special tokens.

    ``before`` is the text before the reply. Returns None if there is no such template, or if it does not fit.
    """
    template: Any = getattr(tokenizer, "response_template", None)
    if not isinstance(template, Mapping):
        return None
    literals = _delimiters(cast("Mapping[str, Any]", template))
    if literals is None:
        return None
    text = before + reply
    if (1 + sum(map(text.count, literals))) * len(literals) * len(text) > _MOST_SEARCHED:
        return None
    parser: Any = tokenizer
    try:
        message = parser.parse_response(reply, prefix=before, tools=list(tools))
        calls = [_tool_call(call["function"]) for call in message.get("tool_calls") or []]
        thinking, content = (str(message.get(name) or "") for name in ("thinking", "content"))
        return ParsedReply(thinking, content, calls)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _delimiters(template: Mapping[str, Any]) -> list[str] | None:
    """Return the texts that begin and end the fields of a template; None if it needs patterns."""
    found: list[str] = []
    fields = template.get("fields")
    if not isinstance(fields, Mapping) or "start_anchor_pattern" in template:
        return None
    for field in cast("Mapping[str, Any]", fields).values():
        if not isinstance(field, Mapping):
            return None
        given = cast("Mapping[str, Any]", field)
        if {"open_pattern", "close_pattern"} & given.keys() or given.get("content_args"):
            return None
        if given.get("content", "text") not in _PLAIN_CONTENTS:
            return None
        found += _texts(given.get("open")) + _texts(given.get("close"))
    return found


def _texts(value: Any) -> list[str]:
    texts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return [text for text in texts if isinstance(text, str) and text]


def _tool_call(function: Mapping[str, Any]) -> ToolCall:
    name, arguments = function["name"], function.get("arguments", {})
    if not isinstance(name, str):
        raise TypeError(f"the name of a call is a {type(name).__name__}")
    return ToolCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments))
