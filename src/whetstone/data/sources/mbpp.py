"""MBPP: a sentence, some asserts and a reference; all 974 problems, or the 427 checked by hand.

Austin et al. 2021, arXiv 2108.07732: the prompt shows all asserts, and problems 11 to 510 are the test set.
"""

from __future__ import annotations

import ast
from typing import cast

from whetstone.core.problem import AssertTests, Problem, Program
from whetstone.core.syntax import NotPython, parse
from whetstone.data.sources.humaneval import LIMITS
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, list_of, text_of, value_of

_SPLITS = (("prompt", range(1, 11)), ("test", range(11, 511)), ("validation", range(511, 601)))


def called_function(code: str, asserts: str) -> str | None:
    """Return the function or class that ``code`` defines and ``asserts`` call first; None if there is none.

    Raises ColumnError for text that is no Python.
    """
    defined = [n.name for n in _tree("code", code).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    calls = (n.func for n in ast.walk(_tree("test_list", asserts)) if isinstance(n, ast.Call))
    return next((f.id for f in calls if isinstance(f, ast.Name) and f.id in defined), None)


def split_of(task: int) -> str:
    """Return the split of the paper that a task belongs to."""
    return next((name for name, tasks in _SPLITS if task in tasks), "train")


def convert_sanitized(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of the set checked by hand."""
    setup = "\n".join(_lines(row, "test_imports"))
    return _problem(source, row, text_of(row, "prompt"), setup, _lines(row, "test_list"))


def convert_full(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of the whole set."""
    setup = text_of(row, "test_setup_code", default="")
    asserts = [*_lines(row, "test_list"), *_lines(row, "challenge_test_list")]
    return _problem(source, row, text_of(row, "text"), setup, asserts, shown=_lines(row, "test_list"))


def _problem(
    source: DatasetSource, row: Row, text: str, setup: str, asserts: list[str], shown: list[str] | None = None
) -> Problem:
    code, task = text_of(row, "code"), value_of(row, "task_id", int)
    called = called_function(code, "\n".join(asserts))
    if called is None:
        raise ColumnError("test_list", "without them", "asserts that call a function which `code` defines")
    listed = "\n".join(asserts if shown is None else shown)
    return Problem(
        id=f"{source.name}/{task}",
        statement=f"{text.strip()}\nYour code should pass these tests:\n\n{listed}",
        tests=AssertTests(setup=setup, asserts=asserts, entry_point=called),
        limits=LIMITS,
        references=[Program("python", code)],
        source=source.name,
        meta={"licence": source.licence, "task_id": task, "split": split_of(task)},
    )


def _lines(row: Row, column: str) -> list[str]:
    """Return the texts of a list; only ``test_list`` must not be empty."""
    lines = list_of(row, column, default=None if column == "test_list" else [])
    if not all(isinstance(line, str) for line in lines) or (column == "test_list" and not lines):
        raise ColumnError(column, "an empty list" if not lines else "a list of other things")
    return cast("list[str]", lines)


def _tree(column: str, code: str) -> ast.Module:
    try:
        return parse(code)
    except NotPython as error:
        raise ColumnError(column, f"not Python code ({error})", "Python code") from None
