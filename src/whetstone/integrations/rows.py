"""Reads the data of other trainers: a problem in a dataset column, and a reply as text or messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, problem_from

_REMEMBERED = 64
# Python converts a text of more digits to an integer only if a setting of the process allows it.
_PLAIN_DIGITS = 4300
# Conversion costs quadratic time: this many digits take about 0.3 s.
_MOST_DIGITS = 100_000
_WHOLE_PROBLEM = (
    "it is the whole problem as JSON: `whetstone data convert SET OUT --export-format trl` (or verl-whole) "
    "writes it"
)


def problem_of(value: object) -> Problem:
    """Return the problem of a dataset cell: JSON in the published schema, a dict of it, or a Problem.

    Raises UserError for anything else, including tests in another judge's format.
    """
    if isinstance(value, str | bytes):
        # A plain string: a text of numpy is a str, and no JSON reader takes it.
        return _read(str(value) if isinstance(value, str) else value.decode(errors="replace"))
    if isinstance(value, Problem):
        return value
    if isinstance(value, Mapping):
        return problem_from(_without_nulls(cast("Mapping[str, Any]", value)))
    raise UserError(f"the problem of a reply is a {type(value).__name__}; {_WHOLE_PROBLEM}")


def _without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    # A table fills the fields of objects that a row lacks with null.
    present = {name: value for name, value in fields.items() if value is not None}
    return {name: _without_nulls(v) if isinstance(v, Mapping) else v for name, v in present.items()}


@lru_cache(_REMEMBERED)
def _read(text: str) -> Problem:
    # All replies to a prompt have the same problem text.
    try:
        value = _json(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"the problem of a reply, {text[:60]!r}, is not JSON ({error}); {_WHOLE_PROBLEM}"
        ) from None
    if not isinstance(value, dict) or "tests" not in value:
        raise UserError(f"the problem of a reply, {text[:60]!r}, holds no `tests`; {_WHOLE_PROBLEM}")
    return problem_from(cast("dict[str, Any]", value))


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        # Only the standard library reads lone surrogates and integers of thousands of digits.
        return json.loads(text, parse_int=read_integer)


def read_integer(digits: str) -> int:
    """Return the integer of a JSON text, which may have thousands of digits. Raises ValueError for too
    many."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits) if len(digits) <= _PLAIN_DIGITS else int(Decimal(digits))


def reply_text(reply: object) -> str:
    """Return the text of a reply: a string, a message, or messages, of which the model's last one counts.

    What a tool or a user says after it is no reply. Thinking that a server or parser separated from the text
    is put back in <think> tags. Nothing (None) is an empty reply. Raises UserError for anything else.
    """
    if isinstance(reply, str):
        return str(reply)
    message = reply if isinstance(reply, Mapping) else _last_message(reply)
    fields = cast("Mapping[str, Any]", message)
    text, thinking = _content(fields.get("content")), fields.get("reasoning_content")
    if not thinking:
        return text
    return f"<think>{thinking}</think>{text}" if fields.get("content") is not None else f"<think>{thinking}"


def _last_message(messages: object) -> Mapping[str, Any]:
    """Return the model's last message; an empty one if there is none."""
    if messages is None:
        return {}
    found = _list_of(messages)
    if found is None or not all(isinstance(message, Mapping) for message in found):
        kind = type(messages).__name__
        raise UserError(f"a reply is a {kind}; expected a text, a message, or a list of messages")
    of_model = (m for m in reversed(found) if m and m.get("role", "assistant") == "assistant")
    return next(of_model, {})


def _content(content: object) -> str:
    """Return the text of a message's content: a text, or parts."""
    if content is None or isinstance(content, str):
        return str(content or "")
    parts = _list_of(content)
    if parts is None or not all(isinstance(part, Mapping | str) for part in parts):
        raise UserError(
            f"the content of a message is a {type(content).__name__}; expected a text, or a list of parts"
        )
    return "".join(part if isinstance(part, str) else str(part.get("text") or "") for part in parts)


def _list_of(value: object) -> list[Any] | None:
    """Return a list, a tuple or an array of numpy as a list; None for anything else."""
    if isinstance(value, list | tuple):
        return list(cast("Sequence[Any]", value))
    # Rows that pandas read have arrays in place of lists.
    to_list = getattr(value, "tolist", None)
    found: object = to_list() if callable(to_list) else None
    return cast("list[Any]", found) if isinstance(found, list) else None
