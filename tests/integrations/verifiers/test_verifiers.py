"""verifiers runs a rollout over our task set against a model's endpoint, and our reward scores its trace."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integrations.tasks import ADD, DOUBLES, FORGEABLE, RIGHT, WRONG

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]


class Model(BaseHTTPRequestHandler):
    """An endpoint whose model says the same to everybody."""

    says = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": self.says}
        answer = {
            "id": "1", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None: ...


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_KEY", "none")
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "verifiers"))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def rollout(problem: dict[str, object], says: str, endpoint: str, folder: Path):
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import taskset_class

    (folder / "set.jsonl").write_text(json.dumps(problem) + "\n")
    Model.says = says
    found = taskset_class("whetstone-code")
    from whetstone_code import CodeTasksetConfig

    plugged = {"again": {"fn": "whetstone.integrations.verifiers:code_reward", "weight": 0}}
    config = CodeTasksetConfig.model_validate(
        {
            "problems": str(folder / "set.jsonl"),
            "task": {"reward": {"judge": {"workers": 1}}, "rewards": plugged},
        }
    )
    [task] = found(config)
    agent = vf.make_agent(
        vf.AgentConfig.model_validate(
            {
                "harness": {"id": "one_call"},
                "runtime": {"type": "subprocess"},
                "model": "m",
                "client": {"type": "eval", "base_url": endpoint, "api_key_var": "NO_KEY"},
            }
        )
    )
    return asyncio.run(agent.run(task))


def test_a_rollout_is_rewarded_and_one_without_a_verdict_fails(endpoint: str, tmp_path: Path) -> None:
    trace = rollout(ADD, RIGHT, endpoint, tmp_path)
    assert trace.ok, trace.errors
    assert (trace.rewards["code_reward"].score, trace.reward) == (1.0, 1.0)
    assert trace.rewards["again"].score == 1.0  # the function, as it is added to other task sets
    assert trace.info["verdict"] == "accepted"
    trace = rollout(ADD, WRONG, endpoint, tmp_path)
    assert (trace.ok, trace.rewards["code_reward"].score) == (True, 0.0)
    trace = rollout(FORGEABLE, DOUBLES, endpoint, tmp_path)
    assert not trace.ok
    assert trace.rewards["code_reward"] is None
    assert "t/forgeable" in trace.last_error.message
