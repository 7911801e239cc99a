"""Find the fenced blocks of a reply, as models write them and not only as Markdown defines them.

A fence is a line of three or more backticks or tildes, with any indentation. A line of the same character
closes it if it has at least as many of them and nothing else. So a fence of four can contain one of three.

Other forms that models use are accepted: a fence after prose or code on the same line, and code or words on
the line of a fence. So are ``[PYTHON]`` and triple quotes as fences. Invisible characters
before fences, lone carriage returns, and Python programs with fences in their strings are handled too.

The work is linear in the length of the reply. A budget in proportion to the length pays for the characters
that are parsed as Python, and for lines that are read again. A model chooses its replies, and a reply that
stalls the extraction stalls training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from whetstone.core.syntax import parsed

_BLANKS = " \t"
_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_INVISIBLE_PREFIX = re.compile(f"^[{_INVISIBLE}]+", re.MULTILINE)
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
# The number of later fences that are tried as the end of a program that does not parse up to the first.
_MAX_CLOSINGS = 8
# The depth to which blocks of Markdown are searched for blocks.
_MAX_NESTING = 3
# How often the whole reply may be parsed, at most.
_PARSED_RATIO = 2
# The budget for a short reply, in characters.
_MIN_PARSED = 20_000


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block: the tag of its fence, its text, and whether its fence was closed."""

    tag: str
    code: str
    complete: bool


@dataclass
class _Parser:
    """Tells whether texts are Python, while ``budget`` characters last. Other languages are not parsed."""

    budget: int

    def __call__(self, code: str) -> bool:
        self.budget -= len(code) + 1
        return self.budget >= 0 and parsed(code) is not None


class _Fence(NamedTuple):
    """A fence line: its indentation, the backticks or tildes, and the words after them."""

    indent: str
    mark: str
    words: str


def _parse_fence(line: str) -> _Fence | None:
    """Return the fence of a line; None for any other line."""
    text = line.lstrip(_BLANKS)
    mark = _fence_mark(text)
    rest = text[len(mark) :].strip(_BLANKS)
    if not mark or "`" in rest or "\r" in rest:
        return None
    return _Fence(line[: len(line) - len(text)], mark, rest)


def _fence_mark(text: str) -> str:
    """Return the backticks or tildes at the start of a text; empty if there are fewer than three."""
    if not text.startswith(("```", "~~~")):
        return ""
    return text[: len(text) - len(text.lstrip(text[0]))]


def _is_tag(character: str) -> bool:
    return character.isalnum() or character in "_+#-"


def _one_line_block(line: str) -> FencedBlock | None:
    """Return the block that is complete on one line: backticks, a tag, blanks, code, and as many
    backticks."""
    text = line.strip(_BLANKS)
    mark = _fence_mark(text)
    nesting = text[len(mark) :].removesuffix(mark)
    if not mark.startswith("`") or "`" in nesting or len(nesting) + 2 * len(mark) != len(text):
        return None
    code = nesting.lstrip("".join(filter(_is_tag, set(nesting))))
    tag = nesting[: len(nesting) - len(code)]
    if not tag or not code.startswith((" ", "\t")) or not code.strip(_BLANKS):
        return None
    return FencedBlock(tag.lower(), code.strip(_BLANKS) + "\n", True)


@dataclass
class _Open:
    """An opened fence and the lines after it."""

    indent: str
    mark: str
    words: str
    lines: list[str] = field(default_factory=list[str])

    @property
    def tag(self) -> str:
        words = self.words.split()
        return re.split(r"[^\w+#-]", words[0].removeprefix("{").lstrip("."))[0].lower() if words else ""


def clean(text: str) -> str:
    """Return the text with normal line ends, and without invisible characters at the start of lines."""
    return _INVISIBLE_PREFIX.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def blocks(text: str, tags: frozenset[str], *, python: bool) -> list[FencedBlock]:
    """Return the fenced blocks of a cleaned text, in order. ``tags`` are those of the requested language."""
    for bracket, fence in _BRACKETS:
        text = bracket.sub(fence, text)
    if "```" not in text and "~~~" not in text:
        text = _without_quotes(text)
    budget = max(_MIN_PARSED, _PARSED_RATIO * len(text)) if python else 0
    return list(_Reader(text, tags, _Parser(budget)).blocks())


def without_blocks(text: str) -> str:
    """Return the text outside of fenced blocks; a block without an end includes the rest."""
    kept: list[str] = []
    mark = ""
    for line in text.split("\n"):
        start = line.lstrip(_BLANKS)[:3]
        if mark:
            mark = "" if start == mark else mark
        elif start in ("```", "~~~"):
            mark = start
            # Blank lines keep the text before and after the block in separate paragraphs.
            kept += ["", ""]
        else:
            kept.append(line)
    return "\n".join(kept)


def _without_quotes(text: str) -> str:
    """Return the text with a fence for the triple quotes around the first block, if they stand for one."""
    opened = _QUOTES_OPEN.search(text)
    if opened is None:
        return text
    code = text[opened.end() :]
    closings = list(_QUOTES_CLOSE.finditer(code))
    if closings:
        code = f"{code[: closings[-1].start()]}```{code[closings[-1].end() :]}"
    return f"{text[: opened.start()]}```python{code}"


