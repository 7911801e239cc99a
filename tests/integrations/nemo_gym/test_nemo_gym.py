"""NeMo-Gym's agent plays episodes with our rows, and its resources server asks our judge.

The servers are NeMo-Gym's own and speak over sockets. Its command that starts them is not run: it also starts
a Ray cluster.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.tasks import ADD, DOUBLES, FORGEABLE, RIGHT, WRONG

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "nemo_gym"
REPLIES = {"Print the sum.": [RIGHT, WRONG], "Double x.": [DOUBLES]}


@contextmanager
def listening(app: Any, sock: socket.socket) -> Iterator[None]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def scripted_policy() -> Any:
    """The model server: it gives the next reply to each statement."""
    from fastapi import FastAPI

    app, left = FastAPI(), {statement: list(replies) for statement, replies in REPLIES.items()}

    @app.post("/v1/responses")
    async def responses(asked: dict[str, Any]) -> dict[str, Any]:
        text = next(replies for statement, replies in left.items() if statement in str(asked)).pop(0)
        content = [{"type": "output_text", "text": text, "annotations": []}]
        said = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
        about = {"id": "r", "created_at": 0.0, "model": "m", "object": "response", "tools": []}
        return {**about, "output": [said], "parallel_tool_calls": False, "tool_choice": "auto"}

    return app


@contextmanager
def gym(no_reward: float | None = None) -> Iterator[str]:
    """The three servers of the example; the address of the agent."""
    from nemo_gym.config_types import BaseServerConfig
    from nemo_gym.server_utils import ServerClient, global_aiohttp_client_exit
    from omegaconf import OmegaConf
    from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

    from whetstone.integrations.nemo_gym import code_server

    written = OmegaConf.to_container(OmegaConf.load(EXAMPLE / "whetstone.yaml"))
    own = written["whetstone"]["resources_servers"]["whetstone"]
    agent = written["whetstone_simple_agent"]["responses_api_agents"]["simple_agent"]
    own["reward"] = {**own["reward"], "judge": {"workers": 1}, "no_reward": no_reward}
    written["policy_model"] = {"responses_api_models": {"policy": (policy := {})}}
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(
            "NEMO_GYM_CONFIG_DICT", "verbose: false"
        )  # it would read the command line of this process
        stack.callback(global_aiohttp_client_exit)
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        for config, sock in zip((own, agent, policy), sockets, strict=True):
            config.update(host="127.0.0.1", port=sock.getsockname()[1])
        client = ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
            global_config_dict=OmegaConf.create(written),
        )
        server = code_server()
        config_class = server.model_fields["config"].annotation
        apps: list[Any] = []
        for kind, config in (
            (server, config_class.model_validate({**own, "name": "whetstone"})),
            (SimpleAgent, SimpleAgentConfig.model_validate({**agent, "name": "whetstone_simple_agent"})),
        ):
            made = kind(config=config, server_client=client)
            apps.append(made.setup_webserver())
            made.setup_exception_middleware(apps[-1])
        for app, sock in zip((*apps, scripted_policy()), sockets, strict=True):
            stack.enter_context(listening(app, sock))
        yield f"http://127.0.0.1:{agent['port']}"


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """The rows that the example writes."""
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(problem) + "\n" for problem in (ADD, FORGEABLE)))
    command = [sys.executable, str(EXAMPLE / "rows.py"), str(path)]
    written = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in written.splitlines()]


def test_the_agent_gets_the_rewards_and_a_missing_verdict_fails_the_rollout(
    rows: list[dict[str, Any]],
) -> None:
    import requests

    with gym() as url:
        right, wrong = (requests.post(f"{url}/run", json=rows[0], timeout=300).json() for _ in range(2))
        assert (right["reward"], right["verdict"]) == (1.0, "accepted")
        assert (wrong["reward"], wrong["verdict"]) == (0.0, "wrong_answer")
        assert wrong["explanation"] == "wrong_answer: Tests: 0 passed, 1 failed. Test 1: wrong answer."
        assert "verifier_metadata" not in right, "the tests are not in the results"
        failed = requests.post(f"{url}/run", json=rows[1], timeout=300)
        assert failed.status_code == 500
        assert "a program could forge the verdicts of problem" in failed.text
        numbered = (
            {**one, "_ng_task_index": 0, "_ng_rollout_index": number}
            for number, one in enumerate((right, wrong))
        )
        found = requests.post(
            f"{url}/aggregate_metrics", json={"verify_responses": [*numbered]}, timeout=300
        ).json()
        assert found["key_metrics"]["mean/reward"] == 0.5


def test_a_number_can_stand_for_a_missing_verdict(rows: list[dict[str, Any]]) -> None:
    import requests

    with gym(no_reward=-1.0) as url:
        assert requests.post(f"{url}/run", json=rows[1], timeout=300).json()["reward"] == -1.0


def test_wrong_settings_end_the_server_at_its_start() -> None:
    from nemo_gym.server_utils import ServerClient

    from whetstone.core.errors import UserError
    from whetstone.integrations.nemo_gym import code_server

    server = code_server()
    config = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "w", "reward": {"judg": {}}}
    made = server.model_fields["config"].annotation.model_validate(config)
    with pytest.raises(UserError, match="did you mean `judge`"):
        server(config=made, server_client=ServerClient.model_construct())
