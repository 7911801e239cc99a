"""Reads a reply of any family, and writes it in one form that everything else understands.

The thinking is in ``<think>`` tags before the visible text; thinking that does not end has no closing tag.
Calls in a form of the family are JSON in ``<tool_call>`` tags. A mark of another family is text. Within the
thinking, ``<think>`` and ``</think>`` are written with a backslash, so that only the family's own mark ends
it.

A model with a format of its own has a response template in its tokenizer, which transformers (5.13 and newer)
applies. Its patterns run on text of the model, so only templates and texts are used whose cost is bounded:
delimiters must be literal texts, and contents text or plain JSON. For everything else, and for replies that
the template does not fit, the text is read (``tool_calls``).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from whetstone.environments.conversation import ToolCall
from whetstone.environments.formats.calls import call_reader, call_text
from whetstone.environments.formats.family import END_THINK, THINK, Channels, Family, family_of
from whetstone.environments.formats.marks import MARK, MarkedText, Marks
from whetstone.environments.prompt import Prompt, Tokenizer
from whetstone.environments.tool_calls import MalformedCall, read_object
from whetstone.judge.extract import strip_thinking

# Each delimiter found makes the parser search the rest of the text for all delimiters.
_MOST_SEARCHED = 50_000_000
_PLAIN_CONTENTS = ("text", "json")


def parsed_calls(
    tokenizer: Tokenizer, reply: str, before: str, tools: Sequence[dict[str, Any]]
) -> list[ToolCall] | None:
    """Return the calls that the tokenizer's response template finds in a reply with its special tokens.

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
        return [_tool_call(call["function"]) for call in message.get("tool_calls") or []]
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


_MARK = re.compile(MARK)
_RECIPIENT = re.compile(r"\bto=([^\s\ufdd0-\ufdef]{1,200}+)")
_TAGS = re.compile(r"<(?=/?(?:think|tool_call|answer)>)")


class Reading(Struct, frozen=True):
    """A reply as text in the common form, the number of tokens of its thinking (None: not known), and its
    calls (None: they are read from the text)."""

    text: str
    thinking_tokens: int | None
    calls: list[ToolCall] | None


