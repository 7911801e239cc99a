"""code-r1-12k: 10,000 problems of TACO and 2,000 of LeetCode, in verl's layout, as Code-R1 filtered them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whetstone.data.sources.source import Row, Source
from whetstone.data.sources.verl import COLUMNS, problem_of
from whetstone.problem import Problem

_NAME = "code-r1"
_LICENCE = "not stated; TACO is Apache-2.0, LeetCodeDataset Apache-2.0"
_ASKS = re.compile(
    r"Solve the programming task below in a Python markdown code block\.\n"
    r"|Please solve the programming task below using a self-contained code snippet "
    r"in a markdown code block\.\n\n"
)
_OFFERS = re.compile(
    r"\nAlso feel free to reuse/extend the following starter code:\n```python\n.*\n```\Z", re.DOTALL
)


def _statement(asked: str) -> str:
    """The statement, without the words around it and without the starter behind it."""
    return _OFFERS.sub("", asked[found.end() :] if (found := _ASKS.match(asked)) else asked)


def _convert(row: Row, own_id: str) -> Iterator[Problem]:
    yield problem_of(_NAME, _LICENCE, row, own_id, _statement)


SOURCES = (
    Source(
        name=_NAME,
        title="code-r1-12k: TACO and LeetCode problems whose solution passed, at most 8 tests each",
        hub_id="ganler/code-r1-12k",
        revision="2a0d26d",
        files={"train": "data/train-*.parquet", "test": "data/test-*.parquet"},
        columns=COLUMNS,
        licence=_LICENCE,
        convert=_convert,
        example="whetstone data prepare code-r1 --out sets/code-r1",
    ),
)
