"""Reads the data of other trainers: a problem in a dataset column, and a reply as text or messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, problem_from

_REMEMBERED = 64
_WHOLE_PROBLEM = (
    "it is the whole problem as JSON: `whetstone data convert SET OUT --export-format trl` (or verl-whole) "
    "writes it"
)


def problem_of(value: object) -> Problem:
    """Return the problem of a dataset cell: JSON in the published schema, a dict of it, or a Problem.

    Raises UserError for anything else, including tests in another judge's format.
    """
    if isinstance(value, str | bytes):
        return _read(value if isinstance(value, str) else value.decode(errors="replace"))
    if isinstance(value, Problem):
        return value
    if isinstance(value, Mapping):
        return problem_from(dict(cast("Mapping[str, Any]", value)))
    raise UserError(f"the problem of a reply is a {type(value).__name__}; {_WHOLE_PROBLEM}")


@lru_cache(_REMEMBERED)
def _read(text: str) -> Problem:
    # All replies to a prompt have the same problem text.
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise UserError(f"the problem of a reply, {text[:60]!r}, is not JSON; {_WHOLE_PROBLEM}") from None
    if not isinstance(value, dict) or "tests" not in value:
        raise UserError(f"the problem of a reply, {text[:60]!r}, holds no `tests`; {_WHOLE_PROBLEM}")
    return problem_from(cast("dict[str, Any]", value))


def reply_text(reply: str | Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a reply: a string, a message, or messages, of which the last one counts.

    Thinking that a server or parser separated from the text is put back in <think> tags.
    """
    if isinstance(reply, str):
        return reply
    message = reply if isinstance(reply, Mapping) else (reply[-1] if reply else {})
    content, thinking = message.get("content"), message.get("reasoning_content")
    text = content if isinstance(content, str) else _join_parts(content)
    if not thinking:
        return text
    return f"<think>{thinking}</think>{text}" if content is not None else f"<think>{thinking}"


def _join_parts(parts: object) -> str:
    """Return the text of a content that consists of parts."""
    found = cast("list[Any]", parts) if isinstance(parts, list) else []
    return "".join(str(part.get("text") or "") for part in found if isinstance(part, dict))
