"""The fenced blocks of a reply, as models write them and not only as Markdown has them.

A fence is a line of three or more backticks or tildes, however far indented; it is closed by a line of the
same character, at least as many of them and nothing else. So a fence of four can hold one of three. What
models write besides is read as it is meant: a fence after prose on its line or behind code, code on the line
of the fence, words behind a closing one, ``[PYTHON]`` and triple quotes as fences, invisible characters
before them, lone carriage returns, and a program in Python that holds fences in its strings.

The work is linear in the reply. A budget proportional to its length pays for the characters that are parsed
as Python and for the lines that are read more than once. The reason: a model chooses its replies, and a reply
that stalls its reader stalls training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from whetstone.syntax import parsed

_BLANKS = " \t"
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_NOISE = re.compile(f"^[{_INVISIBLE}]+", re.MULTILINE)
# Other brackets around code: their lines become fences.
_BRACKETS = (
    (re.compile(r"^[ \t]*\[(PYTHON|CODE)\][ \t]*", re.MULTILINE), r"```python\n"),
    (re.compile(r"\[/(PYTHON|CODE)\][ \t]*$", re.MULTILINE), r"\n```"),
    (re.compile(r"^[ \t]*<pre><code(?: class=\"(?:language-)?([\w+#]+)\")?>", re.MULTILINE), r"```\1\n"),
    (re.compile(r"</code></pre>[ \t]*$", re.MULTILINE), r"\n```"),
)
_QUOTES_OPEN = re.compile(r"^(?:'''|\"\"\")[ \t]*(?:python|py)[ \t]*$", re.MULTILINE)
_QUOTES_CLOSE = re.compile(r"^(?:'''|\"\"\")[ \t]*$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"[\w-]+=\S*|\{[^}]*\}|[\w./-]+\.\w+|#.*")
_MOST_CLOSINGS = 8
"""How many later fences are tried as the end of a program that does not parse up to the first."""
_MOST_INSIDE = 3
"""How deep blocks of Markdown are looked for in one another."""
_PARSED_PER_CHARACTER = 2
"""How often the reply, at most, is parsed all in all."""
_LEAST_PARSED = 20_000
"""The budget of a short reply, in characters."""


@dataclass(frozen=True)
class Block:
    """A fenced block: what its fence says it is, its text, and whether its fence was closed."""

    tag: str
    code: str
    complete: bool


@dataclass
class _Parser:
    """Whether texts are Python, for as many characters as are ``left``; no other language is looked into."""

    left: int

    def __call__(self, code: str) -> bool:
        self.left -= len(code) + 1
        return self.left >= 0 and parsed(code) is not None


class _Fence(NamedTuple):
    """A line that is a fence: its indentation, the run of backticks or tildes, and the words behind it."""

    indent: str
    mark: str
    words: str


def _fence(line: str) -> _Fence | None:
    """The fence that a line is; None for any other line."""
    text = line.lstrip(_BLANKS)
    mark = _run(text)
    words = text[len(mark) :].strip(_BLANKS)
    if not mark or "`" in words or "\r" in words:
        return None
    return _Fence(line[: len(line) - len(text)], mark, words)


def _run(text: str) -> str:
    """The backticks or tildes that a text begins with, if they are three or more."""
    if not text.startswith(("```", "~~~")):
        return ""
    return text[: len(text) - len(text.lstrip(text[0]))]


def _is_tag(character: str) -> bool:
    return character.isalnum() or character in "_+#-"


def _one_line_block(line: str) -> Block | None:
    """The block that a line holds whole: backticks, a tag, blanks, code, and as many backticks."""
    text = line.strip(_BLANKS)
    mark = _run(text)
    inside = text[len(mark) :].removesuffix(mark)
    if not mark.startswith("`") or "`" in inside or len(inside) + 2 * len(mark) != len(text):
        return None
    code = inside.lstrip("".join(filter(_is_tag, set(inside))))
    tag = inside[: len(inside) - len(code)]
    if not tag or not code.startswith((" ", "\t")) or not code.strip(_BLANKS):
        return None
    return Block(tag.lower(), code.strip(_BLANKS) + "\n", True)


@dataclass
class _Open:
    """A fence that was opened, and the lines after it."""

    indent: str
    mark: str
    words: str
    lines: list[str] = field(default_factory=list[str])

    @property
    def tag(self) -> str:
        words = self.words.split()
        return re.split(r"[^\w+#-]", words[0].removeprefix("{").lstrip("."))[0].lower() if words else ""


def clean(text: str) -> str:
    """The text with plain line ends, and without what cannot be seen at the beginning of its lines."""
    return _NOISE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def blocks(text: str, tags: frozenset[str], *, python: bool) -> list[Block]:
    """The fenced blocks of a cleaned text, in order. ``tags`` are those of the language asked for."""
    for bracket, fence in _BRACKETS:
        text = bracket.sub(fence, text)
    if "```" not in text and "~~~" not in text:
        text = _without_quotes(text)
    budget = max(_LEAST_PARSED, _PARSED_PER_CHARACTER * len(text)) if python else 0
    return list(_Reader(text, tags, _Parser(budget)).blocks())


def without_blocks(text: str) -> str:
    """The text outside its fenced blocks; a block without an end takes the rest."""
    kept: list[str] = []
    mark = ""
    for line in text.split("\n"):
        start = line.lstrip(_BLANKS)[:3]
        if mark:
            mark = "" if start == mark else mark
        elif start in ("```", "~~~"):
            mark = start
            kept += ["", ""]  # so that what stands before and behind the block are paragraphs of their own
        else:
            kept.append(line)
    return "\n".join(kept)


def _without_quotes(text: str) -> str:
    """Triple quotes that stand for a fence, of the first block alone, as a fence."""
    opened = _QUOTES_OPEN.search(text)
    if opened is None:
        return text
    code = text[opened.end() :]
    closings = list(_QUOTES_CLOSE.finditer(code))
    if closings:
        code = f"{code[: closings[-1].start()]}```{code[closings[-1].end() :]}"
    return f"{text[: opened.start()]}```python{code}"


def _fence_behind(line: str) -> tuple[str, str, str] | None:
    """What stands before a fence at the end of a line, the fence and its tag; None without any."""
    if "```" not in line and "~~~" not in line:
        return None
    text = line.rstrip(_BLANKS)
    end = len(text)
    while end and _is_tag(text[end - 1]):
        end -= 1
    tag, text = text[end:], text[:end].rstrip(_BLANKS)
    before = text.rstrip(text[-1:]) if text.endswith(("```", "~~~")) else text
    if before == text or before.endswith(("`", "~")) or not before.strip():
        return None
    return before, text[len(before) :], tag.lower()


class _Reader:
    def __init__(self, text: str, tags: frozenset[str], parses: _Parser, inside: int = 0) -> None:
        self._lines = text.split("\n")
        self._tags = tags
        self._parses = parses
        self._inside = inside
        self._at = 0

    def blocks(self) -> Iterator[Block]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if whole := _one_line_block(line):
                yield whole
            elif opened := self._opened(line):
                yield from self._read(opened)

    def _opened(self, line: str) -> _Open | None:
        if fence := _fence(line):
            return _Open(*fence)
        behind = _fence_behind(line)
        if behind is None or not behind[2] or behind[2] not in self._tags or "```" in behind[0]:
            return None
        return _Open("", behind[1], behind[2])

    def _read(self, opened: _Open) -> Iterator[Block]:
        """The block that was opened, and those inside it."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            fence = _fence(line)
            self._at += 1
            if fence is None or not self._ends(fence, opened):
                opened.lines.append(line)
                continue
            closed = not self._reopens(fence, opened)
            block = self._block(opened, complete=closed)
            if self._parses.left > 0 and block.tag in self._tags and not self._parses(block.code):
                longer = self._longer(opened)
                if longer is not None:
                    yield longer
                    return
            if not closed:
                self._at -= 1  # the model forgot to close, or repeated the fence that it was given
            yield from self._inner(block)
            return
        yield self._cut(opened)

    def _ends(self, fence: _Fence, opened: _Open) -> bool:
        if fence.mark[0] != opened.mark[0] or len(fence.mark) < len(opened.mark):
            return False
        return not fence.words or self._reopens(fence, opened) or self._has_words(fence, opened)

    def _reopens(self, fence: _Fence, opened: _Open) -> bool:
        # A program has no such line.
        return bool(fence.words) and fence.words.split()[0].lower() in self._tags

    def _has_words(self, fence: _Fence, opened: _Open) -> bool:
        """A closing fence with prose behind it: only where what stands before it is a program."""
        if " " not in fence.words or self._parses.left <= 0 or opened.tag not in self._tags:
            return False
        return self._parses(self._block(opened, complete=True).code)

    def _longer(self, opened: _Open) -> Block | None:
        """The program up to a later fence, where the first one stands inside a string of the program."""
        first, tries, lines = self._at, 0, list(opened.lines)
        for at in range(first - 1, len(self._lines)):
            fence = _fence(self._lines[at])
            bare = fence is not None and not fence.words and fence.mark[0] == opened.mark[0]
            if at >= first and bare:
                tries += 1
                block = self._block(replace(opened, lines=lines), complete=True)
                if self._parses(block.code):
                    self._at = at + 1
                    return block
                if tries == _MOST_CLOSINGS:
                    break
            lines.append(self._lines[at])
        self._parses.left -= len(lines)  # fences that never close would each read the rest of the reply
        return None

    def _inner(self, block: Block) -> Iterator[Block]:
        """The blocks inside a block of Markdown; otherwise the block itself."""
        fenced = self._inside < _MOST_INSIDE and ("```" in block.code or "~~~" in block.code)
        markdown = block.tag in {"markdown", "md"}
        if fenced and (markdown or (block.tag == "" and not self._parses(block.code))):
            inner = _Reader(block.code, self._tags, self._parses, self._inside + 1)
            yield from list(inner.blocks()) or [block]
        else:
            yield block

    def _cut(self, opened: _Open) -> Block:
        """A block without an end, unless one of its lines has the fence behind code."""
        for number, line in enumerate(opened.lines):
            behind = _fence_behind(line)
            if behind is None or behind[2] or behind[1][0] != opened.mark[0] or self._parses.left <= 0:
                continue
            shorter = self._block(replace(opened, lines=[*opened.lines[:number], behind[0]]), complete=True)
            if self._parses(shorter.code):
                again = len(opened.lines) - number - 1  # lines that are read once more
                self._parses.left -= again
                self._at -= again
                return shorter
        return self._block(opened, complete=False)

    def _block(self, opened: _Open, *, complete: bool) -> Block:
        """The block without the indentation of its fence, as in a list item of Markdown."""
        indent = opened.indent
        code = [
            line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t") for line in opened.lines
        ]
        text = "\n".join(code) + ("\n" if code else "")
        _, _, more = opened.words.partition(" ")
        if more and not _ATTRIBUTE.match(more) and opened.tag in self._tags:
            # The program began on the line of its fence.
            joined = f"{more.strip()}\n{text}"
            if self._parses(joined):
                text = joined
        return Block(opened.tag, text, complete)