def _fence_after_code(line: str) -> tuple[str, str, str] | None:
    """Return the text before a fence at the end of a line, the fence and its tag; None if there is none."""
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
    def __init__(self, text: str, tags: frozenset[str], parses: _Parser, nesting: int = 0) -> None:
        self._lines = text.split("\n")
        self._tags = tags
        self._parses = parses
        self._nesting = nesting
        self._at = 0

    def blocks(self) -> Iterator[FencedBlock]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if whole := _one_line_block(line):
                yield whole
            elif opened := self._open_block(line):
                yield from self._read(opened)

    def _open_block(self, line: str) -> _Open | None:
        if fence := _parse_fence(line):
            return _Open(*fence)
        behind = _fence_after_code(line)
        if behind is None or not behind[2] or behind[2] not in self._tags or "```" in behind[0]:
            return None
        return _Open("", behind[1], behind[2])

    def _read(self, opened: _Open) -> Iterator[FencedBlock]:
        """Yield the opened block, or the blocks inside it."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            fence = _parse_fence(line)
            self._at += 1
            if fence is None or not self._ends(fence, opened):
                opened.lines.append(line)
                continue
            closed = not self._reopens(fence, opened)
            block = self._block(opened, complete=closed)
            if self._parses.budget > 0 and block.tag in self._tags and not self._parses(block.code):
                longer = self._find_later_end(opened)
                if longer is not None:
                    yield longer
                    return
            if not closed:
                # The model forgot to close the block, or repeated the opening fence of the prompt.
                self._at -= 1
            yield from self._inner_blocks(block)
            return
        yield self._unterminated_block(opened)

    def _ends(self, fence: _Fence, opened: _Open) -> bool:
        if fence.mark[0] != opened.mark[0] or len(fence.mark) < len(opened.mark):
            return False
        return not fence.words or self._reopens(fence, opened) or self._closes_before_prose(fence, opened)

    def _reopens(self, fence: _Fence, opened: _Open) -> bool:
        # No program contains such a line.
        return bool(fence.words) and fence.words.split()[0].lower() in self._tags

    def _closes_before_prose(self, fence: _Fence, opened: _Open) -> bool:
        """Return whether a fence with words after it closes the block, which must then be a program."""
        if " " not in fence.words or self._parses.budget <= 0 or opened.tag not in self._tags:
            return False
        return self._parses(self._block(opened, complete=True).code)

    def _find_later_end(self, opened: _Open) -> FencedBlock | None:
        """Return the program up to a later fence, if the first fence is inside a string of the program."""
        first, tries, lines = self._at, 0, list(opened.lines)
        for at in range(first - 1, len(self._lines)):
            fence = _parse_fence(self._lines[at])
            bare = fence is not None and not fence.words and fence.mark[0] == opened.mark[0]
            if at >= first and bare:
                tries += 1
                block = self._block(replace(opened, lines=lines), complete=True)
                if self._parses(block.code):
                    self._at = at + 1
                    return block
                if tries == _MAX_CLOSINGS:
                    break
            lines.append(self._lines[at])
        # Without this cost, each of many unclosed fences would read the rest of the reply.
        self._parses.budget -= len(lines)
        return None

    def _inner_blocks(self, block: FencedBlock) -> Iterator[FencedBlock]:
        """Yield the blocks inside a block of Markdown; otherwise the block itself."""
        fenced = self._nesting < _MAX_NESTING and ("```" in block.code or "~~~" in block.code)
        markdown = block.tag in {"markdown", "md"}
        if fenced and (markdown or (block.tag == "" and not self._parses(block.code))):
            inner = _Reader(block.code, self._tags, self._parses, self._nesting + 1)
            yield from list(inner.blocks()) or [block]
        else:
            yield block

    def _unterminated_block(self, opened: _Open) -> FencedBlock:
        """Return a block without an end, unless one of its lines has a fence after code."""
        for number, line in enumerate(opened.lines):
            behind = _fence_after_code(line)
            if behind is None or behind[2] or behind[1][0] != opened.mark[0] or self._parses.budget <= 0:
                continue
            shorter = self._block(replace(opened, lines=[*opened.lines[:number], behind[0]]), complete=True)
            if self._parses(shorter.code):
                again = len(opened.lines) - number - 1  # lines that are read once more
                self._parses.budget -= again
                self._at -= again
                return shorter
        return self._block(opened, complete=False)

    def _block(self, opened: _Open, *, complete: bool) -> FencedBlock:
        """Return the block without the indentation of its fence, such as in a list item of Markdown."""
        indent = opened.indent
        code = [
            line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t") for line in opened.lines
        ]
        text = "\n".join(code) + ("\n" if code else "")
        _, _, more = opened.words.partition(" ")
        if more and not _ATTRIBUTE.match(more) and opened.tag in self._tags:
            # The program started on the line of its fence.
            joined = f"{more.strip()}\n{text}"
            if self._parses(joined):
                text = joined
        return FencedBlock(opened.tag, text, complete)
