"""DeepCoder-Preview: the four subsets that DeepCoder was trained and measured on.

Their tests have three forms: columns (taco), rows with a ``type`` (primeintellect), and rows with a
``testtype`` and the function's name in ``metadata`` (lcbv5, codeforces). On the hub they are JSON in text.
The files of DeepCoder's repository have them unpacked.
"""

from __future__ import annotations

import re

from whetstone.core.problem import Problem
from whetstone.data.sources.primeintellect import statement_and_starter
from whetstone.data.sources.row_problem import limits_of, names_in, row_problem
from whetstone.data.sources.source import DatasetSource, Row, dict_of, list_of, text_of, value_of

# The last sentence of CodeElo's statements.
_TAGS = re.compile(r"\n\nTags:\n(\[[^\n]*\])\n")
_LIMITS = re.compile(r"\nTime Limit: (\S+ ms)\nMemory Limit: (\S+ MB)\s*\Z")


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of a subset of DeepCoder."""
    statement, offered = statement_and_starter(text_of(row, "problem"))
    tags, limits = _TAGS.search(statement), _LIMITS.search(statement)
    return row_problem(
        source,
        own_id,
        solutions=list_of(row, "solutions", default=[]),
        statement=statement,
        starter=text_of(row, "starter_code", default="") or offered,
        function=dict_of(row, "metadata", default={}).get("func_name"),
        tests=value_of(row, "tests", object),
        limits=limits_of(*limits.groups()) if limits else None,
        facts={"tags": names_in(tags[1]) if tags else []},
    )
