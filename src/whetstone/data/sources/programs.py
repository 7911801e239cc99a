"""Reference programs out of the forms that datasets write them in."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from whetstone.errors import UserError
from whetstone.judge.languages.table import PYTHON, language_named
from whetstone.problem import Program
from whetstone.syntax import parsed

_FENCED = re.compile(r"\s*```[ \t]*([\w+#.-]*)[^\n]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_SHOWN = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL | re.MULTILINE)
_SAYS_PYTHON_2 = re.compile(r"\A(?:#.*\n|\s*\n)*?#.*\bpython[ \t]*2", re.IGNORECASE)
# What Python 2 programs hold: looked for in a million programs, of which few are then parsed. Each pattern
# begins with letters, so that the search is one for a substring.
_WORDS = ("raw_input", "xrange", "unichr", "unicode", "has_key", "iteritems", "long", "<>")
_STATEMENTS = (
    re.compile(r"print[ \t]+[^\s(=]"),
    re.compile(r"print[ \t]*>>"),
    re.compile(r"except[ \t]+[\w.]+[ \t]*,"),
    re.compile(r"exec[ \t]+[\"'\w]"),
    re.compile(r"raise[ \t]+\w+[ \t]*,"),
)
_PYTHON_2_NAMES = frozenset({"raw_input", "xrange", "unichr", "unicode", "long", "iteritems", "has_key"})


def references(written: Iterable[Any], language: str = PYTHON) -> tuple[list[Program], dict[str, int]]:
    """The programs among ``written``, and how many were left out, by what they are.

    A program in a Markdown fence is taken out of it, in the language that the fence says. Left out are
    programs in a language that the judge does not run, and those in Python 2.
    """
    programs: list[Program] = []
    left_out: Counter[str] = Counter()
    for text in written:
        if not isinstance(text, str) or not text.strip():
            left_out["empty"] += 1
            continue
        tag, source = unfenced(text)
        try:
            name = language_named(tag or language, "a reference").name
        except UserError:
            left_out[(tag or language).lower()] += 1
            continue
        if name == PYTHON and is_python_2(source):
            left_out["python2"] += 1
            continue
        programs.append(Program(name, source))
    return programs, dict(sorted(left_out.items()))


def unfenced(text: str) -> tuple[str, str]:
    """The language and the content of a Markdown fence that is all of ``text``; else "" and the text."""
    found = _FENCED.fullmatch(text)
    return (found[1], found[2] + "\n") if found else ("", text)


def is_python_2(source: str) -> bool:
    """Whether a Python program is one for Python 2: it says so, or uses what Python 3 lacks."""
    if _SAYS_PYTHON_2.match(source):
        return True
    if not any(word in source for word in _WORDS) and not any(s.search(source) for s in _STATEMENTS):
        return False
    tree = parsed(source)
    if tree is None:
        return True
    used: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=ast.Name(id="print"), op=ast.RShift()):
                return True
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr="iteritems" | "has_key" as name):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case _:
                pass
    # A program for both asks which of the two it runs on, or tries.
    return bool(used & _PYTHON_2_NAMES - bound) and "NameError" not in source and "version_info" not in source


def shown_code(statement: str) -> str:
    """The last code with a ``def`` that a statement shows in a Markdown fence: its starter. Empty if none."""
    blocks = [found[2] for found in _SHOWN.finditer(statement) if "def " in found[2]]
    return blocks[-1] + "\n" if blocks else ""
