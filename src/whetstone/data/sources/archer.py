"""ArcherCodeR's dataset: 6,753 problems of DeepCoder, CodeContests and Codeforces, in verl's layout."""

from __future__ import annotations

from collections.abc import Iterator

from whetstone.data.sources.source import Row, Source
from whetstone.data.sources.verl import COLUMNS, problem_of
from whetstone.problem import Problem

_NAME = "archer"
_LICENCE = "MIT"


def _convert(row: Row, own_id: str) -> Iterator[Problem]:
    yield problem_of(_NAME, _LICENCE, row, own_id, str)


SOURCES = (
    Source(
        name=_NAME,
        title="ArcherCodeR: 6,753 problems with regenerated tests, and LiveCodeBench v5",
        hub_id="Fate-Zero/ArcherCodeR-Dataset",
        revision="46a73cf",
        files={"train": "train/archercoder-1.5b-train.json", "test": "test/livecodebench_v5.json"},
        columns=COLUMNS,
        licence=_LICENCE,
        convert=_convert,
        example="whetstone data prepare archer --split train --out sets/archer",
    ),
)
