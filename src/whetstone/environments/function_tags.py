"""Finds the calls of a text in tags, such as those of Qwen3-Coder: ``<function=NAME>`` with
``<parameter=NAME>`` tags.

Nothing in this form is escaped, so the code in a call may contain the same tags. Only tags that fit together
count: ``</parameter>`` ends a value if a parameter or ``</function>`` follows, and a whole call within a
value belongs to the value. All tags are found in one pass, so that the time is linear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

FUNCTION, END_FUNCTION, END_PARAMETER = "<function=", "</function>", "</parameter>"

Span = tuple[str, int, int]


@dataclass
class FunctionCall:
    """A call in tags. ``end`` is where it ends in the text; None if it does not end.

    ``begins_line``: it begins a line. ``spans`` are the name of each parameter, and where its value begins
    and ends; the first ``count`` of them and ``last_span`` belong to the call.
    """

    name: str
    begins_line: bool
    end: int | None = None
    spans: list[Span] = field(default_factory=list[Span])
    count: int = 0
    last_span: Span | None = None

    def parameters(self, text: str) -> list[tuple[str, str]]:
        """Return names and values. The line ends at both ends of a value are part of the tags."""
        spans = [*self.spans[: self.count], *([self.last_span] if self.last_span else [])]
        return [
            (name, text[start:stop].removeprefix("\r").removeprefix("\n").removesuffix("\n"))
            for name, start, stop in spans
        ]


class CallTags:
    """Finds the calls of one form of tags.

    function, parameter: their opening tags, where NAME stands for the name. section, end_section: the tags
    that may stand around calls; without ``end_section``, a mark of a family (``formats.marks``) may follow.
    """

    def __init__(self, function: str, parameter: str, section: str, end_section: str = "") -> None:
        begin, first, following = (
            _opening(function, "name"),
            _opening(parameter, "first"),
            _opening(parameter, "next"),
        )
        # What follows the end of a call, so that a text such as "</parameter></function>" in a program is
        # none.
        following_mark = r"(?:\n|\Z|<|[\ufdd0-\ufdef])"
        if end_section:
            following_mark = rf"(?:{re.escape(end_section)}[ \t\r]*+)?+(?:\n|\Z|<)"
        after = rf"(?=[ \t\r]*+{following_mark})"
        self._tags = re.compile(
            rf"(?P<line>^[ \t]*+)?(?:{re.escape(section)}(?P<gap>\s*+))?"
            rf"(?:(?P<function>{begin})\s*+"
            rf"(?:{first}|(?P<empty>{_closing(function)}){after})"
            rf"|(?P<end>{_closing(parameter)})\s*+"
            rf"(?:(?P<next_tag>{following})(?P<multiline>[ \t\r]*+\n)?|{_closing(function)}{after}))",
            re.MULTILINE,
        )

    def calls(self, text: str) -> dict[int, FunctionCall]:
        """Return the calls of a text by the place of their opening tag, those within values included."""
        found: dict[int, FunctionCall] = {}
        open_calls: list[_OpenCall] = []
        last: _OpenCall | None = None
        for tag in self._tags.finditer(text):
            if tag["function"] is not None:
                call = FunctionCall(
                    tag["name"].strip(), tag["line"] is not None or "\n" in (tag["gap"] or "")
                )
                # A program may have the tag in its texts. Within a value, a call has lines of its own.
                if open_calls and not call.begins_line:
                    continue
                found[tag.start("function")] = call
                if tag["empty"] is not None:
                    call.end = tag.end()
                else:
                    open_calls.append(_OpenCall(call, tag["first"].strip(), tag.end()))
            elif open_calls and open_calls[-1].ends_value(text, tag):
                last = open_calls.pop()
            elif not open_calls and last is not None:
                # No call is open, so the end before this tag was within the value.
                last.ends_value(text, tag)
        return found


def _opening(tag: str, group: str) -> str:
    """Return the pattern of an opening tag with the name in a group."""
    before, _, after = tag.partition("NAME")
    return rf"{re.escape(before)}(?P<{group}>[^<\n{re.escape(after)}]{{1,200}}+){re.escape(after)}"


def _closing(tag: str) -> str:
    """Return the pattern of the tag that closes an opening one."""
    [word] = re.findall(r"\A<(\w+)", tag)
    return f"</{word}>"


@dataclass
class _OpenCall:
    """A call whose end has not been found, and the parameter whose value begins at ``start``."""

    call: FunctionCall
    parameter: str
    start: int

    def ends_value(self, text: str, tag: re.Match[str]) -> bool:
        """Add the value that a tag ends, if it ends one. Return whether the tag ends the call."""
        is_multiline = text.startswith(("\n", "\r\n"), self.start)
        if tag["next"] is not None and is_multiline and tag["line"] is None and tag["multiline"] is None:
            return False  # tags in a text of a program, on one line
        stop = tag.start("end") if tag["line"] is None else tag.start("line")
        span = self.parameter, self.start, stop
        if tag["next"] is None:
            self.call.end, self.call.count, self.call.last_span = tag.end(), len(self.call.spans), span
            return True
        self.call.spans.append(span)
        self.parameter, self.start = tag["next"].strip(), tag.end("next_tag")
        return False


QWEN_TAGS = CallTags("<function=NAME>", "<parameter=NAME>", "<tool_call>", "</tool_call>")
"""The tags that are calls in the replies of every family without a form of its own."""
