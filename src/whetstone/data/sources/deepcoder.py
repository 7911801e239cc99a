"""DeepCoder-Preview: the four subsets that DeepCoder was trained and measured on.

Their tests come in three forms: columns (taco), rows with a ``type`` (primeintellect) and rows with a
``testtype``, the function's name beside them in ``metadata`` (lcbv5, codeforces). On the hub they are JSON
in text; the files of DeepCoder's own repository hold them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from whetstone.data.sources.primeintellect import statement_and_starter
from whetstone.data.sources.programs import references
from whetstone.data.sources.published import known, limits_of, names_in
from whetstone.data.sources.source import Row, Source, dict_of, list_of, text_of, value_of
from whetstone.data.sources.test_fields import read_tests
from whetstone.problem import Limits, Problem

_HUB_ID = "agentica-org/DeepCoder-Preview-Dataset"
_REVISION = "177913a7bd43791646ef6a43645caa3c871ab3db"
_LICENCE = "MIT"
_COLUMNS = {
    "problem": "the statement, as text",
    "tests": "a list of tests or an object with `inputs` and `outputs`, as JSON in text or as it is",
}
_SOLUTIONS = {"solutions": "a list of programs"}
_STARTER = {"starter_code": "the code to begin with, as text, empty for a program that reads its input"}
# What CodeElo's statements end with.
_TAGS = re.compile(r"\n\nTags:\n(\[[^\n]*\])\n")
_LIMITS = re.compile(r"\nTime Limit: (\S+ ms)\nMemory Limit: (\S+ MB)\s*\Z")


def _converter(name: str) -> Callable[[Row, str], Iterator[Problem]]:
    def convert(row: Row, own_id: str) -> Iterator[Problem]:
        programs, left_out = references(list_of(row, "solutions", default=[]))
        statement, offered = statement_and_starter(text_of(row, "problem"))
        starter = text_of(row, "starter_code", default="") or offered
        tags, limits = _TAGS.search(statement), _LIMITS.search(statement)
        function = dict_of(row, "metadata", default={}).get("func_name")
        tests = value_of(row, "tests", object)
        yield Problem(
            id=f"{name}/{own_id}",
            statement=statement,
            tests=read_tests(
                tests, function=function, starter=starter, programs=[program.source for program in programs]
            ),
            starter=starter or None,
            limits=limits_of(*limits.groups()) if limits else Limits(),
            references=programs,
            source=name,
            meta=known(
                licence=_LICENCE, tags=names_in(tags[1]) if tags else [], references_left_out=left_out
            ),
        )

    return convert


def _source(subset: str, title: str, files: dict[str, str], columns: dict[str, str]) -> Source:
    name = f"deepcoder-{subset}"
    return Source(
        name=name,
        title=f"DeepCoder-Preview: {title}",
        hub_id=_HUB_ID,
        revision=_REVISION,
        files={split: f"{subset}/{pattern}" for split, pattern in files.items()},
        columns=_COLUMNS | columns,
        licence=_LICENCE,
        convert=_converter(name),
        example=f"whetstone data prepare {name} --out sets/{name}",
    )


_TRAIN = {"train": "train-*.parquet"}
_TEST = {"test": "test-*.parquet"}
SOURCES = (
    _source("primeintellect", "problems of PrimeIntellect's SYNTHETIC-1", _TRAIN, _SOLUTIONS),
    _source("taco", "problems of TACO-verified", _TRAIN, _SOLUTIONS),
    _source("lcbv5", "LiveCodeBench v5, with its private tests", _TRAIN | _TEST, _STARTER),
    _source("codeforces", "408 problems of Codeforces with the tests of their statements", _TEST, {}),
)
