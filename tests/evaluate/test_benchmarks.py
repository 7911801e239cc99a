"""Benchmarks become problems whose references are whole programs; what does not fit is named."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import (
    AssertTests,
    Problem,
    Program,
    StdinCase,
    StdinTests,
)
from whetstone.data.dataset import DatasetWriter
from whetstone.data.sources.table import source_named
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection
from whetstone.environments.single_turn import assemble, program_of
from whetstone.evaluate.benchmarks import BENCHMARKS, check_benchmark, load_benchmark
from whetstone.judge import AsyncJudge
from whetstone.judge.instruction import instruction

SHARED = Path(os.environ.get("WHETSTONE_SHARED", Path(__file__).parents[3] / "shared")) / "data"
HUMANEVAL = SHARED / "humaneval" / "HumanEval.jsonl.gz"
MBPP = SHARED / "mbpp_sanitized" / "sanitized-mbpp.json"
FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
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


@pytest.mark.process
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
            calls = (
                judge.judge(problem, Program("python", assemble(problem, code))) for problem, code in pairs
            )
            return [judgement.verdict.value for judgement in await asyncio.gather(*calls)]

    assert asyncio.run(verdicts()) == ["accepted"] * len(pairs)


def test_files_that_are_no_benchmark_say_so(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(gzip.compress(b"not json\n"))
    with pytest.raises(UserError, match="line 1: not JSON"):
        load_benchmark("humaneval", str(file))
    file.write_bytes(gzip.compress(b"long enough to be cut" * 9)[:-12])
    with pytest.raises(UserError, match="end-of-stream"):
        load_benchmark("humaneval", str(file))
    file.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(UserError, match=r"column `task_id` is missing.*not the schema of `mbpp`"):
        load_benchmark("mbpp", str(file))
    file.write_bytes(gzip.compress(b"\n"))
    with pytest.raises(UserError, match="contains no problems"):
        load_benchmark("humaneval", str(file))
    with pytest.raises(UserError, match=r"absent.json: no such file"):
        load_benchmark("mbpp", str(tmp_path / "absent.json"))
    with pytest.raises(UserError, match="did you mean `humaneval`"):
        load_benchmark("humanevall", str(file))
    with pytest.raises(UserError, match="`humaneval` has no parts; leave out `:test`"):
        load_benchmark("humaneval:test", str(file))
    with pytest.raises(UserError, match="`mbpp` has no `tset`; did you mean `test`"):
        load_benchmark("mbpp:tset", str(file))
    with pytest.raises(UserError, match="needs --data"):
        load_benchmark("problems", None)


def test_rows_that_are_no_problem_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "HumanEval.jsonl"
    file.write_text("\n".join([json.dumps(HUMANEVAL_ROW)] * 2))
    benchmark = load_benchmark("humaneval", str(file))
    assert [problem.id for problem in benchmark.problems] == ["humaneval/0"]
    assert benchmark.left_out == {"duplicate_id": 1}


def test_a_part_of_a_benchmark_is_named_and_picks_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "mbpp.json"
    file.write_text(json.dumps([{**MBPP_ROW, "task_id": task} for task in (2, 11, 510, 511)]))
    whole, test = load_benchmark("mbpp", str(file)), load_benchmark("mbpp:test", str(file))
    assert [problem.id for problem in whole.problems] == ["mbpp/2", "mbpp/11", "mbpp/510", "mbpp/511"]
    assert [problem.id for problem in test.problems] == ["mbpp/11", "mbpp/510"]
    assert (whole.name, whole.part, test.name, test.part) == ("mbpp", "all", "mbpp:test", "test")


def test_a_prepared_dataset_stands_for_its_benchmark(tmp_path: Path) -> None:
    file = tmp_path / "mbpp.json"
    file.write_text(json.dumps([MBPP_ROW]))
    problems = load_benchmark("mbpp", str(file)).problems
    with DatasetWriter(tmp_path / "set") as writer:
        writer.add(problems[0])
    assert load_benchmark("mbpp", str(tmp_path / "set")).problems == problems
    assert load_benchmark("mbpp", f"{tmp_path / 'set'}:train").problems == problems
    with pytest.raises(UserError, match="a prepared dataset has no parts"):
        load_benchmark("mbpp:test", str(tmp_path / "set"))


def livecodebench_files(folder: Path, days: dict[str, list[str]]) -> Path:
    """Files of LiveCodeBench with a problem for each day."""
    for name, dates in days.items():
        tests = json.dumps([{"input": "1", "output": "1", "testtype": "stdin"}])
        rows = [
            {
                "question_id": f"{name}/{number}",
                "question_content": "Copy.",
                "platform": "atcoder",
                "contest_date": f"{day}T00:00:00",
                "public_test_cases": tests,
                "private_test_cases": "[]",
                "metadata": "{}",
                "starter_code": "",
            }
            for number, day in enumerate(dates)
        ]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_livecodebench_has_releases_slices_and_windows_and_their_numbers_are_checked(tmp_path: Path) -> None:
    third = ["2024-06-01"] * 100 + ["2024-07-31"]
    folder = str(livecodebench_files(tmp_path, {"test2.jsonl": ["2024-05-01"] * 111, "test3.jsonl": third}))
    assert len(load_benchmark("livecodebench:v2", folder).problems) == 111
    both = load_benchmark("livecodebench:v2_v3", folder)
    assert (len(both.problems), both.part) == (212, "v2_v3")
    window = load_benchmark("livecodebench:v2_v3:2024-05-02..2024-07-31", folder)
    assert (len(window.problems), window.part) == (101, "v2_v3:2024-05-02..2024-07-31")
    assert len(load_benchmark("livecodebench:v3:2024-07-01..", folder).problems) == 1
    with pytest.raises(UserError, match=r"has no test\.jsonl, which `livecodebench` needs"):
        load_benchmark("livecodebench:release_v3", folder)
    (tmp_path / "test3.jsonl").write_text((tmp_path / "test2.jsonl").read_text())
    with pytest.raises(UserError, match=r"\(v3\) has 101 problems, and 111 were found: another version"):
        load_benchmark("livecodebench:v3", folder)
    with pytest.raises(UserError, match=r"`v3` is made of test3\.jsonl; give their folder"):
        load_benchmark("livecodebench:v3", str(tmp_path / "test3.jsonl"))
    assert len(load_benchmark("livecodebench", str(tmp_path / "test3.jsonl")).problems) == 111


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("release_v7", "did you mean `release_v6`"),
        ("v5_v4", "livecodebench has no `v5_v4`"),
        ("2024-13-01..", "2024-13-01 is not a date"),
    ],
)
def test_livecodebench_refuses_other_words(word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_benchmark(f"livecodebench:{word}", "absent")


def test_every_benchmark_of_the_table_has_a_source_and_takes_its_default_part() -> None:
    for name, entry in BENCHMARKS.items():
        check_benchmark(name, "its file")
        if entry.source is not None:
            assert source_named(entry.source).name == entry.source, name


def test_the_code_that_a_problem_starts_from_is_shown(tmp_path: Path) -> None:
    row = json.loads((FIXTURES / "leetcode.jsonl").read_text().splitlines()[0])
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    (problem,) = load_benchmark("leetcode", str(tmp_path / "x.jsonl")).problems
    prompt = prompt_of(problem, EnvironmentSection()).user
    assert "Start from this code:\n\n```python\nclass Solution:\n" in prompt
    assert "List[int], target: int) -> List[int]:\n```\n\nWrite the class" in prompt


def test_a_problem_in_another_language_is_asked_for_and_read_in_it() -> None:
    problem = Problem(
        id="a", statement="Copy.", language="cpp", tests=StdinTests([StdinCase("1", "1")]), source="x"
    )
    assert instruction(problem).startswith("Write a complete C++17 program that reads standard input")
    assert "one C++17 code block" in instruction(problem)
    settings = EnvironmentSection()
    assert program_of(problem, settings, "```cpp\nint main() {}\n```") == "int main() {}\n"
    assert program_of(problem, settings, "```python\nprint(1)\n```") is None
