"""The client has the local judge's interface, and what happens on the way is never a verdict."""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.busy import skip_if_busy
from tests.processes import ENOUGH_S, wait_until
from tests.service.service_process import ADDS, ENDLESS, ServiceProcess, service, sum_problem
from whetstone.core.errors import SandboxUnavailable, UserError
from whetstone.core.problem import CallCase, CallTests, NoTests, Problem, problem_from
from whetstone.judge import Program, Verdict
from whetstone.run.recipe import load_recipe
from whetstone.run.run_judge import run_judge
from whetstone.service.client import AsyncJudgeClient, JudgeClient

ROOT = Path(__file__).resolve().parents[2]
RIGHT, FOREVER = Program(**ADDS), Program(**ENDLESS)
WRONG, BROKEN = Program("python", "print(0)\n"), Program("python", "print(\n")
SLOW = sum_problem(limits={"cpu_s": 300.0, "memory_mb": 256, "output_mb": 1})
LARGE = problem_from(sum_problem(*[f"{n + 2}\n" + " " * 20_000 for n in range(1, 4)], id="t/large"))


@pytest.fixture(scope="module")
def client(server: ServiceProcess) -> Iterator[JudgeClient]:
    with JudgeClient(server.url) as client:
        yield client


@pytest.mark.process
def test_judgements_come_in_input_order_and_as_the_local_judge_gives_them(client: JudgeClient) -> None:
    problem = problem_from(sum_problem("3\n", "4\n"))
    pairs = [(problem, each) for each in [RIGHT, WRONG, BROKEN, None] * 5]
    expected = [Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.COMPILE_ERROR, Verdict.NO_CODE] * 5
    judged = list(client.judge_many(pairs))
    assert [each.verdict for each in judged] == expected
    assert judged[0].environment == client.environment
    assert judged[0].isolation == client.isolation
    cases = [client.judge(problem, WRONG, stop_at_first_failure=stop).cases for stop in (True, False)]
    assert [len(each) for each in cases] == [1, 2]


def test_a_problem_without_tests_is_refused_as_by_the_local_judge(client: JudgeClient) -> None:
    for program in (RIGHT, None):
        with pytest.raises(UserError, match=r"kind: none.*use an environment"):
            client.submit(Problem("t/none", "", NoTests()), program)


def test_values_that_json_has_not_arrive_as_they_are(client: JudgeClient) -> None:
    cases = [CallCase(math.inf, [math.nan, {1: "\ud800"}]), CallCase(1 << 80, [1 << 80, {}])]
    problem = Problem("t/values", "", CallTests(cases, "f"))
    right = "def f(x, of):\n    return x if x == x else float('inf') if of == {1: '\\ud800'} else 0\n"
    assert client.judge(problem, Program("python", right)).verdict is Verdict.ACCEPTED
    assert client.judge(problem, Program("python", "def f(x, of): return 0")).verdict is Verdict.WRONG_ANSWER


def test_a_large_problem_travels_once(client: JudgeClient, server: ServiceProcess) -> None:
    sent = 'whetstone_judge_requests_total{endpoint="/v1/problems",status="200"}'
    before = server.metric(sent)
    judged = list(client.judge_many([(LARGE, RIGHT)] * 12))
    assert [each.verdict for each in judged] == [Verdict.ACCEPTED] * 12
    assert server.metric(sent) == before + 1


def test_a_cancelled_future_stops_its_program(client: JudgeClient, server: ServiceProcess) -> None:
    cancelled = server.metric("whetstone_judge_cancelled_programs_total")
    future = client.submit(SLOW, FOREVER)
    wait_until(lambda: server.metric("whetstone_judge_running_programs") > 0)
    future.cancel()
    wait_until(lambda: server.metric("whetstone_judge_cancelled_programs_total") == cancelled + 1)
    assert client.judge(SLOW, RIGHT).verdict is Verdict.ACCEPTED


