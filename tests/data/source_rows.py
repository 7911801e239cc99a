"""Rows of every source, as fixtures, and the problems that they become.

``python -m tests.data.source_rows`` writes the expected problems of all fixtures anew; look at the changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from whetstone.core.problem import Problem
from whetstone.data.decisions import ProblemDecision
from whetstone.data.sources.programs import TESTLIB
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import Row, import_rows
from whetstone.data.sources.table import SOURCE_NAMES, source_named

FIXTURES = Path(__file__).parent / "fixtures"
# Fixtures whose name is not that of the source.
_FILES = {
    "bigcodebench-hard": ["bigcodebench.jsonl"],
    "humanevalplus": ["humanevalplus.jsonl", "humanevalplus_hub.jsonl"],
    "mbpp": ["mbpp.json"],
    "mbpp-full": ["mbpp_full.jsonl"],
    "mbppplus": ["mbppplus.jsonl", "mbppplus_hub.jsonl"],
}
# Every source with each of its fixtures.
SOURCE_FIXTURES = [(name, file) for name in SOURCE_NAMES for file in _FILES.get(name, [f"{name}.jsonl"])]


def rows_of(file: str) -> list[Row]:
    return [row for _, row in read_rows([FIXTURES / file])]


def imported(name: str, rows: str | Path | list[Row]) -> tuple[list[Problem], list[ProblemDecision]]:
    """The problems and decisions of rows: of a fixture by its name, of a file, or the rows themselves."""
    source = source_named(name)
    if isinstance(rows, list):
        placed: Iterator[tuple[str, Row]] = iter([(f"rows, row {n}", row) for n, row in enumerate(rows, 1)])
    else:
        placed = read_rows([FIXTURES / rows])
    found = list(import_rows(source, placed))
    problems = [one for one in found if isinstance(one, Problem)]
    return problems, [one for one in found if isinstance(one, ProblemDecision)]


def expected_file(name: str, fixture: str) -> Path:
    """The file of the expected problems: one a line, then those that are dropped with the reason."""
    return FIXTURES / "expected" / f"{name}{'_hub' if '_hub.' in fixture else ''}.jsonl"


def lines_of(name: str, fixture: str) -> str:
    """The content of ``expected_file`` for what a fixture becomes now."""
    problems, decisions = imported(name, fixture)
    found = [json.dumps(msgspec.to_builtins(problem), ensure_ascii=False) for problem in problems]
    found += [json.dumps({"dropped": one.problem_id, "reason": one.reason}) for one in decisions]
    return "".join(f"{line}\n" for line in found)


def set_testlib(folder: Path) -> None:
    """Name a testlib.h, which checkers of AetherCode include."""
    header = folder / "testlib.h"
    header.write_text("// a stand-in\n")
    os.environ[TESTLIB] = str(header)


def write_expected() -> None:
    for name, fixture in SOURCE_FIXTURES:
        expected_file(name, fixture).write_text(lines_of(name, fixture), encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        set_testlib(Path(folder))
        write_expected()