class ReplyFormat:
    """Reads the tokens of replies by the family of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.family = family_of(tokenizer)
        self._tokenizer = tokenizer
        self._marks = Marks(self.family, tokenizer)

    def read(self, ids: Sequence[int], prompt: Prompt, before: str) -> Reading:
        """Return a reply to ``prompt``. ``before`` is the text before the reply, at least from the end of the
        last turn, with the prefix of the reply."""
        parsed = None
        if getattr(self._tokenizer, "response_template", None) is not None:
            whole = self._tokenizer.decode(ids, skip_special_tokens=False)
            parsed = parsed_calls(self._tokenizer, whole, before, prompt.tools)
        if self._marks:
            marked = self._marks.of_tokens(ids)
            read = read_marked(self._marks, marked, before)
        else:
            read = Reading(_opening(self.family, before) + self._text(ids), None, None)
        if prompt.prefix and read.text.startswith(THINK) and self._marks:
            # Only a tag at the beginning of a line begins the thinking.
            read = Reading(f"\n{read.text}", read.thinking_tokens, read.calls)
        tokens = read.thinking_tokens
        if tokens is None:
            tokens = self._thinking_tokens(read.text, ids)
        calls = None
        if prompt.tools:
            calls = read.calls if parsed is None else parsed
        return Reading(read.text, tokens, calls)

    def ends_twice(self, last: int, first: int) -> bool:
        """Return whether the last token of a reply and the ``first`` one behind it both end the reply."""
        are_ends = {last, first} <= self._marks.end_tokens
        return are_ends or (last == first and not self._text([first]))

    def _thinking_tokens(self, text: str, ids: Sequence[int]) -> int:
        """Return how many tokens belong to the thinking, from the text of its closing mark."""
        if END_THINK not in text:
            return len(ids) if THINK in text else 0
        mark = self.family.thinking[1]
        # Once a prefix of the tokens contains the mark, all longer ones do, so a binary search finds its last
        # token.
        lengths = range(1, len(ids) + 1)
        found = 1 + bisect_left(lengths, True, key=lambda m: mark in self._text(ids[:m]))
        return min(found, len(ids))

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)


def read_plain(family: Family, text: str, *, opened: bool = False) -> Reading:
    """Return a reply that a server sent as text. ``opened``: the prompt began its thinking."""
    marks = Marks(family)
    text = text.rstrip()
    for end in family.ends:
        text = text.removesuffix(end)
    before = family.thinking[0] if opened else ""
    if not marks:
        return Reading(_opening(family, before) + text, None, None)
    return read_marked(marks, marks.of_text(text), before)


def read_marked(marks: Marks, marked: MarkedText, before: str) -> Reading:
    """Return a reply with marks. ``before`` is the text before it."""
    if marks.family.channels is not None:
        return _read_channels(marks.family.channels, marks, marked, before)
    opening = _opening(marks.family, before)
    if not marks.finds_thinking:
        read = _with_tags(opening, _scan(marks, marked.text, inside=False).pieces)
        return read if marks.family.calls else Reading(read.text, None, None)
    found = _scan(marks, marked.text, inside=bool(opening))
    if found.inside:
        return Reading(_joined(_without_thinking_marks(marks, marked.text), None), None, [])
    visible = "".join(piece.text for piece in found.pieces)
    calls = None
    if marks.family.calls is not None:
        calls = [call for piece in found.pieces for call in piece.calls]
    if not found.visible_from:
        return Reading(visible, 0, calls)
    thinking = _without_thinking_marks(marks, marked.text[: found.visible_from])
    return Reading(_joined(thinking, visible), marked.counts.get(found.visible_from), calls)


def _opening(family: Family, before: str) -> str:
    """Return the tag that begins a reply whose thinking begins in the prompt; empty for others."""
    ends = tuple(family.opened_by) or (family.thinking[0],)
    return THINK if before.rstrip().endswith(ends) else ""


def _joined(thinking: str, visible: str | None) -> str:
    """Return a reply in the common form. ``visible`` is None if its thinking does not end."""
    inner = thinking.replace(END_THINK, "<\\/think>").replace(THINK, "<\\think>")
    return THINK + inner + ("" if visible is None else END_THINK + visible)


def _without_thinking_marks(marks: Marks, text: str) -> str:
    for literal in marks.family.thinking:
        text = text.replace(marks.char(literal), "")
    return marks.plain(text)


class _Piece(Struct, frozen=True):
    """A part of the visible text, and the calls in it."""

    text: str
    calls: list[ToolCall] = []


class _Scanned(Struct):
    """The visible parts of a reply, where they begin, and whether the reply ends in its thinking."""

    inside: bool
    visible_from: int = 0
    pieces: list[_Piece] = []


def _scan(marks: Marks, text: str, *, inside: bool) -> _Scanned:
    """Go through the marks of a reply once. ``inside``: it begins in its thinking.

    Text and calls before thinking belong to the thinking.
    """
    opening, closing = map(marks.char, marks.family.thinking) if marks.finds_thinking else ("", "")
    form = marks.family.calls
    call_mark = marks.char(form.open) if form else ""
    read = call_reader(form, marks, text) if form else None
    found = _Scanned(inside)
    at = begin = 0
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == closing:
            found.inside, found.pieces, found.visible_from = False, [], at
            begin = at
        elif mark[0] == opening:
            found.inside = True
        elif read is not None and mark[0] == call_mark and not found.inside:
            found.pieces.append(_Piece(marks.plain(text[begin : mark.start()])))
            calls = read(at)
            if calls is None:
                # The text after the mark may close the thinking, so it stays text.
                found.pieces.append(_Piece(marks.plain(mark[0]), [ToolCall("", "")]))
            else:
                at = calls[1]
                found.pieces.append(_piece_of(calls[0], marks.plain(text[mark.start() : at])))
            begin = at
    found.pieces.append(_Piece(marks.plain(text[begin:])))
    return found


def _piece_of(calls: list[ToolCall], written: str) -> _Piece:
    """Return calls in the common form, or as they are written if their arguments are no JSON object."""
    try:
        for call in calls:
            read_object(call.arguments)
    except MalformedCall:
        return _Piece(written, calls)
    return _Piece("\n".join(map(_shown, calls)), calls)


def _shown(call: ToolCall) -> str:
    """Return a call in the common form, in whose texts no tag has a meaning."""
    opening, line, rest = call_text(call).partition("\n")
    inner, end_line, closing = rest.rpartition("\n")
    return opening + line + _TAGS.sub(r"\\u003c", inner) + end_line + closing


def _with_tags(opening: str, pieces: Sequence[_Piece]) -> Reading:
    """Return a reply whose thinking is in ``<think>`` tags of its text."""
    parts, placed, length = [opening], list[tuple[int, list[ToolCall]]](), len(opening)
    for piece in pieces:
        parts.append(piece.text)
        placed.append((length, piece.calls))
        length += len(piece.text)
    text = "".join(parts)
    visible = strip_thinking(text)
    begin = length if visible is None else length - len(visible)
    return Reading(text, None, [call for at, calls in placed if at >= begin for call in calls])


def _read_channels(channels: Channels, marks: Marks, marked: MarkedText, before: str) -> Reading:
    """Return a reply of messages in channels. A plain text without any mark is visible."""
    _, start, header = before.rpartition(channels.start)
    given = marks.of_text(start + header).text if start else ""
    text = given + marked.text
    if _MARK.search(text) is None:
        return Reading(text, 0, [])
    start, channel, message, *ends = map(
        marks.char, (channels.start, channels.channel, channels.message, *channels.ends)
    )
    thinking: list[str] = []
    pieces: list[_Piece] = []
    visible_from = at = 0
    for part in re.split(f"[{start}{''.join(ends)}]", text):
        head, has_text, body = part.partition(message)
        _, has_channel, name = head.partition(channel)
        recipient = _RECIPIENT.search(head)
        if has_text and recipient is not None:
            call = ToolCall(recipient[1].removeprefix("functions."), marks.plain(body).strip() or "{}")
            pieces.append(_piece_of([call], marks.plain(body)))
        elif has_text and (not has_channel or name.split()[:1] == [channels.answer]):
            pieces.append(_Piece(marks.plain(body)))
        elif part.strip():
            thinking += [piece.text for piece in pieces] + [marks.plain(body if has_text else part)]
            pieces, visible_from = [], at + len(part) + 1
        at += len(part) + 1
    if not pieces:
        return Reading(_joined("\n".join(thinking), None), None, [])
    visible = "".join(piece.text for piece in pieces)
    calls = [call for piece in pieces for call in piece.calls]
    if not thinking:
        return Reading(visible, 0, calls)
    return Reading(_joined("\n".join(thinking), visible), marked.counts.get(visible_from - len(given)), calls)
