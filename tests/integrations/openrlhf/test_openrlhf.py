"""OpenRLHF's rollout asks our reward, by a function's file and by URL, and takes what comes back.

OpenRLHF does not install whole without a GPU (flash-attn, vLLM), so it is installed without what it depends
on, and only the module that generates and rewards is loaded, past the package's ``__init__``.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import select
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integrations import tasks
from tests.integrations.tasks import ADD, DOUBLES, FORGEABLE

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
PROMPT = "<|im_start|>user\nPrint the sum.<|im_end|>\n<|im_start|>assistant\n"
RIGHT = f"{tasks.RIGHT}<|im_end|>"
WRONG = f"{tasks.WRONG}<|im_end|>"
ENOUGH_S = 120.0


@pytest.fixture(scope="module")
def agent() -> Any:
    """``openrlhf.utils.agent``."""
    spec = importlib.util.find_spec("openrlhf")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    for name, place in (("openrlhf", folder), ("openrlhf.utils", folder / "utils")):
        package = types.ModuleType(name)
        package.__path__ = [str(place)]
        sys.modules[name] = package
    return importlib.import_module("openrlhf.utils.agent")


class Characters:
    """A tokenizer with a token for each character."""

    def __call__(self, text: str, **options: Any) -> dict[str, Any]:
        return {"input_ids": [SimpleNamespace(tolist=lambda: [ord(c) for c in text])]}

    def decode(self, ids: list[int], **options: Any) -> str:
        return "".join(map(chr, ids))


class Engine:
    """Says the same to everybody."""

    def __init__(self, says: str) -> None:
        self.says = says

    async def generate(self, ids: list[int], params: Any, **options: Any) -> Any:
        output = SimpleNamespace(token_ids=[ord(c) for c in self.says], finish_reason="stop", logprobs=None)
        return SimpleNamespace(outputs=[output])


def rewarded(agent: Any, url: str, problem: dict[str, Any], says: str) -> dict[str, Any]:
    """What OpenRLHF keeps of one rollout."""
    executor = agent.SingleTurnAgentExecutor([url])
    params = SimpleNamespace(max_tokens=1000, logprobs=None)
    rollout = executor.execute(PROMPT, json.dumps(problem), params, 4000, Characters(), Engine(says))
    return asyncio.run(rollout)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "whetstone", "judge", "rewards", "--port", "0", "judge.workers=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert select.select([server.stdout], [], [], ENOUGH_S)[0], "the server said nothing"
        yield server.stdout.readline().split()[-1]
        server.send_signal(signal.SIGTERM)
        assert server.wait(ENOUGH_S) == 0


@pytest.mark.parametrize("way", ["function", "url"])
def test_a_rollout_is_rewarded(way: str, agent: Any, url: str) -> None:
    place = url if way == "url" else str(ROOT / "examples" / "openrlhf" / "reward.py")
    logs = {"accepted": 1.0, "judged": 1.0}
    kept = rewarded(agent, place, ADD, RIGHT)
    assert (kept["reward"], kept["scores"], kept["extra_logs"]) == (1.0, 1.0, logs)
    kept = rewarded(agent, place, ADD, WRONG)
    assert (kept["reward"], kept["scores"]) == (0.0, 0.0)


def test_a_reply_without_a_verdict_has_no_reward(agent: Any) -> None:
    place = str(ROOT / "examples" / "openrlhf" / "reward.py")
    says = DOUBLES
    assert rewarded(agent, place, FORGEABLE, says)["reward"] is None
