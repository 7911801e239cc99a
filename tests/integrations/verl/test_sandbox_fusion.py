"""verl's built-in `sandbox_fusion` reward, which asks a server for each case, pointed at ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.service_process import ServiceProcess, service

pytestmark = pytest.mark.integration

RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
HALF = "```python\nprint(0)\n```"
LOOPS = "```python\nwhile True: pass\n```"
CRASHES = "```python\n1 / 0\n```"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with service(tmp_path_factory.mktemp("service"), workers=2) as running:
        yield running


def test_its_reward_is_the_share_of_cases(server: ServiceProcess) -> None:
    from verl.utils.reward_score import default_compute_score

    tests = {"inputs": ["1 2\n", "0 0\n"], "outputs": ["3\n", "0\n"]}
    semaphore = threading.Semaphore(4)

    def score(reply: str) -> Any:
        return default_compute_score(
            *("taco", reply, tests),
            sandbox_fusion_url=f"{server.url}/run_code",
            concurrent_semaphore=semaphore,
            memory_limit_mb=512,
        )

    assert [score(reply) for reply in (RIGHT, HALF, "I do not know.", CRASHES)] == [1.0, 0.5, 0.0, 0.0]


def test_its_words_for_a_failure_are_those_of_our_answer(server: ServiceProcess) -> None:
    from verl.utils.reward_score.sandbox_fusion import compute_score

    tests = {"inputs": ["1 2\n"], "outputs": ["3\n"]}

    def said(reply: str, timeout: int = 10) -> str:
        _, [case] = compute_score(f"{server.url}/run_code", None, 512, reply, tests, True, timeout)
        return case["status"]

    assert [said(reply) for reply in (RIGHT, HALF, CRASHES)] == ["success", "wrong_answer", "runtime_error"]
    # The second, where the loop got no core of a busy machine: a 504 each time that verl asked.
    assert said(LOOPS, timeout=2) in ("timeout", "api_error")
