"""Clients of SandboxFusion and ScaleBox, unchanged: their shapes, our semantics."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import sandbox_fusion
from sandbox_fusion.models import CommandRunStatus, RunStatus

from tests.processes import descendants, wait_until
from tests.service.scalebox_client import score
from tests.service.service_process import ServiceProcess, commanded, service
from whetstone.judge.languages.toolchains import runs_here

pytestmark = pytest.mark.process

ADDS = "```python\nprint(sum(map(int, input().split())))\n```"
ROW = {"id": 7, "content": "Add.", "test": [{"input": {"stdin": "1 2"}, "output": {"stdout": "3"}}]}


@pytest.fixture(scope="module")
def fusion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with service(tmp_path_factory.mktemp("compat")) as running:
        sandbox_fusion.set_endpoint(running.url)
        yield running


def ran(**fields: Any) -> Any:
    return sandbox_fusion.run_code(sandbox_fusion.RunCodeRequest(**fields), max_attempts=10)


def test_the_sdk_runs_code(fusion: ServiceProcess) -> None:
    code = "import sys\nprint(input()[::-1])\nsys.stderr.write('e')"
    answer = ran(code=code, language="python", stdin="abc")
    run = answer.run_result
    assert (answer.status, run.stdout, run.stderr) == (RunStatus.Success, "cba\n", "e")
    assert (run.return_code, answer.compile_result) == (0, None)
    assert ran(code="exit(3)", language="python").run_result.return_code == 3
    slow = ran(code="print('begun', flush=True)\nwhile True: pass", language="python", run_timeout=0.5)
    assert slow.run_result.status is CommandRunStatus.TimeLimitExceeded
    assert slow.run_result.stdout == "begun\n"


@pytest.mark.skipif(not runs_here("cpp"), reason="no C++ compiler")
def test_a_compiled_program_has_the_result_of_its_compiler(fusion: ServiceProcess) -> None:
    broken = ran(code="int main() { return x; }", language="cpp")
    assert (broken.status, broken.run_result) == (RunStatus.Failed, None)
    assert broken.compile_result.return_code == 1
    assert "x" in broken.compile_result.stderr
    assert ran(code="int main() { return 5; }", language="cpp").run_result.return_code == 5


def test_files_are_refused(fusion: ServiceProcess) -> None:
    for files in ({"files": {"a.txt": "YQ=="}}, {"fetch_files": ["a.txt"]}):
        status, said = fusion.ask("POST", "/run_code", {"code": "1", "language": "python", **files})
        assert (status, said["error"]["code"]) == (501, "not_served")


def test_a_killed_worker_costs_no_run(fusion: ServiceProcess) -> None:
    assert ran(code="print(1)", language="python").run_result.stdout == "1\n"
    for pid in commanded(descendants(fusion.process.pid), "judge.workers.main"):
        os.kill(pid, signal.SIGKILL)
    assert ran(code="print(2)", language="python").run_result.stdout == "2\n"


def test_a_run_ends_when_its_client_disconnects(fusion: ServiceProcess) -> None:
    body = json.dumps({"code": "while True: pass", "language": "python", "run_timeout": 600}).encode()
    head = f"POST /run_code HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with fusion.socket() as client:
        client.sendall(head + body)
        wait_until(lambda: fusion.metric("whetstone_judge_running_programs") > 0)
    wait_until(lambda: fusion.metric("whetstone_judge_running_programs") == 0)
    assert ran(code="print(2)", language="python").run_result.stdout == "2\n"


def table(inputs: list[Any], outputs: list[Any], **more: Any) -> dict[str, Any]:
    return {"type": "stdin_stdout", "input": inputs, "output": outputs, "fn_name": None, **more}


def test_the_client_of_scaleboxs_trainers_is_served(fusion: ServiceProcess) -> None:
    sums = table(["1 2", "2 2", "5 5"], ["3", "4", "10"])
    assert score(fusion.url, ADDS, sums) == 1.0
    assert score(fusion.url, "<think>```python\n1\n```</think>" + ADDS, sums) == 1.0
    assert score(fusion.url, "```python\nprint(4)\n```", sums) == pytest.approx(1 / 3)
    endless = "```python\nn = input()\nwhile n == '2 2': pass\nprint(3)\n```"
    assert score(fusion.url, endless, sums) == pytest.approx(1 / 3)
    calls = {"type": "function_call", "fn_name": "f", "input": [[1, 2], [2, 2]], "output": [[3], [5]]}
    assert score(fusion.url, "```python\ndef f(a, b): return a + b\n```", calls) == 0.5
    lines = {**calls, "json_input": True, "input": ["1\n2", "2\n2"], "output": ["3", "4"]}
    method = "```python\nclass Solution:\n    def f(self, a, b): return a + b\n```"
    assert score(fusion.url, method, lines) == 1.0
    check = {"type": "assert", "test": "def check(f):\n    assert f(1) == 2\n", "entry_point": "f"}
    assert score(fusion.url, "```python\ndef f(x): return x + 1\n```", check) == 1.0


def evaluated(fusion: ServiceProcess, cases: Any, completion: str = ADDS, **config: Any) -> tuple[int, Any]:
    config = {"language": "python", "provided_data": {"test_cases": cases}, **config}
    return fusion.ask("POST", "/common_evaluate_batch", {"completion": completion, "config": config})


@pytest.mark.parametrize(
    ("cases", "config", "status", "words"),
    [
        (table([], []), {}, 400, "nothing would be tested"),
        (table(["1 2"], ["3", "4"]), {}, 400, "1 inputs, but 2 outputs"),
        (table([["x"]], ["3"]), {}, 500, "input and output of a case are text"),
        ("nonsense", {}, 500, "test_cases"),
        (table(["1 2"], ["3"]), {"language": "basic"}, 422, "the judge runs python, "),
        (table(["1 2"], ["3"]), {"language": None}, 400, "config.language is missing"),
        (table(["1 2"], ["3"]), {"custom_extract_logic": "exit()"}, 501, "does not run"),
        ({"type": "assert", "tests": "x"}, {}, 501, "for Python"),
        (
            table(["1 2"], ["3"]),
            {"extra": {"special_judge_program": "1 / 0"}},
            422,
            "the tests themselves fail",
        ),
    ],
)
def test_what_scalebox_takes_wrongly_is_refused(
    fusion: ServiceProcess, cases: Any, config: dict[str, Any], status: int, words: str
) -> None:
    answered, said = evaluated(fusion, cases, **config)
    assert (answered, words in said["detail"]) == (status, True), said


def test_results_are_one_per_case_and_in_input_order(fusion: ServiceProcess) -> None:
    inputs, outputs = [f"{n} 1" for n in range(12)], [str(n + 1 if n % 3 else 0) for n in range(12)]
    status, said = evaluated(fusion, table(inputs, outputs), extra={"run_all_cases": True})
    assert (status, said["accepted"], said["num_cases"]) == (200, False, 12)
    assert [each["passed"] for each in said["tests"]] == [bool(n % 3) for n in range(12)]
    assert [each["test_info"]["input"]["stdin"] for each in said["tests"]] == inputs
    assert len(evaluated(fusion, table(inputs, outputs))[1]["tests"]) == 1


def test_a_budget_that_is_used_up_leaves_the_rest_undone_and_nothing_out(fusion: ServiceProcess) -> None:
    endless = "```python\nif input() != '1 1': \n  while True: pass\nprint(2)\n```"
    cases = table(["1 1"] + ["2 1"] * 19, ["2"] * 20)
    extra = {"run_all_cases": True, "total_timeout": 1.5}
    status, said = evaluated(fusion, cases, endless, run_timeout=0.5, extra=extra)
    assert (status, said["accepted"], len(said["tests"])) == (200, False, 20)
    assert said["tests"][0]["passed"]
    assert said["tests"][1]["exec_info"]["run_result"]["status"] == "TimeLimitExceeded"
    assert said["tests"][-1]["exec_info"]["message"] == "Total Timeout"


def test_a_special_judge_decides_always(fusion: ServiceProcess) -> None:
    judge = "import sys\nsys.exit(open('answer.txt').read().strip() != '7')\n"
    extra = {"special_judge_program": judge, "special_judge_language": "python"}
    cases = table(["x", "x"], ["5", "7"])
    seven, five = "```python\nprint(7)\n```", "```python\nprint(5)\n```"
    assert evaluated(fusion, cases, seven, extra=extra)[1]["accepted"]
    ours = evaluated(fusion, cases, five, extra={**extra, "run_all_cases": True})[1]
    assert [each["passed"] for each in ours["tests"]] == [False, False]
    assert not evaluated(fusion, table(["1 2"], ["3\n4"]))[1]["accepted"]


def test_a_special_judge_that_raises_is_blamed_by_the_judges_rule(fusion: ServiceProcess) -> None:
    """Over an output where it decides on the expected one: a refusal. Over both: it decides nothing."""
    raises = "with open('answer.txt') as f:\n  assert f.read().split() == ['7']\n"
    extra = {"special_judge_program": raises, "run_all_cases": True}
    seven, five = "```python\nprint(7)\n```", "```python\nprint(5)\n```"
    works, fails = table(["x", "x"], ["7", "7"]), table(["x", "x"], ["7", "5"])
    assert evaluated(fusion, works, seven, extra=extra)[1]["accepted"]
    said = evaluated(fusion, works, five, extra=extra)[1]
    assert [each["verdict"] for each in said["tests"]] == ["wrong_answer", "wrong_answer"]
    status, refused = evaluated(fusion, fails, five, extra=extra)
    assert (status, "does not even decide on the expected output" in refused["detail"]) == (422, True)


def test_cases_as_a_list_and_as_rows_are_read_too(fusion: ServiceProcess) -> None:
    case = {"type": "stdin_stdout", "input": "1 2", "output": "3"}
    row: dict[str, Any] = ROW
    for data in ({"test_cases": [case, case]}, {"test": [*row["test"], *row["test"]]}):
        config = {"language": "python", "provided_data": data}
        status, said = fusion.ask("POST", "/common_evaluate_batch", {"completion": ADDS, "config": config})
        assert (status, said["accepted"], len(said["tests"])) == (200, True, 2), said


MALFORMED = {
    "no JSON": b"{",
    "no object": b"[]",
    "a field that is missing": b"{}",
    "a type that does not fit": b'{"completion": 1, "code": 1}',
    "a number beyond its bounds": b'{"code": "", "language": "python", "run_timeout": -1, '
    b'"completion": "", "config": {"run_timeout": -1}}',
    "text that is no UTF-8": b'{"code": "\xff"}',
    "nested without end": b"[" * 100_000,
}


def test_a_malformed_body_gets_the_status_of_fastapi(fusion: ServiceProcess) -> None:
    for path in ("/run_code", "/common_evaluate_batch"):
        for fault, body in MALFORMED.items():
            status, said = fusion.ask("POST", path, body)
            assert (status, said["error"]["code"]) == (422, "bad_request"), (path, fault, said)


def test_more_memory_than_a_problem_may_grant_is_refused_by_its_field(fusion: ServiceProcess) -> None:
    for megabytes in ((1 << 20) + 1, 1 << 43, 10**400):
        run = {"code": "1", "language": "python", "memory_limit_MB": megabytes}
        status, said = fusion.ask("POST", "/run_code", run)
        assert (status, "memory_limit_MB" in said["detail"]) == (422, True), said
        for field in ("mem_limit", "memory_limit_mb", "memory_limit_MB"):
            config: dict[str, Any] = {field: megabytes << 10}
            status, said = evaluated(fusion, table(["1 2"], ["3"]), **config)
            assert (status, field in said["detail"]) == (422, True), said


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (None, 500),
        ([], 500),
        ({}, 500),
        ({"test_cases": None}, 500),
        ({"test_cases": 1}, 500),
        ({"test_cases": {"type": "function_call", "input": [[1]], "output": [[1]]}}, 500),
        ({"test_cases": {"type": "function_call", "fn_name": "f", "input": [1], "output": [[1]]}}, 500),
        ({"test_cases": {"type": "other", "input": [], "output": []}}, 400),
    ],
)
def test_tests_that_cannot_be_read_get_the_status_of_scalebox(
    fusion: ServiceProcess, data: Any, status: int
) -> None:
    asked = {"completion": ADDS, "config": {"language": "python", "provided_data": data}}
    assert fusion.ask("POST", "/common_evaluate_batch", asked)[0] == status


def test_an_unknown_language_gets_the_status_of_an_unknown_enum(fusion: ServiceProcess) -> None:
    assert fusion.ask("POST", "/run_code", {"code": "", "language": "basic"})[0] == 422
    config = {"language": "basic", "provided_data": {"test_cases": table(["1"], ["1"])}}
    asked = {"completion": "", "config": config}
    assert fusion.ask("POST", "/common_evaluate_batch", asked)[0] == 422


def test_the_front_page_answers_a_health_check(fusion: ServiceProcess) -> None:
    status, page = fusion.ask("GET", "/")
    assert (status, page.startswith(b"<!DOCTYPE html>")) == (200, True)


@pytest.mark.parametrize(
    ("source", "message", "stderr"),
    [
        ("def f(a, b): return a - b", "Wrong Answer", "got -1, expected 3"),
        ("def f(a, b): return 1 / 0", "", "ZeroDivisionError"),
        ("def f(a, b: return 1", "", "does not compile"),
        ("def g(a, b): return 1", "", "defines no `f`"),
        ("exit(0)", "", ""),
    ],
)
def test_a_failing_function_is_shown_as_scalebox_shows_it(
    fusion: ServiceProcess, source: str, message: str, stderr: str
) -> None:
    calls = {"type": "function_call", "fn_name": "f", "input": [[1, 2]], "output": [[3]]}
    status, said = evaluated(fusion, calls, f"```python\n{source}\n```")
    [case] = said["tests"]
    info = case["exec_info"]
    assert (status, case["passed"], info["status"], info["message"]) == (200, False, "Failed", message)
    assert (info["compile_result"], info["run_result"]["return_code"]) == (None, 1)
    assert stderr in info["run_result"]["stderr"]
    assert case["test_info"] == {"type": "function_call", "fn_name": "f", "input": [1, 2], "output": [3]}


def test_a_wrong_output_is_that_of_a_program_that_ran_well(fusion: ServiceProcess) -> None:
    [case] = evaluated(fusion, table(["1 2"], ["4"]))[1]["tests"]
    info = case["exec_info"]
    assert (case["passed"], info["status"], info["message"]) == (False, "Success", "")
    assert info["run_result"]["return_code"] == 0