def test_a_program_that_computes_until_its_deadline_fails_and_one_that_waited_does_not(
    client: JudgeClient,
) -> None:
    # On a busy machine the program may get too little of the time, which is no failure of its own.
    judged = (client.judge(SLOW, FOREVER, deadline_s=deadline_s) for deadline_s in (2, 2, 4, 8, 16, 32))
    if not any((each.verdict, each.score) == (Verdict.TIME_LIMIT, 0.0) for each in judged):
        skip_if_busy()
        pytest.fail("a program that computes was never to blame")
    late = client.judge(SLOW, FOREVER, deadline_s=0.5, queued_s=60.0)
    assert (late.verdict, late.score) == (Verdict.JUDGE_ERROR, None)


def test_what_is_wrong_is_an_error_as_locally(client: JudgeClient, server: ServiceProcess) -> None:
    with pytest.raises(TypeError, match="unknown option `colour`"):
        client.submit(SLOW, RIGHT, colour=1)
    with pytest.raises(UserError, match="max_cases is 0"):
        client.submit(SLOW, RIGHT, max_cases=0)
    with pytest.raises(UserError, match="in `basic`"):
        client.judge(SLOW, Program("basic", "10 PRINT"))
    with pytest.raises(UserError, match="problem 't/sum'"):
        client.judge({**SLOW, "limits": {"cpu_s": 0}}, RIGHT)
    with pytest.raises(UserError, match="no judge responds"):
        JudgeClient("http://127.0.0.1:9", give_up_s=0)
    with pytest.raises(UserError, match="expected the address of a judge"):
        JudgeClient("127.0.0.1:8080")
    if client.isolation != "root":
        with pytest.raises(SandboxUnavailable):
            JudgeClient(server.url, minimum_tier="root")
    with pytest.raises(UserError, match="--environment science"):
        JudgeClient(server.url, environment="science")


@pytest.mark.process
def test_a_pickled_client_and_one_of_a_forked_process_judge_on(client: JudgeClient) -> None:
    with pickle.loads(pickle.dumps(client)) as other:
        assert other.judge(SLOW, RIGHT).verdict is Verdict.ACCEPTED
    pid = os.fork()
    if pid == 0:
        os._exit(7 if client.judge(SLOW, RIGHT).accepted else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert client.judge(SLOW, RIGHT).verdict is Verdict.ACCEPTED


def test_many_coroutines_share_one_client(server: ServiceProcess) -> None:
    async def judged() -> list[Verdict]:
        async with AsyncJudgeClient(server.url) as judge:
            every = [judge.judge(sum_problem(), RIGHT if n % 2 else WRONG) for n in range(40)]
            return [each.verdict for each in await asyncio.gather(*every)]

    assert asyncio.run(judged()) == [Verdict.WRONG_ANSWER, Verdict.ACCEPTED] * 20


@pytest.mark.process
def test_a_server_that_is_killed_costs_no_verdict_while_another_lives(tmp_path: Path) -> None:
    """Both are killed in turn; the one started in its place knows nothing of what the first one was sent."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with service(folders[0]) as first, service(folders[1]) as second:
        with JudgeClient([first.url, second.url], give_up_s=ENOUGH_S) as client:
            assert client.window == 8
            judged: list[Any] = []
            pairs = [(LARGE, RIGHT if n % 3 else WRONG) for n in range(60)]
            working = threading.Thread(target=lambda: judged.extend(client.judge_many(pairs)))
            working.start()
            wait_until(lambda: len(judged) >= 10)
            first.end(signal.SIGKILL)
            working.join(ENOUGH_S)
            expected = [Verdict.ACCEPTED if n % 3 else Verdict.WRONG_ANSWER for n in range(60)]
            assert [each.verdict for each in judged] == expected
        with JudgeClient([second.url, first.url], give_up_s=0.5) as client:
            second.end(signal.SIGKILL)
            lost = client.judge(LARGE, RIGHT)
            assert (lost.verdict, lost.score, lost.cases) == (Verdict.JUDGE_ERROR, None, [])
            assert "no server judged it" in lost.reason


def test_a_recipes_url_moves_its_judging_to_servers(server: ServiceProcess) -> None:
    recipe = load_recipe(ROOT / "recipes" / "tiny.yaml", [f"judge.url={server.url}"])

    async def judged() -> Verdict:
        async with run_judge(recipe, 0) as judge:
            assert isinstance(judge, AsyncJudgeClient)
            return (await judge.judge(sum_problem(), RIGHT)).verdict

    assert asyncio.run(judged()) is Verdict.ACCEPTED
