"""The program inside a model's reply.

A fence is a line of three or more backticks or tildes, however far indented; it is closed by a
line of the same character, at least as many of them and nothing else. So a fence of four can hold one
of three. Where a reply was started for the model (with an opening fence), pass start and reply together.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Literal

from whetstone.judge.languages.table import PYTHON, PYTHON_SCIENTIFIC, language_named
from whetstone.syntax import parsed

ExtractionRule = Literal["last_fence", "first_fence", "all_fences", "whole"]

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([^`\r\n]*?)[ \t]*$")
_PYTHON_TAGS = frozenset({"", "py", "py3", "python", "python2", "python3"})
# By the file that a language's compiler reads: what models write besides the language's own names.
_FENCE_NAMES = {"main.cpp": ("cpp", "c++", "cc", "cxx"), "main.c": ("c",)}
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@dataclass(frozen=True)
class _Block:
    tag: str
    code: str
    complete: bool


def extract_program(text: str, rule: ExtractionRule = "last_fence", language: str = PYTHON) -> str | None:
    """Return the program in ``text``, or None when there is none.

    ``last_fence`` and ``first_fence`` take the last or first complete block tagged with ``language`` (python,
    py, or one of its aliases) or nothing; if no such block is complete, the unterminated one at the end.
    ``all_fences`` joins the complete ones (and none: the unterminated one). Without any fence, the three take
    the whole text if it parses as Python that does something, and is asked for in Python. ``whole`` takes the
    text as it is. Blank code is none.
    """
    if rule == "whole":
        return text if text.strip() else None
    tags = _tags(language)
    blocks = _blocks(text, tags)
    if not blocks:
        return text if tags is _PYTHON_TAGS and _is_program(text) else None
    ours = [b for b in blocks if b.tag in tags and b.code.strip()]
    chosen = [b for b in ours if b.complete] or ours
    if not chosen:
        return None
    if rule == "all_fences":
        return "\n".join(block.code for block in chosen)
    return chosen[0 if rule == "first_fence" else -1].code


def strip_thinking(text: str) -> str | None:
    """The text after the last ``</think>``; None when the thinking never ends. Without any, the text."""
    before, end, after = text.rpartition("</think>")
    if end:
        return None if "<think>" in after else after
    return None if "<think>" in before + after else text


def answer_part(text: str) -> str | None:
    """The content of the last complete ``<answer>…</answer>`` after the thinking, or None."""
    visible = strip_thinking(text)
    if visible is None:
        return None
    answers: list[str] = _ANSWER.findall(visible)
    return answers[-1] if answers else None


def _tags(language: str) -> frozenset[str]:
    """What a fence may say of a block in the language."""
    if language in (PYTHON, PYTHON_SCIENTIFIC):
        return _PYTHON_TAGS
    found = language_named(language, "the program")
    return frozenset({"", found.name, *found.aliases, *_FENCE_NAMES.get(found.source, ())})


def _blocks(text: str, tags: frozenset[str]) -> list[_Block]:
    """The fenced blocks of a text, in order."""
    blocks: list[_Block] = []
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = _FENCE.match(line)
        if opening is None:
            if fence is not None:
                opening, lines = fence, []
        elif fence is not None and _closes(fence, opening):
            blocks.extend(_inner(_block(opening, lines, complete=True), tags))
            opening = None
        elif fence is not None and _reopens(fence, opening, tags):
            # A program has no such line: the model forgot to close, or repeated the fence it was given.
            blocks.append(_block(opening, lines, complete=False))
            opening, lines = fence, []
        else:
            lines.append(line)
    if opening is not None:
        blocks.append(_block(opening, lines, complete=False))
    return blocks


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    return not fence[3] and fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])


def _reopens(fence: re.Match[str], opening: re.Match[str], tags: frozenset[str]) -> bool:
    same = fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])
    return same and fence[3].lower() in tags


def _inner(block: _Block, tags: frozenset[str]) -> list[_Block]:
    """The blocks inside a block of Markdown; otherwise the block itself."""
    if block.tag not in {"", "markdown", "md"} or _is_program(block.code):
        return [block]
    return _blocks(block.code, tags) or [block]


def _block(opening: re.Match[str], lines: list[str], complete: bool) -> _Block:
    """The block without the indentation of its fence, as in a list item of Markdown."""
    indent = opening[1]
    code = [line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t") for line in lines]
    words = opening[3].split()
    tag = re.split(r"[^\w+#-]", words[0])[0].lower() if words else ""
    return _Block(tag, "\n".join(code) + ("\n" if code else ""), complete)


def _is_program(text: str) -> bool:
    """Whether a text without fences is a program: it parses, and has a statement that prose has not."""
    tree = parsed(text)
    return tree is not None and any(_does_something(node) for node in tree.body)


def _does_something(node: ast.stmt) -> bool:
    """Definitions, imports, assignments, control flow and calls; a bare word or number is prose."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return not isinstance(node, (ast.Pass, ast.AnnAssign)) or getattr(node, "value", None) is not None
