"""Extract programs from the forms in which datasets write them: references, and checkers with C++ headers.

testlib.h is not part of any dataset, nor of this package: ``WHETSTONE_TESTLIB`` names a copy of it.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from whetstone.core.errors import UserError
from whetstone.core.problem import Program
from whetstone.core.syntax import parsed
from whetstone.judge.languages.table import PYTHON, language_named

_FENCED = re.compile(r"\s*```[ \t]*([\w+#.-]*)[^\n]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_CODE_BLOCK = re.compile(r"^[ \t]*```[ \t]*(\w*)[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL | re.MULTILINE)
_PYTHON_2_COMMENT = re.compile(r"\A(?:#.*\n|\s*\n)*?#.*\bpython[ \t]*2", re.IGNORECASE)
# Signs of Python 2 programs. A million programs are searched for them, and few of these are then parsed. Each
# pattern begins with letters, so that the search is one for a substring.
_PYTHON_2_WORDS = ("raw_input", "xrange", "unichr", "unicode", "has_key", "iteritems", "long", "<>")
_PYTHON_2_STATEMENTS = (
    re.compile(r"print[ \t]+[^\s(=]"),
    re.compile(r"print[ \t]*>>"),
    re.compile(r"except[ \t]+[\w.]+[ \t]*,"),
    re.compile(r"exec[ \t]+[\"'\w]"),
    re.compile(r"raise[ \t]+\w+[ \t]*,"),
)
_PYTHON_2_NAMES = frozenset({"raw_input", "xrange", "unichr", "unicode", "long", "iteritems", "has_key"})


def references(written: object, language: str = PYTHON) -> tuple[list[Program], dict[str, int]]:
    """Return the usable programs of ``written``, and the numbers of the others by reason.

    A program in a Markdown fence is extracted, with the language of the fence. Programs in a language that
    the judge does not run, and those in Python 2, are left out. ``written`` is a list, or one program.
    """
    programs: list[Program] = []
    left_out: Counter[str] = Counter()
    for text in _listed(written):
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


def _listed(written: object) -> list[Any]:
    if isinstance(written, Iterable) and not isinstance(written, str | bytes | Mapping):
        return list(cast("Iterable[Any]", written))
    return [] if written is None else [written]


def unfenced(text: str) -> tuple[str, str]:
    """Return the language and the content of a Markdown fence around all of ``text``; else ""
    and the text."""
    found = _FENCED.fullmatch(text)
    return (found[1], found[2] + "\n") if found else ("", text)


def is_python_2(source: str) -> bool:
    """Return whether a Python program is for Python 2: it states so, or uses what Python 3 lacks."""
    if _PYTHON_2_COMMENT.match(source):
        return True
    if not any(word in source for word in _PYTHON_2_WORDS) and not any(
        s.search(source) for s in _PYTHON_2_STATEMENTS
    ):
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
            # From 3.14 on, `except ValueError, e:` is the pair `except (ValueError, e):`.
            case ast.ExceptHandler(type=ast.Tuple(elts=[error, ast.Name(id=name)]) as pair) if (
                name.islower() and pair.col_offset == error.col_offset
            ):
                return True
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr="iteritems" | "has_key" as name):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case _:
                pass
    # A program for both versions checks which one it runs on, or tries.
    return bool(used & _PYTHON_2_NAMES - bound) and "NameError" not in source and "version_info" not in source


def shown_code(statement: str) -> str:
    """Return the last code with a ``def`` in a Markdown fence of a statement, as its starter;
    empty if none."""
    blocks = [found[2] for found in _CODE_BLOCK.finditer(statement) if "def " in found[2]]
    return blocks[-1] + "\n" if blocks else ""


TESTLIB = "WHETSTONE_TESTLIB"
_LOCAL = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">][^\n]*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*$", re.MULTILINE)


def with_headers(source: str, headers: Mapping[str, str]) -> str:
    """Return ``source`` with the text of each included header of ``headers``, by name, instead of its include
    line.

    A header is written once, where it is first included, as ``#pragma once`` asks for.
    """
    written: set[str] = set()

    def replace(found: re.Match[str]) -> str:
        # Checkers include headers by various relative paths.
        name = Path(found[1]).name
        if name not in headers:
            return found[0]
        if name in written:
            return ""
        written.add(name)
        return _LOCAL.sub(replace, _ONCE.sub("", headers[name]))

    return _LOCAL.sub(replace, source)


def with_testlib(source: str, whose: str) -> str:
    """Return the complete source of a checker. Raises UserError if it needs testlib.h and there is none."""
    if not re.search(r'#[ \t]*include[ \t]*["<]testlib\.h[">]', source):
        return source
    return with_headers(source, {"testlib.h": _testlib(whose)})


def _testlib(whose: str) -> str:
    path = os.environ.get(TESTLIB)
    if not path:
        raise UserError(
            f"{whose} has checkers that include testlib.h: get it from "
            f"https://github.com/MikeMirzayanov/testlib, and set its path: {TESTLIB}=PATH/testlib.h"
        )
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{TESTLIB}={path}: cannot be read: {error.strerror or error}") from None
