"""CodeContests: problems of five sites with correct and incorrect programs, and generated tests.

Li et al. 2022, arXiv 2203.07814.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from whetstone.core.problem import Limits, Problem, Program, StdinCase, StdinTests
from whetstone.data.sources.row_problem import known, limits_of
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, Skip, dict_of, text_of

# Most correct and most incorrect programs of a problem. The shortest are kept; rows have hundreds.
MOST_PROGRAMS = 20
_SITES = ("", "codechef", "codeforces", "hackerearth", "codejam", "atcoder", "aizu")
_DIFFICULTIES = ("", "easy", "medium", "hard", "harder", "hardest", "external")
_LANGUAGES = {0: "unknown", 1: "python2", 2: "cpp", 3: "python", 4: "java"}
_RUNNABLE = frozenset({"cpp", "python", "java"})
_TESTS = ("public_tests", "private_tests", "generated_tests")


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of CodeContests."""
    if text_of(row, "input_file", default="") or text_of(row, "output_file", default=""):
        raise Skip("reads_files", "the program has to read or write files by name")
    counts = {column: len(_pairs(row, column)) for column in _TESTS}
    pairs = [pair for column in _TESTS for pair in _pairs(row, column)]
    if not pairs:
        raise Skip("no_tests", "there are no tests")
    references, others = _programs(row, "solutions")
    wrong, _ = _programs(row, "incorrect_solutions")
    return Problem(
        id=f"{source.name}/{own_id}",
        statement=text_of(row, "description"),
        tests=StdinTests([StdinCase(given, expected) for given, expected in pairs]),
        limits=_limits(row),
        references=references,
        wrong=wrong,
        source=source.name,
        meta=_meta(source, row, counts, others),
    )


def _pairs(row: Row, column: str) -> list[tuple[str, str]]:
    match dict_of(row, column, default={}):
        case {"input": list(given), "output": list(expected)} if len(given) == len(expected):
            return [(str(i), str(o)) for i, o in zip(cast("list[Any]", given), expected, strict=True)]
        case {}:
            return []
        case _:
            raise ColumnError(column, "something else")


def _programs(row: Row, column: str) -> tuple[list[Program], dict[str, int]]:
    """Return programs in languages that the judge runs, Python first, and the number of
    programs in others."""
    match dict_of(row, column, default={}):
        case {"language": list(numbers), "solution": list(sources)} if len(numbers) == len(sources):
            written = list(zip(cast("list[Any]", numbers), cast("list[Any]", sources), strict=True))
        case {}:
            return [], {}
        case _:
            raise ColumnError(column, "something else")
    named = [(_LANGUAGES.get(number, "unknown"), str(source)) for number, source in written]
    others = Counter(language for language, _ in named if language not in _RUNNABLE)
    found = [Program(language, source) for language, source in dict.fromkeys(named) if language in _RUNNABLE]
    # The first programs are kept: Python, whose mutants validation tries, and short ones.
    found.sort(key=lambda program: (program.language != "python", len(program.source)))
    return found[:MOST_PROGRAMS], dict(sorted(others.items()))


def _limits(row: Row) -> Limits:
    time = dict_of(row, "time_limit", default={})
    seconds = float(time.get("seconds") or 0) + float(time.get("nanos") or 0) / 1e9
    return limits_of(seconds, float(row.get("memory_limit_bytes") or 0) / 2**20)


def _meta(source: DatasetSource, row: Row, counts: dict[str, int], others: dict[str, int]) -> dict[str, Any]:
    site, difficulty = row.get("source"), row.get("difficulty")
    contest, index = row.get("cf_contest_id"), row.get("cf_index")
    address = f"https://codeforces.com/contest/{contest}/problem/{index}" if contest and index else ""
    return known(
        licence=source.licence,
        platform=_SITES[site] if isinstance(site, int) and 0 <= site < len(_SITES) else "",
        difficulty=_difficulty(difficulty),
        rating=row.get("cf_rating") or None,
        tags=[tag for tag in row.get("cf_tags") or [] if tag],
        tests={column.removesuffix("_tests"): count for column, count in counts.items() if count},
        references_left_out=others,
        url=address,
    )


def _difficulty(number: Any) -> str:
    """Return a word, or the letter of the problem in its contest."""
    if not isinstance(number, int) or number < 0:
        return ""
    letter = number - len(_DIFFICULTIES)
    return _DIFFICULTIES[number] if letter < 0 else chr(ord("A") + letter) if letter < 22 else ""
