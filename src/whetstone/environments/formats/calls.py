"""Reads the tool calls of each form in ``CallMarks``, in a text whose marks are characters (``marks``).

Each reader gets the place behind the mark that opens a call, and returns the calls with the place where they
end; None if they cannot be read. A mark within a call's texts belongs to the text wherever that is possible.
The time is linear: no place is read by more than two calls.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from whetstone.core.literal import read_literal
from whetstone.core.syntax import NotPython, parse_expression
from whetstone.environments.conversation import ToolCall
from whetstone.environments.formats.family import CallMarks
from whetstone.environments.formats.marks import MARK, Marks
from whetstone.environments.function_tags import CallTags
from whetstone.environments.tool_calls import MalformedCall, end_of_object, read_object

ReadCalls = tuple[list[ToolCall], int]
CallReader = Callable[[int], ReadCalls | None]

# The longest name of a tool or an argument, with the marks around it.
_NAME = r'[^\ufdd0-\ufdef{}\[\]"`\n]{0,200}+'
_LIST = re.compile(r"\s*+\[?\s*+(?=\{)")
_NEXT = re.compile(r"\s*+,?+\s*+(?=\{)")
_REST = re.compile(r"\s*+\]?\s*+(?:```\s*+)?")
_COUNTER = re.compile(r":\d{1,9}\Z")
_BRACE_CALL = re.compile(r"\s*+call:([\w.-]{1,200}+)(?=\{)")
_BARE_KEY = re.compile(r"(?<=[{,])\s*+([\w.-]{1,200}+)\s*+(?=:)")


def call_reader(form: CallMarks, marks: Marks, text: str) -> CallReader:
    """Return the reader of the calls in a text with marks."""
    return _READERS[form.form](form, marks, text)


def call_text(call: ToolCall) -> str:
    """Return a call in the form in which all calls are shown: JSON in ``<tool_call>`` tags."""
    return f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n</tool_call>'


def _json_reader(form: CallMarks, marks: Marks, text: str) -> CallReader:
    """Read a name and the JSON object behind it, or a list of objects that have the name.

    DeepSeek V3 writes the word ``function`` before the name, and a fence around the object. Kimi writes the
    call's number behind the name.
    """
    separators = "".join(map(marks.char, form.separators))
    between = rf"(?:[{separators}]\s*+({_NAME}))" if separators else "()"
    header = re.compile(rf"\s*+({_NAME}){between}{{0,3}}+\s*+(?:```json\s*+)?(?=\{{)")
    close = marks.char(form.close)

    def read(at: int) -> ReadCalls | None:
        beginning = _LIST.match(text, at)
        if beginning is not None:
            found = _objects(marks, text, beginning.end())
        else:
            named = header.match(text, at)
            end = end_of_object(text, named.end()) if named else None
            if named is None or end is None:
                return None
            name = named[2] if named[1].strip() == "function" and named[2] else named[1]
            name = _COUNTER.sub("", name.strip()).removeprefix("functions.")
            found = [ToolCall(name, marks.plain(text[named.end() : end]))], end
        return None if found is None else (found[0], _behind(text, found[1], close))

    return read


def _behind(text: str, at: int, close: str) -> int:
    """Return the place behind what ends calls at ``at``; there may be nothing."""
    rest = _REST.match(text, at)
    behind = at if rest is None else rest.end()
    return behind + 1 if close and text.startswith(close, behind) else behind


def _objects(marks: Marks, text: str, at: int) -> ReadCalls | None:
    """Return the calls of the objects that begin at ``at``."""
    calls: list[ToolCall] = []
    while (end := end_of_object(text, at)) is not None:
        try:
            value = read_object(marks.plain(text[at:end]))
        except MalformedCall:
            return None
        name, arguments = value.get("name"), value.get("arguments", value.get("parameters", {}))
        if not isinstance(name, str):
            return None
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append(ToolCall(name, written))
        following = _NEXT.match(text, end)
        if following is None:
            return calls, end
        at = following.end()
    return None


def _tag_reader(form: CallMarks, marks: Marks, text: str) -> CallReader:
    """Read calls in tags. Their arguments are texts of any type."""
    tags = CallTags(form.function, form.parameter, marks.char(form.open))
    calls = tags.calls(text)
    blanks = re.compile(rf"\s*+({marks.char(form.close)})?+")

    def read(at: int) -> ReadCalls | None:
        found: list[ToolCall] = []
        while (behind := blanks.match(text, at)) is not None:
            call = None if behind[1] else calls.get(behind.end())
            if call is None or call.end is None:
                return (found, behind.end()) if found else None
            pairs = [(name, marks.plain(value)) for name, value in call.parameters(text)]
            found.append(_untyped(call.name, pairs))
            at = call.end
        return None

    return read


def _pair_reader(form: CallMarks, marks: Marks, text: str) -> CallReader:
    """Read a name and pairs of names and values, each between two separators."""
    key, end_key, value, end_value = map(marks.char, form.separators)
    close = marks.char(form.close)
    header = re.compile(rf"\s*+({_NAME})\s*+")
    pair = re.compile(rf"\s*+{key}({_NAME}){end_key}\s*+{value}")
    # The mark in a value ends it if another pair or the end of the call follows.
    ends = [found.start() for found in re.finditer(rf"{end_value}(?=\s*+[{key}{close}])", text)]
    closing = re.compile(rf"\s*+{close}")
    # Places from which pairs lead to no end of a call: they are not followed again.
    failed: set[int] = set()

    def read(at: int) -> ReadCalls | None:
        named = header.match(text, at)
        if named is None or not named[1].strip():
            return None
        at, spans, passed = named.end(), list[tuple[str, int, int]](), list[int]()
        while at not in failed and (found := pair.match(text, at)) is not None:
            passed.append(at)
            number = bisect_left(ends, found.end())
            if number == len(ends):
                break
            spans.append((found[1].strip(), found.end(), ends[number]))
            at = ends[number] + 1
        behind = closing.match(text, at)
        if behind is None:
            failed.update(passed)
            return None
        # Only now: the value of a call without an end may contain all later ones.
        pairs = [(name, marks.plain(text[begin:end])) for name, begin, end in spans]
        return [_untyped(named[1].strip(), pairs)], behind.end()

    return read


def _untyped(name: str, pairs: Sequence[tuple[str, str]]) -> ToolCall:
    if len(dict(pairs)) < len(pairs):
        return ToolCall(name, f"an argument of {name[:60]} is given twice")
    return ToolCall(name, json.dumps(dict(pairs), ensure_ascii=False), untyped=True)


def _brace_reader(form: CallMarks, marks: Marks, text: str) -> CallReader:
    """Read ``call:NAME{…}``: JSON with bare names, and with texts in quotes of their own."""
    quote, close = marks.char(form.quote), marks.char(form.close)
    any_mark = re.compile(MARK)

    def read(at: int) -> ReadCalls | None:
        named = _BRACE_CALL.match(text, at)
        if named is None:
            return None
        begin, in_text, parts = named.end(), False, list[str]()
        for mark in any_mark.finditer(text, begin):
            if in_text and mark[0] != quote:
                continue
            part = text[begin : mark.start()]
            parts.append(json.dumps(marks.plain(part)) if in_text else _BARE_KEY.sub(r'"\1"', part))
            if mark[0] == close:
                return [ToolCall(named[1], "".join(parts).strip())], mark.end()
            if mark[0] != quote:
                return None
            begin, in_text = mark.end(), not in_text
        return None

    return read


def _python_reader(form: CallMarks, marks: Marks, text: str) -> CallReader:
    """Read a list of calls as Python writes them, or as JSON objects."""
    opening, close = marks.char(form.open), marks.char(form.close)
    objects = _json_reader(form, marks, text)

    def read(at: int) -> ReadCalls | None:
        following = text.find(opening, at)
        limit = len(text) if following < 0 else following
        # The closing mark may stand in a text of the call.
        for end in dict.fromkeys((text.find(close, at, limit), text.rfind(close, at, limit))):
            if end >= 0 and (calls := _python_calls(marks.plain(text[at:end]))) is not None:
                return calls, end + 1
        return objects(at)

    return read


def _python_calls(source: str) -> list[ToolCall] | None:
    try:
        tree = parse_expression(source.strip())
    except NotPython:
        return None
    calls: list[ToolCall] = []
    for node in tree.elts if isinstance(tree, ast.List) else [tree]:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)):
            return None
        if node.args or any(each.arg is None for each in node.keywords):
            return None
        try:
            arguments: dict[str, Any] = {
                str(each.arg): read_literal(ast.unparse(each.value)) for each in node.keywords
            }
            written = json.dumps(arguments, ensure_ascii=False)
            calls.append(ToolCall(ast.unparse(node.func), written))
        except (ValueError, TypeError, RecursionError):
            return None
    return calls or None


_READERS: dict[str, Callable[[CallMarks, Marks, str], CallReader]] = {
    "json": _json_reader,
    "tags": _tag_reader,
    "pairs": _pair_reader,
    "braces": _brace_reader,
    "python": _python_reader,
}
