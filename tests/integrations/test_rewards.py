"""The core of the plug-ins: it takes rows of the export formats, starts late and leaves nothing behind."""

from __future__ import annotations

import asyncio
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pyarrow.parquet as pq
import pytest

from whetstone.core.errors import UserError
from whetstone.core.problem import AssertTests, Problem, Program, StdinCase, StdinTests
from whetstone.data.export_formats import export_format_named, write_export
from whetstone.data.files import write_problems
from whetstone.environments.prompt_text import prompt_of
from whetstone.environments.settings import EnvironmentSection
from whetstone.integrations import openrlhf, trl, verl
from whetstone.integrations.reward_url import reward_app
from whetstone.integrations.rewards import NoReward, Rewards, reward
from whetstone.integrations.rows import problem_of
from whetstone.integrations.settings import RewardSettings, reward_settings
from whetstone.judge import Judge

ADD = Problem("t/add", "Print the sum.", StdinTests([StdinCase("1 2\n", "3\n"), StdinCase("0 0\n", "0\n")]))
DOUBLE = "def f(x):\n    return 2 * x\n"
FORGEABLE = Problem(
    "t/forgeable",
    "Double x.",
    AssertTests(asserts=["assert f.__code__.co_argcount == 1", "assert f(2) == 4"]),
    references=[Program("python", DOUBLE)],
)
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
HALF = "```python\nprint(0)\n```"
ENOUGH_S = 120.0


def rows(problems: list[Problem], export_format: str, folder: Path) -> list[dict[str, Any]]:
    write_problems(folder / "set.jsonl", problems)
    write_export(str(folder / "set.jsonl"), folder / "out.parquet", export_format_named(export_format))
    return pq.read_table(folder / "out.parquet").to_pylist()


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(workers=1, stop_at_first_failure=True) as judge:
        yield judge


def test_trl_gets_a_reward_for_each_completion_of_our_rows(judge: Judge, tmp_path: Path) -> None:
    function, logged = trl.CodeReward(), dict[str, float]()
    function.rewards = Rewards(judge=judge)
    add, forgeable = rows([ADD, FORGEABLE], "trl", tmp_path)
    found = [add, add, forgeable]  # TRL repeats a row for each completion
    assert found[0]["prompt"] == prompt_of(ADD, EnvironmentSection()).messages()
    columns = {key: [row[key] for row in found] for key in found[0] if key != "prompt"}
    replies = [RIGHT, HALF, f"```python\n{DOUBLE}```"]
    completions = [[{"role": "assistant", "content": reply}] for reply in replies]
    given = function(completions=completions, prompts=[], log_metric=logged.__setitem__, **columns)
    assert given == [1.0, 0.0, None]
    assert logged == {"code_reward/accepted": 2 / 3, "code_reward/no_reward": 1 / 3}
    assert function(completions=replies[:2], **{"problem": columns["problem"][:2]}) == [1.0, 0.0]
    with pytest.raises(UserError, match="--export-format trl"):
        function(completions=completions)


@pytest.mark.process
def test_verl_gets_a_dict_and_stops_where_there_is_no_verdict(tmp_path: Path) -> None:
    add, forgeable = rows([ADD, FORGEABLE], "verl-whole", tmp_path)
    settings = {"judge": {"workers": 1}, "environment": {"reward": "fraction"}}

    def score(row: dict[str, Any], reply: str, **more: Any) -> dict[str, Any]:
        return asyncio.run(
            verl.compute_score(
                data_source=row["data_source"],
                solution_str=reply,
                ground_truth=row["reward_model"]["ground_truth"],
                extra_info=row["extra_info"],
                **settings,
                **more,
            )
        )

    # One judge for two event loops, one after the other.
    assert score(add, HALF) == {"score": 0.5, "acc": 0.0, "verdict": "wrong_answer", "judged": 1.0}
    assert score(add, RIGHT, reward_model_tokenizer=None)["score"] == 1.0
    function = f"```python\n{DOUBLE}```"
    with pytest.raises(NoReward, match=r"t/forgeable.*no_reward=NUMBER"):
        score(forgeable, function)
    assert score(forgeable, function, no_reward=-1)["score"] == -1.0


def test_forked_processes_score_with_judges_of_their_own(judge: Judge) -> None:
    # As verl's manager `prime` does: the parent may have a judge that runs, and the function goes by pickle.
    parent = Rewards(judge=judge)
    assert parent.score([RIGHT], [ADD])[0].reward == 1.0
    score = pickle.loads(pickle.dumps(verl.compute_score_sync))
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        results = [pool.submit(score, "whetstone", reply, _json(ADD), None) for reply in (RIGHT, HALF)]
        assert [result.result(ENOUGH_S) for result in results] == [1.0, 0.0]
    assert parent.score([HALF], [ADD])[0].reward == 0.0


