"""An export format: the columns of another trainer's data files, and the problems that its judge can score.

A problem that the other judge would score by other rules is never written silently. It raises
``NotRepresentable``, and is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.problem import (
    AssertTests,
    CallTests,
    InteractiveTests,
    Problem,
    StdinTests,
    statement_with_starter,
)
from whetstone.judge.instruction import instruction

Row = dict[str, Any]

ColumnType = str | list[Any] | dict[str, Any]
"""A type of Arrow: its name, a list with the type of the items, or the types of a structure's fields."""

# Messages of a chat.
CHAT: ColumnType = [{"role": "string", "content": "string"}]


class NotRepresentable(Exception):
    """An export format cannot represent a problem, or its judge cannot score the tests. The message is the
    reason."""


class ExportFormat(Struct, frozen=True):
    """Columns, and a function from a problem to a row.

    ``row`` gets the problem, the name of its split and its number in it. It raises NotRepresentable.
    ``carries`` describes the problems that it accepts, ``way_out`` the remedy for the others.
    """

    name: str
    title: str
    schema: Mapping[str, ColumnType]
    row: Callable[[Problem, str, int], Row]
    carries: str
    way_out: str


def prompt_text(problem: Problem) -> str:
    """Return the prompt that a run of Whetstone would use by default."""
    return f"{statement_with_starter(problem)}\n\n{instruction(problem)}".rstrip("\n")


def chat(problem: Problem) -> list[dict[str, str]]:
    """Return the prompt as a user's message."""
    return [{"role": "user", "content": prompt_text(problem)}]


def reference(problem: Problem) -> str:
    """Return the first reference in the problem's language; empty if there is none."""
    return next((p.source for p in problem.references if p.language == problem.language), "")


def problem_json(problem: Problem) -> str:
    """Return the problem in the published schema, as JSON, for a reward function that uses
    Whetstone's judge."""
    return msgspec.json.encode(problem).decode()


def require_texts(problem: Problem) -> StdinTests:
    """Return the tests of a problem whose output is compared as text. Raises NotRepresentable."""
    tests = problem.tests
    if not isinstance(tests, StdinTests):
        raise NotRepresentable(f"{_kind(problem)} tests")
    if problem.checker is not None:
        raise NotRepresentable("a checker decides")
    if problem.compare.mode not in ("tokens", "lines", "grader:lcb"):
        raise NotRepresentable(f"compare mode {problem.compare.mode}")
    return tests


def require_calls(problem: Problem) -> CallTests:
    """Return the tests of a problem that calls a function with positional arguments. Raises
    NotRepresentable."""
    tests = problem.tests
    if not isinstance(tests, CallTests):
        raise NotRepresentable(f"{_kind(problem)} tests")
    if tests.function is None:
        raise NotRepresentable("operations on an object")
    if tests.class_ not in (None, "Solution"):
        raise NotRepresentable("methods of a class that is not called Solution")
    if any(case.kwargs for case in tests.cases):
        raise NotRepresentable("keyword arguments")
    return tests


def require_python(problem: Problem) -> None:
    """Raise NotRepresentable for a problem that requires another language."""
    if problem.language != "python":
        raise NotRepresentable(f"programs in {problem.language}")


def compact(value: Any) -> str:
    """Encode a value as JSON in one line, as Python's ``json`` spells it, which other readers expect."""
    return json.dumps(value, ensure_ascii=False)


def _kind(problem: Problem) -> str:
    tests = problem.tests
    if isinstance(tests, AssertTests):
        return "assert"
    return "interactive" if isinstance(tests, InteractiveTests) else str(tests.__struct_config__.tag)
