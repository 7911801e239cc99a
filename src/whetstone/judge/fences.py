"""Find the fenced blocks of a reply, as models write them and not only as Markdown defines them.

A fence is a line of three or more backticks or tildes, with any indentation. A line of the same character
closes it if it has at least as many of them, and nothing behind them that can be the tag of another block:
models put ``</answer>``, a full stop or prose there. So a fence of four can contain one of three.

Other forms that models use are accepted: a fence after prose or code on the same line, and code or words on
the line of a fence. So are ``[PYTHON]`` and triple quotes as fences. Invisible characters
before fences, lone carriage returns, and Python programs with fences in their strings are handled too.

The work is linear in the length of the reply. The budget of the reply's parser pays for texts that are parsed
or made, and for lines that are read again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from whetstone.judge.languages.table import LANGUAGE_TAGS
from whetstone.judge.reply_parser import ReplyParser

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
# What a line costs that is read again, in characters that are parsed.
_COST_PER_LINE = 8
# How often a program without a closing fence is cut before a line that is not Python.
_MAX_PROSE_TRIES = 8
# The depth to which blocks of Markdown are searched for blocks.
_MAX_NESTING = 3
# Blocks that can contain blocks.
_MARKDOWN_TAGS = frozenset({"markdown", "md"})
# Languages of other blocks that stand in replies.
_OTHER_TAGS = (
    "text txt plaintext plain output console terminal input json yaml xml html css sql markdown md diff "
    "latex tex math csv ini toml dockerfile makefile powershell bat cmd kotlin swift scala haskell lua julia "
    "matlab fortran pseudocode mermaid"
)
_KNOWN_TAGS = LANGUAGE_TAGS.union(_OTHER_TAGS.split())
_TAG = re.compile(r"[\w+#-]*+")


@dataclass(frozen=True)
class FencedBlock:
    """A fenced block: the tag of its fence, its text, and whether its fence was closed."""

    tag: str
    code: str
    complete: bool


class _Fence(NamedTuple):
    """A fence line: its indentation, the backticks or tildes, and the words after them."""

    indent: str
    mark: str
    words: str


def _parse_fence(line: str) -> _Fence | None:
    """Return the fence of a line; None for any other line."""
    text = line.lstrip(_BLANKS)
    mark = _fence_mark(text)
    if not mark:
        return None
    return _Fence(line[: len(line) - len(text)], mark, text[len(mark) :].strip(_BLANKS))


def _fence_mark(text: str) -> str:
    """Return the backticks or tildes at the start of a text; empty if there are fewer than three."""
    if not text.startswith(("```", "~~~")):
        return ""
    return text[: len(text) - len(text.lstrip(text[0]))]


def _first_tag(text: str) -> str:
    """Return the characters of a tag at the start of a text; empty if there are none."""
    match = _TAG.match(text)
    return match[0] if match else ""


def _one_line_block(line: str) -> FencedBlock | None:
    """Return the block that is complete on one line: backticks, a tag, blanks, code, and as many
    backticks."""
    text = line.strip(_BLANKS)
    mark = _fence_mark(text)
    nesting = text[len(mark) :].removesuffix(mark)
    if not mark.startswith("`") or "`" in nesting or len(nesting) + 2 * len(mark) != len(text):
        return None
    tag = _first_tag(nesting)
    code = nesting[len(tag) :]
    if not tag or not code.startswith((" ", "\t")) or not code.strip(_BLANKS):
        return None
    return FencedBlock(tag.lower(), code.strip(_BLANKS) + "\n", True)


class _Open:
    """An opened fence and the lines after it.

    tag: the tag of the fence, in small letters; empty if it has none.
    first_code: what may be code on the line of the fence.
    """

    def __init__(self, indent: str, mark: str, words: str) -> None:
        self.indent = indent
        self.mark = mark
        self.tag = _tag_of(words)
        self.lines: list[str] = []
        more = words.partition(" ")[2].strip()
        self.first_code = "" if _ATTRIBUTE.match(more) else more


def _tag_of(words: str) -> str:
    """Return the tag in the words after a fence, in small letters."""
    if not words:
        return ""
    first = words.split(maxsplit=1)[:1]
    return _first_tag(first[0].removeprefix("{").lstrip(".")).lower() if first else ""


def clean(text: str) -> str:
    """Return the text with normal line ends, and without invisible characters at the start of lines."""
    return _INVISIBLE_PREFIX.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def blocks(text: str, tags: frozenset[str], parser: ReplyParser) -> list[FencedBlock]:
    """Return the fenced blocks of a cleaned text, in order. ``tags`` are those of the requested language.

    parser: one without a budget for other languages than Python.
    """
    for bracket, fence in _BRACKETS:
        text = bracket.sub(fence, text)
    if "```" not in text and "~~~" not in text:
        text = _without_quotes(text)
    return list(_Reader(text, tags, parser).blocks())


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
    while end and (text[end - 1].isalnum() or text[end - 1] in "_+#-"):
        end -= 1
    tag, text = text[end:], text[:end].rstrip(_BLANKS)
    before = text.rstrip(text[-1:]) if text.endswith(("```", "~~~")) else text
    if before == text or before.endswith(("`", "~")) or not before.strip():
        return None
    return before, text[len(before) :], tag.lower()


def _end_of_program(tree: ast.Module) -> int:
    """Return the number of lines up to the last statement that is not a word of prose."""
    for node in reversed(tree.body):
        is_word = isinstance(node, ast.Expr) and isinstance(node.value, ast.Name)
        is_label = isinstance(node, ast.AnnAssign) and node.value is None
        if not is_word and not is_label:
            return node.end_lineno or 0
    return 0


class _Reader:
    def __init__(self, text: str, tags: frozenset[str], parser: ReplyParser, nesting: int = 0) -> None:
        self._lines = text.split("\n")
        self._tags = tags
        self._parser = parser
        self._nesting = nesting
        self._at = 0

    def blocks(self) -> Iterator[FencedBlock]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            if "```" not in line and "~~~" not in line:
                continue
            if whole := _one_line_block(line):
                yield whole
            elif opened := self._open_block(line):
                yield from self._read(opened)

    def _open_block(self, line: str) -> _Open | None:
        fence = _parse_fence(line)
        if fence and "`" not in fence.words:
            return _Open(*fence)
        behind = _fence_after_code(line)
        if behind is None or not behind[2] or behind[2] not in self._tags or "```" in behind[0]:
            return None
        return _Open("", behind[1], behind[2])

    def _read(self, opened: _Open) -> Iterator[FencedBlock]:
        """Yield the opened block, or the blocks inside it."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            self._at += 1
            fence = _parse_fence(line)
            if fence is None or not self._ends(fence, opened):
                opened.lines.append(line)
                continue
            closed = not self._opens_another(fence)
            block = self._block(opened, opened.lines, complete=closed)
            if self._parser.can_parse and block.tag in self._tags and not self._parser.is_python(block.code):
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
        if not fence.words or _tag_of(fence.words) in self._tags:
            return True  # no program contains a fence of its own language
        return not self._may_open_inside(fence, opened) or self._is_program(opened)

    def _may_open_inside(self, fence: _Fence, opened: _Open) -> bool:
        """Return whether a fence with words after it may open a block inside the opened one."""
        if self._opens_another(fence):
            return True
        # The tag of an unknown language, perhaps with attributes, stands only in blocks of Markdown or prose.
        first, _, more = fence.words.partition(" ")
        is_tag = _first_tag(first) == first and (not more or _ATTRIBUTE.match(more.strip()) is not None)
        return is_tag and (opened.tag == "" or opened.tag in _MARKDOWN_TAGS)

    def _opens_another(self, fence: _Fence) -> bool:
        """Return whether the words after a fence name a language, so that it opens a block."""
        tag = _tag_of(fence.words)
        return "`" not in fence.words and tag != "" and (tag in self._tags or tag in _KNOWN_TAGS)

    def _is_program(self, opened: _Open) -> bool:
        """Return whether the lines of an opened block are a Python program so far."""
        if not self._parser.can_parse or opened.tag not in self._tags:
            return False
        return self._parser.is_python(self._block(opened, opened.lines, complete=True).code)

    def _find_later_end(self, opened: _Open) -> FencedBlock | None:
        """Return the program up to a later fence, if the first fence is inside a string of the program."""
        first, tries, lines = self._at, 0, list(opened.lines)
        for at in range(first - 1, len(self._lines)):
            fence = _parse_fence(self._lines[at])
            ends = fence is not None and fence.mark[0] == opened.mark[0] and not self._opens_another(fence)
            if at >= first and ends:
                tries += 1
                block = self._block(opened, lines, complete=True)
                if self._parser.is_python(block.code):
                    self._at = at + 1
                    return block
                if tries == _MAX_CLOSINGS:
                    break
            lines.append(self._lines[at])
        # Without this cost, each of many unclosed fences would read the rest of the reply.
        self._parser.spend(_COST_PER_LINE * len(lines))
        return None

    def _inner_blocks(self, block: FencedBlock) -> Iterator[FencedBlock]:
        """Yield the blocks inside a block of Markdown; otherwise the block itself."""
        fenced = self._nesting < _MAX_NESTING and ("```" in block.code or "~~~" in block.code)
        markdown = block.tag in _MARKDOWN_TAGS
        if fenced and (markdown or (block.tag == "" and not self._parser.is_python(block.code))):
            inner = _Reader(block.code, self._tags, self._parser, self._nesting + 1)
            yield from list(inner.blocks()) or [block]
        else:
            yield block

    def _unterminated_block(self, opened: _Open) -> FencedBlock:
        """Return a block without an end.

        It ends at a fence after code, or else before the prose that follows the program.
        """
        for number, line in enumerate(opened.lines):
            behind = _fence_after_code(line)
            if behind is None or behind[2] or behind[1][0] != opened.mark[0] or not self._parser.can_parse:
                continue
            shorter = self._block(opened, [*opened.lines[:number], behind[0]], complete=True)
            if self._parser.is_python(shorter.code):
                again = len(opened.lines) - number - 1  # lines that are read once more
                self._parser.spend(_COST_PER_LINE * again)
                self._at -= again
                return shorter
        block = self._block(opened, opened.lines, complete=False)
        return replace(block, code=self._without_prose(block.code)) if opened.tag in self._tags else block

    def _without_prose(self, code: str) -> str:
        """Return the program at the start of a text, without the prose behind it; else the whole text."""
        lines = code.split("\n")
        end = len(lines)
        for _ in range(_MAX_PROSE_TRIES):
            start = "\n".join(lines[:end])
            tree = self._parser.tree(start)
            if tree is not None:
                end = _end_of_program(tree)
                return code if end == 0 else "\n".join(lines[:end]) + "\n"
            line = self._parser.error_line(start)
            if not line:
                break
            end = min(line, end) - 1
        return code

    def _block(self, opened: _Open, lines: list[str], *, complete: bool) -> FencedBlock:
        """Return the block without the indentation of its fence, such as in a list item of Markdown."""
        indent = opened.indent
        if indent:
            lines = [
                line[len(indent) :] if line.startswith(indent) else line.lstrip(_BLANKS) for line in lines
            ]
        text = "\n".join(lines) + ("\n" if lines else "")
        self._parser.spend(len(lines))
        if opened.first_code and opened.tag in self._tags:
            # The program started on the line of its fence.
            joined = f"{opened.first_code}\n{text}"
            if self._parser.is_python(joined):
                text = joined
        return FencedBlock(opened.tag, text, complete)
