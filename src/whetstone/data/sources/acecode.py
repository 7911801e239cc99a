"""AceCode-87K: rewritten questions with asserts that a model wrote, and replies with their pass rates."""

from __future__ import annotations

from whetstone.core.problem import Problem
from whetstone.data.sources.row_problem import row_problem
from whetstone.data.sources.source import DatasetSource, Row, list_of, text_of

# Most replies of a question that become references. A question has 16 or more.
_MOST_REFERENCES = 4


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of AceCode. The replies that pass all of its tests are the references."""
    passed = {
        reply.get("completion"): None
        for reply in list_of(row, "inferences", default=[])
        if reply.get("pass_rate") == 1
    }
    return row_problem(
        source,
        own_id,
        statement=text_of(row, "question"),
        tests=list_of(row, "test_cases"),
        solutions=list(passed)[:_MOST_REFERENCES],
        facts={"origin": row.get("source")},
    )
