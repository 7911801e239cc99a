"""Benchmarks become problems whose references are whole programs; what does not fit is named."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from whetstone.errors import UserError
from whetstone.evaluate.assemble import AssemblingJudge
from whetstone.evaluate.benchmarks import load_benchmark
from whetstone.judge import AsyncJudge
from whetstone.problem import AssertTests, Problem, Program

SHARED = Path(os.environ.get("WHETSTONE_SHARED", Path(__file__).parents[3] / "shared")) / "data"
HUMANEVAL = SHARED / "humaneval" / "HumanEval.jsonl.gz"
MBPP = SHARED / "mbpp_sanitized" / "sanitized-mbpp.json"
needs_shared = pytest.mark.skipif(not HUMANEVAL.exists(), reason=f"no benchmark files in {SHARED}")

HUMANEVAL_ROW = {
    "task_id": "HumanEval/0",
    "prompt": "import math\n\ndef f(x):\n    '''One more.'''\n",
    "entry_point": "f",
    "canonical_solution": "    return x + 1\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
}
MBPP_ROW = {
    "task_id": 2,
    "prompt": "Write a function to add one.",
    "code": "def helper(x):\n    return x + 1\n\ndef add_one(x):\n    return helper(x)",
    "test_imports": ["import math"],
    "test_list": ["assert add_one(1) == 2", "assert set([add_one(2)]) == set([3])"],
}


def write(folder: Path, kind: str, row: dict[str, Any]) -> str:
    file = folder / ("HumanEval.jsonl" if kind == "humaneval" else "mbpp.json")
    file.write_text(json.dumps(row if kind == "humaneval" else [row]), encoding="utf-8")
    return str(file)


@needs_shared
def test_humaneval_has_its_164_problems_with_references_and_checks() -> None:
    benchmark = load_benchmark("humaneval", str(HUMANEVAL))
    assert len(benchmark.problems) == 164
    assert benchmark.file_sha256 == "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"
    for problem in benchmark.problems:
        assert isinstance(problem.tests, AssertTests)
        namespace: dict[str, Any] = {}
        exec(compile(problem.references[0].source, problem.id, "exec"), namespace)
        assert callable(namespace[problem.tests.entry_point or ""])


@needs_shared
def test_mbpp_has_its_427_problems_and_shows_every_assert() -> None:
    benchmark = load_benchmark("mbpp", str(MBPP))
    assert len(benchmark.problems) == 427
    for problem in benchmark.problems:
        assert isinstance(problem.tests, AssertTests)
        assert all(line in problem.statement for line in problem.tests.asserts or [])
        assert f"def {problem.tests.entry_point}" in problem.references[0].source


@needs_shared
def test_references_pass_through_the_judge_in_every_form_a_reply_may_have() -> None:
    humaneval = load_benchmark("humaneval", str(HUMANEVAL)).problems[::10]
    mbpp = load_benchmark("mbpp", str(MBPP)).problems[::25]
    pairs: list[tuple[Problem, str]] = []
    for problem in humaneval:
        whole, starter = problem.references[0].source, problem.starter or ""
        assert isinstance(problem.tests, AssertTests)
        function = whole[whole.index(f"def {problem.tests.entry_point}") :]
        body = whole[len(starter) :]
        pairs += [(problem, code) for code in (whole, function, body, body.strip())]
    pairs += [(problem, problem.references[0].source) for problem in mbpp]

    async def verdicts() -> list[str]:
        async with AsyncJudge(workers=1) as judge:
            complete = AssemblingJudge(judge)
            calls = (complete.judge(problem, Program("python", code)) for problem, code in pairs)
            return [judgement.verdict.value for judgement in await asyncio.gather(*calls)]

    assert asyncio.run(verdicts()) == ["accepted"] * len(pairs)


def test_mbpp_entry_point_is_the_called_function_not_its_helper(tmp_path: Path) -> None:
    (problem,) = load_benchmark("mbpp", write(tmp_path, "mbpp", MBPP_ROW)).problems
    assert isinstance(problem.tests, AssertTests)
    assert problem.tests.entry_point == "add_one"
    assert problem.tests.setup == "import math"


@pytest.mark.parametrize(
    ("kind", "row", "change", "message"),
    [
        ("humaneval", HUMANEVAL_ROW, {"prompt": None}, r"line 1: .*\$.prompt.*expected the columns task_id"),
        (
            "humaneval",
            HUMANEVAL_ROW,
            {"entry_point": "g"},
            "line 1: column `prompt`: expected a definition of `g`",
        ),
        ("humaneval", HUMANEVAL_ROW, {"test": "pass"}, r"line 1: column `test`: expected a function check"),
        ("mbpp", MBPP_ROW, {"task_id": "two"}, r"entry 0: .*int.*\$.task_id"),
        ("mbpp", MBPP_ROW, {"test_list": []}, "entry 0: column `test_list`: expected at least one assert"),
        ("mbpp", MBPP_ROW, {"code": "def ("}, "entry 0: column `code`: expected Python code"),
        ("mbpp", MBPP_ROW, {"code": "def other(): pass"}, "column `test_list`: expected asserts that call"),
    ],
)
def test_a_bad_column_is_named_with_what_was_expected(
    tmp_path: Path, kind: str, row: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load_benchmark(kind, write(tmp_path, kind, {**row, **change}))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    row = {key: value for key, value in HUMANEVAL_ROW.items() if key != "test"}
    with pytest.raises(UserError, match="missing required field `test`"):
        load_benchmark("humaneval", write(tmp_path, "humaneval", row))


def test_files_that_are_no_benchmark_say_so(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(gzip.compress(b"not json\n"))
    with pytest.raises(UserError, match="line 1: not JSON"):
        load_benchmark("humaneval", str(file))
    file.write_bytes(gzip.compress(b"long enough to be cut" * 9)[:-12])
    with pytest.raises(UserError, match="gzip"):
        load_benchmark("humaneval", str(file))
    file.write_bytes(b"{}")
    with pytest.raises(UserError, match="expected one JSON array"):
        load_benchmark("mbpp", str(file))
    file.write_bytes(b"\n")
    with pytest.raises(UserError, match="holds no problems"):
        load_benchmark("humaneval", str(file))
    file.write_text("\n".join([json.dumps(HUMANEVAL_ROW)] * 2))
    with pytest.raises(UserError, match="'HumanEval/0' occurs twice"):
        load_benchmark("humaneval", str(file))
    with pytest.raises(UserError, match=r"No such file.*--data"):
        load_benchmark("mbpp", str(tmp_path / "absent.json"))
    with pytest.raises(UserError, match="did you mean `humaneval`"):
        load_benchmark("humanevall", str(file))
    with pytest.raises(UserError, match="needs --data"):
        load_benchmark("mbpp", None)
