"""Evidence that a text is the requested program, and not an example of its use, its tests or its output."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from whetstone.judge.reply_parser import ReplyParser

_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
_READS = re.compile(r"\binput\s*\(|\bstdin\b|\bopen\s*\(\s*0\b|\bfileinput\b|\bos\.read\s*\(\s*0\b")
_WRITES = re.compile(r"\bprint\b|\bstdout\b|\bos\.write\b|\bexec\b")
_SETS_INPUT = re.compile(r"\bstdin\s*=|\bpatch\(")
_TESTS = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+(?:unittest|pytest|doctest)\b|^(?:class\s+Test|def\s+test_)", re.MULTILINE
)
_DEFINES = r"^(?:async\s+def|def|class)\s+(?:{})\b"
# A line at the left margin that can be part of a program, and not of prose. Repetitions are possessive or
# disjoint from what follows, so that a line is read once.
_CODE_LINE = re.compile(
    r"(?:from\s++[\w.]++\s++import|import\s++[\w.]++(?:\s++as\s++\w++)?\s*+(?:,|$)|def\s++\w++\s*+\(|class\s++\w).*"
    r"|(?:if|elif|else|for|while|with|try|except|finally|async|match)\b.*:\s*+(?:#.*)?"
    r"|(?:pass|raise\b.*|assert\b.*)"
    r"|[@#\])}].*|(?:\"\"\"|\'\'\').*|[A-Za-z_][\w.]*+\(.*|(?:return|del|global)\s[\w.,\[\] \t()+*-]++"
    r"|[A-Za-z_][\w.\[\]]*+(?:,\s*+[\w.*]++)*+\s*+(?::[^=]++)?(?:[-+*/|&^%]|//|>>|<<)?=[^=].*"
)
_MAX_REGIONS = 20
# The fields of statements and targets that contain names which the statement binds, or other statements.
_BINDING_FIELDS = frozenset(
    (
        *("targets", "target", "optional_vars", "items", "elts", "test"),
        *("body", "orelse", "finalbody", "handlers", "cases"),
    )
)


@dataclass(frozen=True)
class PythonEvidence:
    """A text as a Python program, and the evidence for it. ``names`` are those that the tests call."""

    code: str
    names: frozenset[str]
    parser: ReplyParser = field(repr=False, compare=False)

    @cached_property
    def tree(self) -> ast.Module | None:
        """The syntax tree; None for text that is not Python."""
        return self.parser.tree(self.code)

    @cached_property
    def defined(self) -> frozenset[str]:
        """The names that its statements bind at top level."""
        found: set[str] = set()
        pending: list[ast.AST] = [] if self.tree is None else [*self.tree.body]
        while pending:
            node = pending.pop()
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    found.update(alias.asname or alias.name.partition(".")[0] for alias in names)
                case ast.Name(id=name, ctx=ast.Store()) | ast.NamedExpr(target=ast.Name(id=name)):
                    found.add(name)
                case ast.Starred(value=value):
                    pending.append(value)
                case _:
                    for name in _BINDING_FIELDS.intersection(node._fields):
                        part = getattr(node, name)
                        pending += cast("list[ast.AST]", part) if isinstance(part, list) else [part]
        return frozenset(found)

    @cached_property
    def missing(self) -> frozenset[str]:
        """Names that it uses, but that neither it nor Python defines; empty for text that is not Python."""
        if self.tree is None or "import *" in self.code:
            return frozenset()
        return self.parser.free_names(self.code) - _BUILTINS

    @cached_property
    def is_test(self) -> bool:
        """Whether it tests a program, whatever else it contains."""
        return _TESTS.search(self.code) is not None or _SETS_INPUT.search(self.code) is not None

    @cached_property
    def fitness(self) -> int:
        """How well it fits the request: 0 for text that is no program, 4 for a complete program."""
        if self.names:
            return self._fitness_for_calls()
        if self.tree is None:
            return 1 if _READS.search(self.code) else 0
        if _READS.search(self.code) and not _SETS_INPUT.search(self.code):
            return 4 if self.writes else 3
        return 2 if does_something(self.tree) and not self.missing else 1 if does_something(self.tree) else 0

    @property
    def fits(self) -> bool:
        """Whether it is a program that the tests can run: it has all their names, or it does something."""
        return self.tree is not None and self.fitness >= (4 if self.names else 2)

    @property
    def writes(self) -> bool:
        """Whether it contains code that prints."""
        return _WRITES.search(self.code) is not None

    def _fitness_for_calls(self) -> int:
        if self.tree is None:
            broken = re.search(_DEFINES.format("|".join(map(re.escape, self.names))), self.code, re.MULTILINE)
            # The body of a function alone, which completes the beginning in the prompt.
            return 2 if broken or self._is_body() else 0
        if self.names <= self.defined:
            return 4
        if self.names & self.defined:
            return 3
        return 2 if self._is_body() else 1 if self.defined else 0

    def _is_body(self) -> bool:
        first = self.code.lstrip("\n")
        indented = first[:1] in (" ", "\t") and self.parser.is_python(f"def _():\n{first}")
        returns = self.tree is not None and any(isinstance(node, ast.Return) for node in self.tree.body)
        return indented or returns


def does_something(tree: ast.Module) -> bool:
    """Return whether text without fences is a program.

    Prose, a single word or a number has no such statement.
    """
    return any(map(_is_action, tree.body))


def _is_action(node: ast.stmt) -> bool:
    """Return whether it is a definition, import, assignment, call or control flow."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return not isinstance(node, (ast.Pass, ast.AnnAssign)) or getattr(node, "value", None) is not None


def dedent(code: str) -> str:
    """Return the text without the indentation of its first line, on each line that has it."""
    first = next((line for line in code.split("\n") if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip())]
    return "\n".join(line.removeprefix(indent) for line in code.split("\n"))


def regions(text: str, parser: ReplyParser) -> list[str]:
    """Return the parts of a text without fences that are Python programs, between prose."""
    found: list[str] = []
    lines = text.split("\n")
    at = tried = 0
    while at < len(lines) and tried < _MAX_REGIONS:
        if not _is_code_line(lines[at]):
            at += 1
            continue
        end = at + 1
        while end < len(lines) and (
            not lines[end].strip() or lines[end][0] in " \t" or _is_code_line(lines[end])
        ):
            end += 1
        # At either end, a paragraph of prose that looks like code is left out.
        for first, last in (
            (at, end),
            (at, _end_without_last_paragraph(lines, at, end)),
            (_start_without_first_paragraph(lines, at, end), end),
        ):
            tried += 1
            code = "\n".join(lines[first:last]).rstrip() + "\n"
            tree = parser.tree(code)
            if tree is not None and does_something(tree):
                found.append(code)
                break
        at = end
    return found


def _end_without_last_paragraph(lines: list[str], at: int, end: int) -> int:
    """Return the end of the lines without the last paragraph."""
    last = end
    while last > at and not lines[last - 1].strip():
        last -= 1
    while last > at and lines[last - 1].strip():
        last -= 1
    return last


def _start_without_first_paragraph(lines: list[str], at: int, end: int) -> int:
    """Return the start of the lines without the first paragraph."""
    while at < end and lines[at].strip():
        at += 1
    return at


def _is_code_line(line: str) -> bool:
    return _CODE_LINE.fullmatch(line) is not None