def test_openrlhf_s_queries_hold_the_prompt_and_the_tokens_that_end_a_reply(judge: Judge) -> None:
    function = openrlhf.RewardFunction()
    function.rewards = Rewards(reward_settings({"environment": {"extraction": "whole"}}), judge)
    prompt = "<|im_start|>user\nPrint the sum.<|im_end|>\n<|im_start|>assistant\n"
    code = RIGHT.strip("`").removeprefix("python")
    logs = {"accepted": 1.0, "judged": 1.0}
    for query in (f"{prompt}{code}<|im_end|>\n", f"{prompt}{code}", f"{prompt[-210:]}{code}<|endoftext|>"):
        answer = function([query], [prompt], [_json(ADD)])
        assert answer == {"rewards": 1.0, "scores": 1.0, "extra_logs": logs}
    # A template that opens the thinking: thinking without end is no program.
    answer = function([f"{prompt}<think>\n{code}"], [f"{prompt}<think>\n"], [_json(ADD)])
    assert answer["rewards"] == 0.0
    assert function([prompt + code, prompt + "0"], [prompt] * 2, [_json(ADD)] * 2)["rewards"] == [1.0, 0.0]
    with pytest.raises(UserError, match="cannot be separated"):
        function([code], [prompt], [_json(ADD)])


def test_a_reward_url_answers_clients_with_a_token_and_names_faults(judge: Judge) -> None:
    function = openrlhf.RewardFunction()
    function.rewards = Rewards(judge=judge)
    asks = {"query": [f"ask{RIGHT}</s>"], "prompts": ["ask"], "labels": [_json(ADD)]}
    broken = [
        ({**asks, "labels": []}, 400, "shorter"),
        ({**asks, "query": "text"}, 400, "Expected `array`"),
        ({**asks, "labels": ["{}"]}, 400, "no `tests`"),
        ({**asks, "query": [f"ask```python\n{DOUBLE}```"], "labels": [_json(FORGEABLE)]}, 503, "no_reward"),
    ]

    async def ask() -> None:
        transport = httpx2.ASGITransport(app=reward_app(function, ("secret",)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://judge") as client:
            answer = await client.post("/any/where?token=secret", json=asks)
            assert (answer.status_code, answer.json()["rewards"]) == (200, 1.0)
            for url in ("/", "/?token=other", "/?token="):
                assert (await client.post(url, json=asks)).status_code == 401
            for body, status, words in broken:
                answer = await client.post("/?token=secret", json=body)
                assert answer.status_code == status
                assert words in answer.json()["error"]["message"]

    asyncio.run(ask())


def test_invalid_problems_and_settings_are_refused_by_name() -> None:
    for cell, words in [("{", "not JSON"), ('{"inputs": []}', "no `tests`"), (7, "is a int")]:
        with pytest.raises(UserError, match=f"{words}.*--export-format trl"):
            problem_of(cell)
    with pytest.raises(UserError, match=r"environment\.rewards.*did you mean `environment\.reward`"):
        reward([RIGHT], [ADD], environment={"rewards": "all"})
    with pytest.raises(UserError, match="judge"):
        trl.CodeReward(judge={"workers": -1})


TRAINER = """
import os, sys
from whetstone.integrations import openrlhf, trl, verl
from whetstone.integrations.rewards import Rewards
from whetstone.integrations.settings import reward_settings
children = lambda: open(f"/proc/self/task/{os.getpid()}/children").read().split()
assert not {"torch", "numpy", "transformers"} & sys.modules.keys(), "loads what a reward needs not"
ballast = os.urandom(1 << 20) * 300
assert children() == [], "started before it was asked"
rewards = Rewards(reward_settings({"judge": {"workers": 1}}))
sleeps = "```python\\nimport time\\ntime.sleep(3600)\\n```"
problem = {"id": "p", "statement": "", "tests": {"kind": "stdin", "cases": [{"input": "", "output": "1"}]}}
assert rewards.score(["```python\\nprint(1)\\n```"], [problem])[0].reward == 1.0
for pid in rewards.worker_pids():
    pages = int(open(f"/proc/{pid}/statm").read().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 250 << 20, "the trainer's memory is in the worker"
future = rewards.submit(sleeps, problem)
print(*rewards.worker_pids(), flush=True)
future.result()
"""


@pytest.mark.process
def test_a_trainer_pays_nothing_before_it_asks_and_leaves_nothing_when_it_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        ready, _, _ = select.select([trainer.stdout], [], [], ENOUGH_S)
        assert ready, "the trainer said nothing"
        workers = [int(pid) for pid in trainer.stdout.readline().split()]
        assert workers, "the trainer failed before it had a judge"
        family = {pid for worker in workers for pid in _family(worker)}
        assert len(family) > 1
        trainer.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + ENOUGH_S
    while left := {pid for pid in family if _lives(pid)}:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.02)


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return  # it ended while we looked
    for child in children:
        yield from _family(child)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _json(problem: Problem) -> str:
    return msgspec.json.encode(problem).decode()


@pytest.mark.process
def test_rewards_go_on_after_they_were_closed_and_travel_as_settings() -> None:
    settings = RewardSettings.model_validate({"judge": {"workers": 1}})
    with Rewards(settings) as rewards:
        waiting = rewards.submit("```python\nwhile True: pass\n```", ADD)
    with pytest.raises(CancelledError):
        waiting.result(ENOUGH_S)
    again = pickle.loads(pickle.dumps(rewards))
    assert again.settings == settings
    assert again.worker_pids() == []
    assert rewards.score([RIGHT], [ADD])[0].reward == 1.0
    rewards.close()
