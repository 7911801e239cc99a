"""Finds the tests that a statement shows completely, with their expected values.

``examples.contains_example`` errs on the other side. It also finds parts of examples, so that no copy of an
example passes for a new case. Here, such a part could reveal a hidden test. So an example is one of these:

- the whole text between the labels ``Input`` and ``Output``, and the text after the latter;
- a call, followed by an arrow, ``==`` or ``returns`` and the value, or by the value in the next line;
- the lines of an assert.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar, cast

from msgspec.structs import replace

from whetstone.core.problem import AssertTests, CallCase, CallTests, Problem, StdinCase, StdinTests
from whetstone.core.syntax import parsed

ShownTests = StdinTests | CallTests | AssertTests

_Kind = Literal["input", "output", "heading", "blank", "text"]
_Lines = tuple[str, ...]
_Test = TypeVar("_Test", StdinCase, CallCase, str)

_LABEL = re.compile(
    r"(?:(?:sample|example|expected)s?\s+)?(input|output)(?:\s+(?:sample|example))?\s*#?\d*\s*(?::(.*))?",
    re.I,
)
_HEADING = re.compile(
    r"(?:examples?|samples?|explanations?|notes?|constraints?|hints?|follow[- ]?up)\b", re.I
)
_MARKS = "*#-=_>` \t"
_ARROW = re.compile(r"(?:->|→|➞|-->|=>|⇒|==|=|returns?\b|should return\b|#|//)(.*)", re.I)
_PIECE = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\w+|\s+|.")
_ARGUMENT_NAME = re.compile(r"(?:^|(?<=,))\s*\w+\s*=(?!=)")
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}


def shown_tests(problem: Problem) -> ShownTests | None:
    """Return the problem's tests that its statement shows, in its order; None if there are none."""
    tests, statement = problem.tests, problem.statement
    if isinstance(tests, StdinTests):
        places = {texts: place for place, texts in enumerate(_labelled_examples(statement))}
        # A longer case is not in the statement, so it is not split into lines.
        short = [c for c in tests.cases if places and len(c.input) + len(c.output) <= 2 * len(statement)]
        found = [(places.get((_lines(case.input), _lines(case.output))), case) for case in short]
        cases = _in_order(found)
        return StdinTests(cases) if cases else None
    if isinstance(tests, CallTests):
        calls = _shown_calls(tests, statement)
        return replace(tests, cases=calls) if calls else None
    if isinstance(tests, AssertTests) and tests.asserts and _only_imports(tests.setup):
        text = "\n".join(["", *(_plain(line.strip("` \t")) for line in statement.splitlines()), ""])
        lines = [(text.find("\n".join(["", *_lines(each), ""])), each) for each in tests.asserts]
        asserts = _in_order((place if place >= 0 else None, each) for place, each in lines)
        return replace(tests, asserts=asserts) if asserts else None
    return None


def _in_order(found: Iterable[tuple[int | None, _Test]]) -> list[_Test]:
    """Return the tests that have a place in the statement, by that place."""
    placed = [(place, test) for place, test in found if place is not None]
    return [test for _, test in sorted(placed, key=lambda each: each[0])]


def _only_imports(setup: str) -> bool:
    """Return whether a setup shows no test code to a program that would have to share its process."""
    tree = parsed(setup)
    return tree is not None and all(isinstance(node, ast.Import | ast.ImportFrom) for node in tree.body)


def _plain(line: str) -> str:
    return " ".join(line.split())


def _lines(text: str) -> _Lines:
    """Return the lines of a text that are not blank, each with single spaces."""
    return tuple(_plain(line) for line in text.splitlines() if line.strip())


def _labelled_examples(statement: str) -> Iterator[tuple[_Lines, _Lines]]:
    """Yield input and output of each example, twice if the output may end at a blank line or later."""
    parts = [part for line in statement.splitlines() for part in _parts(line)]
    given: list[str] | None = None
    for number, (kind, text) in enumerate(parts):
        if kind == "input":
            given = []
        elif kind == "heading":
            given = None
        elif kind == "text" and given is not None:
            given.append(text)
        elif kind == "output" and given is not None:
            for output in _outputs(parts, number + 1):
                if output:
                    yield tuple(given), output
            given = None


