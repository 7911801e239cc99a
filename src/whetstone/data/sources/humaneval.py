"""HumanEval: a function's signature and docstring, to be completed, with ``check(candidate)`` as the test.

Chen et al. 2021, arXiv 2107.03374.
"""

from __future__ import annotations

from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Limits, Problem, Program
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, text_of

# Limits for a whole list of asserts. Every reference needs far less.
LIMITS = Limits(cpu_s=6.0, memory_mb=1024.0)


def convert(source: DatasetSource, row: Row, own_id: str) -> Problem:
    """Convert a row of HumanEval, or of a set with its columns."""
    entry_point, prompt, test = (text_of(row, name) for name in ("entry_point", "prompt", "test"))
    if f"def {entry_point}" not in prompt:
        raise ColumnError("prompt", "text without it", f"a definition of `{entry_point}`")
    if "def check(" not in test:
        raise ColumnError("test", "text without it", "a function check(candidate)")
    task = text_of(row, "task_id")
    return Problem(
        id=f"{source.name}/{task.rpartition('/')[2]}",
        statement=prompt,
        starter=prompt,
        tests=AssertTests(check=test, entry_point=entry_point),
        limits=LIMITS,
        references=[Program("python", prompt + text_of(row, "canonical_solution"))],
        source=source.name,
        meta={"licence": source.licence, "task_id": task, COMPLETES_STARTER: True},
    )
