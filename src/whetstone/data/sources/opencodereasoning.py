"""OpenCodeReasoning-2: solutions of a model to problems of four other sets.

A row has neither statement nor tests. It names the set, its split, and the number of the row there. So the
rows of a question are joined with that row, which the reader of its set converts. The solutions that pass
become references. They are read first; then each set is read once, in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.sources.locate import locate
from whetstone.data.sources.programs import references
from whetstone.data.sources.row_problem import known
from whetstone.data.sources.source import DatasetSource, Row, Skip, text_of
from whetstone.data.sources.table import source_named

# The name of a set in the rows -> the source that reads it.
_SETS = {name: name for name in ("apps", "code_contests", "taco")} | {
    "open-r1/codeforces": "open-r1-codeforces"
}
# Most solutions of a question. The set has dozens of each.
_MOST_SOLUTIONS = 4
# Columns of tens of kilobytes that are not used.
_LONG = {"r1_generation", "qwq_critique"}
_SOLUTIONS, _OTHER = "passed solutions", "row of the other set"
_Questions = dict[int, tuple[str, Row]]


def join(rows: Iterable[tuple[str, Row]], folder: Path | None) -> Iterator[tuple[str, Row]]:
    """Yield one row of each question, joined with its row of the other set, or with the reason why not.

    That set is in the subfolder of ``folder`` with the name of its source, such as ``taco``; on the hub if
    ``folder`` is None.
    """
    wanted: dict[tuple[str, str], _Questions] = {}
    for place, row in rows:
        name, index = str(row.get("dataset")), str(row.get("index"))
        if name not in _SETS or not index.isdecimal():
            yield place, {**row, _OTHER: f"no source reads row {index} of {name}"}
            continue
        questions = wanted.setdefault((name, str(row.get("split"))), {})
        if int(index) not in questions:
            small = {column: value for column, value in row.items() if column not in _LONG}
            questions[int(index)] = place, {**small, _SOLUTIONS: []}
        kept = questions[int(index)][1][_SOLUTIONS]
        # Without tests, the set's critic judged a solution.
        rate = str(row.get("pass_rate"))
        judged_right = rate in ("-1", "-1.0", "nan") and row.get("judgement") == "right"
        if (rate in ("1", "1.0") or judged_right) and len(kept) < _MOST_SOLUTIONS:
            kept.append(row.get("solution"))
    for (name, split), questions in wanted.items():
        yield from _joined(source_named(_SETS[name]), split, questions, folder)


def _joined(
    source: DatasetSource, split: str, questions: _Questions, folder: Path | None
) -> Iterator[tuple[str, Row]]:
    reason = f"{source.name}, split {split}, has no row of this number"
    try:
        found = locate(source, folder and folder / source.name, splits=[split])
        others = (row for part in found.parts for _, row in part.read(None))
        for number, other in enumerate(others):
            if number in questions:
                place, row = questions.pop(number)
                yield place, {**row, _OTHER: other}
    except UserError as error:
        reason = str(error)
    for place, row in questions.values():
        yield place, {**row, _OTHER: reason}


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a joined row. Raises Skip("tests_elsewhere") for a row without that of its other set."""
    name, other = text_of(row, "dataset"), row.get(_OTHER, "it was read without that set")
    if isinstance(other, str):
        raise Skip("tests_elsewhere", f"statement and tests are in row {row.get('index')} of {name}: {other}")
    problem = source_named(_SETS[name]).convert(source_named(_SETS[name]), other, own_id)
    # The rows do not state the language, which a fence does.
    written = [f"```cpp\n{text}\n```" if "#include" in str(text) else text for text in row[_SOLUTIONS]]
    programs, left_out = references(written)
    facts = known(difficulty=row.get("difficulty"), origin=name, original_row=row.get("index"))
    return msgspec.structs.replace(
        problem,
        id=f"{source.name}/{own_id}",
        source=source.name,
        references=[*problem.references, *programs],
        meta={**facts, **problem.meta, **known(solutions_left_out=left_out)},
    )