def _parts(line: str) -> Iterator[tuple[_Kind, str]]:
    """Yield what a line is: a label, and the text after it, or one of the other kinds."""
    label = _LABEL.fullmatch(line.strip().lstrip(_MARKS)) or _LABEL.fullmatch(line.strip(_MARKS))
    if label is not None:
        yield ("input", "") if label[1].lower() == "input" else ("output", "")
        if text := (label[2] or "").strip("*` \t"):
            yield "text", _plain(text)
    elif _HEADING.match(line.lstrip(_MARKS)):
        yield "heading", ""
    elif not line.strip() or line.lstrip().startswith("```"):
        yield "blank", ""
    else:
        yield "text", _plain(line)


def _outputs(parts: Sequence[tuple[_Kind, str]], begin: int) -> list[_Lines]:
    """Return the lines of an output: those before the first blank one, and all of them."""
    lines: list[str] = []
    first: _Lines | None = None
    for kind, text in parts[begin:]:
        if kind == "text":
            lines.append(text)
        elif kind != "blank":
            break
        elif lines and first is None:
            first = tuple(lines)
    return [*([] if first is None else [first]), tuple(lines)]


def _shown_calls(tests: CallTests, statement: str) -> list[CallCase]:
    shown = [
        (_canonical(_ARGUMENT_NAME.sub("", ",".join(given))), _canonical(" ".join(output)))
        for given, output in _labelled_examples(statement)
    ]
    if tests.function is not None:
        shown += _written_calls(tests.function, statement)
    places = {texts: place for place, texts in enumerate(shown)}
    # A longer case is not in the statement, so its text is not made.
    most = max((2 * len(given + output) + 100 for given, output in shown), default=0)
    short = [case for case in tests.cases if not _exceeds([case.args, case.expected], most)]
    return _in_order((places.get(_written(case, tests.literals)), case) for case in short)


def _written_calls(function: str, statement: str) -> Iterator[tuple[str, str]]:
    """Yield arguments and value of each call that is written with its value."""
    call = re.compile(rf"\b{re.escape(function)}\s*\(")
    lines = [line.strip("` \t") for line in statement.splitlines() if line.strip("` \t")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        for found in call.finditer(line):
            close = _closing(line, found.end())
            if close is None:
                continue
            rest = line[close + 1 :].strip("` \t")
            arrow = _ARROW.fullmatch(rest)
            value = arrow[1] if arrow else following if not rest and line.startswith(">>>") else ""
            if value := value.lstrip("` \t").rstrip("` \t."):
                arguments = _ARGUMENT_NAME.sub("", line[found.end() : close])
                yield _canonical(arguments), _canonical(value)


def _closing(line: str, begin: int) -> int | None:
    """Return the place of the bracket that closes the one before ``begin``."""
    depth = 1
    for piece in _PIECE.finditer(line, begin):
        depth += (piece[0] in "([{") - (piece[0] in ")]}")
        if depth == 0:
            return piece.start()
    return None


def _written(case: CallCase, literals: bool) -> tuple[str, str]:
    """Return arguments and expected value as ``_canonical`` texts."""

    def text(value: Any) -> str:
        return _canonical(str(value) if literals else json.dumps(value, ensure_ascii=False))

    if case.operations is None:
        return ",".join(map(text, [*case.args, *case.kwargs.values()])), text(case.expected)
    # With literals the entries of the lists are texts, which statements write without quotes.
    if literals:
        return "", ""
    return f"{text(case.operations)},{text(case.args)}", text(case.expected)


def _canonical(text: str) -> str:
    """Return a value's text without spaces, with the quotes and constants of JSON."""
    return "".join(_canonical_piece(piece[0]) for piece in _PIECE.finditer(text))


def _canonical_piece(piece: str) -> str:
    if len(piece) > 1 and piece.startswith("'") and '"' not in piece:
        return f'"{piece[1:-1]}"'
    return "" if piece.isspace() else _CONSTANTS.get(piece, piece)


def _exceeds(value: Any, most: int) -> bool:
    """Return whether the text of a value has certainly more than ``most`` characters."""
    left, values = most, [value]
    while values and left >= 0:
        item = values.pop()
        if isinstance(item, list | dict):
            left -= len(cast("list[Any]", item))
            if left >= 0:
                values += item.values() if isinstance(item, dict) else cast("list[Any]", item)
        elif isinstance(item, str):
            left -= len(item)
    return left < 0
