"""OpenEnv's server and client play episodes with our problems, and our judge rewards the replies."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.tasks import ADD, DOUBLES, FORGEABLE, RIGHT, WRONG

pytestmark = pytest.mark.integration

CLIENT = Path(__file__).resolve().parents[3] / "examples" / "openenv" / "client.py"


@contextmanager
def served(folder: Path, **options: Any) -> Iterator[str]:
    import uvicorn

    from whetstone.integrations.openenv import code_app

    path = folder / "set.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in (ADD, FORGEABLE)))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        app = code_app(str(path), judge={"workers": 1}, **options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


def test_episodes_are_rewarded_and_a_missing_verdict_is_an_error(tmp_path: Path) -> None:
    from openenv.core.generic_client import GenericEnvClient

    def played(env: Any, problem: str, reply: str) -> Any:
        begun = env.reset(problem_id=problem)
        assert begun.done is False
        assert begun.observation["messages"][-1]["role"] == "user"
        return env.step({"reply": reply})

    with served(tmp_path) as url:
        with GenericEnvClient(base_url=url).sync() as env:
            right = played(env, "t/add", RIGHT)
            assert (right.reward, right.done, right.observation["verdict"]) == (1.0, True, "accepted")
            wrong = played(env, "t/add", WRONG)
            assert (wrong.reward, wrong.observation["verdict"]) == (0.0, "wrong_answer")
            assert wrong.observation["explanation"] == (
                "wrong_answer: Tests: 0 passed, 1 failed. Test 1: wrong answer."
            )
            with pytest.raises(Exception, match="call reset before step"):
                env.step({"reply": RIGHT})
            with pytest.raises(Exception, match="t/forgeable"):
                played(env, "t/forgeable", DOUBLES)
        with (
            GenericEnvClient(base_url=url).sync() as env,
            pytest.raises(Exception, match="no problem 't/none'"),
        ):
            env.reset(problem_id="t/none")
        with GenericEnvClient(base_url=url).sync() as one, GenericEnvClient(base_url=url).sync() as other:
            drawn = [env.reset(seed=7).observation["problem_id"] for env in (one, other)]
            assert drawn[0] == drawn[1]


def test_the_client_of_the_example_plays_an_episode(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        command = [sys.executable, str(CLIENT), url, "--problem", "t/add"]
        ended = subprocess.run(
            command, input=RIGHT, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
        )
    assert ended.returncode == 0, ended.stderr
    assert "user: Print the sum." in ended.stdout
    assert ended.stdout.endswith("reward 1.0: accepted\n")


def test_a_silent_client_loses_its_place(tmp_path: Path) -> None:
    from openenv.core.generic_client import GenericEnvClient

    with served(tmp_path, sessions=1, idle_s=1.0) as url, GenericEnvClient(base_url=url).sync() as silent:
        silent.reset(problem_id="t/add")
        deadline = time.monotonic() + 120
        while True:
            try:
                with GenericEnvClient(base_url=url).sync() as other:
                    assert other.reset(problem_id="t/add").done is False
                return
            except Exception:
                assert time.monotonic() < deadline, "the place of the silent client was never free"
                time.sleep(1)
