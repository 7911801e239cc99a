"""Two ranks with servers: each its own, or one of both; new weights come from the sharded model.

The ranks and the servers are processes, joined by gloo and HTTP. The servers are stand-ins for vLLM.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from tests import served_stand_in
from tests.run.test_ranks_of_a_run import ONE_THREAD, torchrun
from tests.run.tiny_recipe import write_recipe
from tests.served_stand_in import VOCABULARY
from tests.trainer.rank_processes import on_ranks
from tests.trainer.test_checkpoints import tokenizer
from tests.trainer.tiny_models import tiny_llama
from whetstone.algorithm.named import algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.settings import Sampling
from whetstone.engine.engine import GenerationRequest
from whetstone.engine.factory import build_engine
from whetstone.engine.served.engine import ServedEngine
from whetstone.engine.served.rank_servers import RankServers
from whetstone.engine.settings import EngineSection
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.sharding import whole_model
from whetstone.trainer.trainer import Trainer

pytestmark = pytest.mark.process


def set_step(trainer: Trainer, step: int) -> None:
    """Make every weight of the sharded model ``step``, on this rank's part of it."""
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            local.fill_(float(step))


async def replies(engine: ServedEngine, n: int) -> set[tuple[int, ...]]:
    asked = GenerationRequest(prompt_ids=[5], params=Sampling(max_tokens=3), n=n)
    return {tuple(one.token_ids) async for one in engine.generate(asked)}


def on_servers(options: dict[str, Any], placement: str) -> Callable[[Ranks], Any]:
    """What each rank sees of three versions: the URL of its server, and the replies under each version."""

    def work(ranks: Ranks) -> Any:
        trainer = Trainer(
            tiny_llama(),
            algorithm_named("grpo", {}),
            TrainerSection(),
            temperature=1.0,
            max_tokens=12,
            ranks=ranks,
        )
        assert any(isinstance(parameter, DTensor) for parameter in trainer.model.parameters())
        set_step(trainer, 1)
        section = EngineSection.model_validate({"kind": "vllm", "placement": placement, "options": options})

        def copy() -> Any:
            return whole_model(trainer.model, trainer.dtype, keep=ranks.first, copied=True)

        engine: Any = build_engine(section, copy, tokenizer(), ranks=ranks)
        seen = [asyncio.run(replies(engine, 2))]

        async def story() -> None:
            for version, step in enumerate((2, 3), 1):
                if placement == "shared":
                    ranks.wait("the replies of both ranks")
                    await engine.sleep()
                set_step(trainer, step)
                await engine.update_weights(trainer.weights(), version)
                assert engine.version == version
                seen.append(await replies(engine, 2))
            ranks.wait("the replies of both ranks")
            await engine.close()

        asyncio.run(story())
        return engine._server.url, seen

    return work


def counted(step: int) -> set[tuple[int, ...]]:
    return {tuple((5 + step * (i + 1)) % VOCABULARY for i in range(3))}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("each", "placement"), [(1, "apart"), (1, "shared"), (2, "shared")])
def test_the_servers_of_two_ranks_get_the_weights_of_the_sharded_model(
    each: int, placement: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    options = {
        "python": served_stand_in.interpreter(tmp_path, on_a_cpu=False),
        "environment": {**served_stand_in.package(tmp_path), "STAND_IN_LOG": str(logs)},
        "folder": str(tmp_path),
        "tensor_parallel": each,
    }
    found = on_ranks(2, on_servers(options, placement))
    urls = {url for url, _ in found}
    assert len(urls) == 2 // each
    for _, seen in found:
        assert seen == [counted(step) for step in (1, 2, 3)]
    assert [file.read_text() for file in logs.glob("*.faults")] == []
    told = [file.read_text().splitlines() for file in logs.glob("*.log")]
    assert sorted(lines[0] for lines in told) == (
        ["devices 0", "devices 1"] if each == 1 else ["devices 0,1"]
    )
    for lines in told:
        assert [line for line in lines if line.startswith("write")] == ["write 2", "write 3"]
        assert lines.count("sleep") == (2 if placement == "shared" else 0)
        assert sum(line.startswith("prompt") for line in lines) == 3 * 2 * each
    # Nothing is left of either rank's files.
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "packages", "python"}


@pytest.mark.extended
def test_a_run_of_two_ranks_samples_with_a_server_for_each(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    engine = {
        "kind": "vllm",
        "placement": "shared",
        "options": {
            "python": served_stand_in.interpreter(tmp_path, on_a_cpu=False),
            "environment": {**served_stand_in.package(tmp_path), "STAND_IN_LOG": str(logs)},
        },
    }
    overrides = [
        f"engine={json.dumps(engine)}",
        "deterministic=false",
        # Each reply is wrong and as long as any other: nothing is learned from what is no model.
        "algorithm.drop_zero_variance=true",
        "evaluation={n: 1, k: [1], every: 100}",
        "trainer.steps=2",
    ]
    command = torchrun(write_recipe(tmp_path), tmp_path / "run", *overrides)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=ONE_THREAD)
    assert done.returncode == 0, done.stderr
    assert [file.read_text() for file in logs.glob("*.faults")] == []
    told = [file.read_text() for file in logs.glob("*.log")]
    assert len(told) == 2
    for text in told:
        words = re.sub(r"devices \d|prompt \d+|forget", "", text).split()
        step = ["pause", "sleep", "wake", "weights", "write", "0", "wake", "kv_cache", "resume"]
        assert words == ["open", *step * 2]
    # Four prompts a step with four replies each, and the evaluations on the first rank.
    first, second = sorted(told, key=lambda text: -text.count("prompt"))
    assert "devices 0" in first
    assert second.count("prompt") == 2 * 2 * 4
    assert first.count("prompt") > second.count("prompt")


def test_unsupported_servers_of_several_ranks_are_refused() -> None:
    class Three:
        rank, size, local_size = 1, 3, 3

        def gather(self, data: bytes, description: str) -> list[bytes]:
            raise AssertionError("nothing to tell")

    with pytest.raises(UserError, match=r"tensor_parallel: 2 devices .* do not divide the 3 ranks"):
        RankServers(Three(), 2)
    section = EngineSection(kind="vllm", options={"url": "http://127.0.0.1:1"})
    with pytest.raises(
        UserError, match=r"engine\.options\.url: it is one server, and each rank needs its own"
    ):
        build_engine(section, lambda: None, None, ranks=Three())


def test_a_server_sees_the_devices_of_its_ranks_and_nothing_of_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fourth:
        rank, size, local_size = 5, 8, 4

        def gather(self, data: bytes, description: str) -> list[bytes]:
            return [json.dumps(rank).encode() for rank in range(8)]

    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "GROUP_RANK"):
        monkeypatch.setitem(os.environ, name, "1")
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "3,5,6,7")
    ranks = RankServers(Fourth(), 2)
    assert (ranks.leads, ranks.owns_folder) == (False, False)
    assert (ranks.from_owner(None, ""), ranks.from_leader(None, "")) == (4, 4)
    environment = ranks.environment()
    assert environment.pop("CUDA_VISIBLE_DEVICES") == "3,5"
    assert set(environment) >= {"RANK", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "GROUP_RANK"}
    assert set(environment.values()) == {None}
    assert RankServers(Fourth(), 1).environment()["CUDA_VISIBLE_DEVICES"] == "5"
    assert RankServers(None).environment() == {}
