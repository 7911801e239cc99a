"""open-r1's Codeforces: problems with tests of the contests, and checkers in Python where answers vary."""

from __future__ import annotations

from typing import Any

from whetstone.core.problem import Problem, PythonChecker, StdinTests
from whetstone.data.sources.row_problem import day_of, known, limits_of
from whetstone.data.sources.source import DatasetSource, Row, Skip, case_of, list_of, text_of

# A checker is a script. It gets three files, and prints 1 for a right output.
_CHECKER = """\
import contextlib
import io
import os
import sys
import tempfile

CHECKER = {source!r}


def check(input, output, expected):
    with tempfile.TemporaryDirectory() as folder:
        texts = {{"input.txt": input, "correct_output.txt": expected, "solution_output.txt": output}}
        for name, text in texts.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
                file.write(text)
        sys.argv = ["checker.py", *(os.path.join(folder, name) for name in texts)]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            exec(compile(CHECKER, "checker.py", "exec"), {{"__name__": "__main__"}})
        return said.getvalue().strip() == "1"
"""


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of open-r1's Codeforces."""
    if text_of(row, "interaction_format", default="").strip():
        raise Skip("interactive", "the problem is interactive and has no interactor")
    if text_of(row, "input_mode", default="stdio") != "stdio":
        raise Skip("reads_files", "the program has to read or write files by name")
    if row.get("executable") is False:
        raise Skip("not_executable", "the set marks its tests as not executable")
    cases = [case_of(test, "official_tests") for test in list_of(row, "official_tests", default=[])]
    if not cases:
        raise Skip("no_tests", "`official_tests` is empty")
    checker = text_of(row, "generated_checker", default="").strip()
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=_statement(row),
        tests=StdinTests(cases),
        checker=PythonChecker(_CHECKER.format(source=checker)) if checker else None,
        limits=limits_of(row.get("time_limit"), row.get("memory_limit")),
        source=source.name,
        meta=_meta(source, row, own_id),
    )


def _statement(row: Row) -> str:
    """Return the parts of a problem's page, in their order."""
    parts = [text_of(row, "title", default=""), text_of(row, "description")]
    for title, column in (("Input", "input_format"), ("Output", "output_format"), ("Note", "note")):
        if text := text_of(row, column, default="").strip():
            parts.append(f"{title}\n\n{text}")
    for number, example in enumerate(list_of(row, "examples", default=[]), 1):
        shown = case_of(example, "examples")
        parts.append(
            f"Example {number}\n\nInput:\n{shown.input.rstrip()}\n\nOutput:\n{shown.output.rstrip()}"
        )
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _meta(source: DatasetSource, row: Row, own_id: str) -> dict[str, Any]:
    contest, slash, index = own_id.partition("/")
    return known(
        licence=source.licence,
        difficulty=row.get("rating"),
        platform="codeforces",
        tags=row.get("tags"),
        official_tests_complete=bool(row.get("official_tests_complete")),
        contest_date=day_of(row.get("contest_start")),
        url=f"https://codeforces.com/contest/{contest}/problem/{index}" if slash else "",
    )
