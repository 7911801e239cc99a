"""An engine that follows a trainer: the same weights in place, replies in flight marked, or none of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.weights.published import StoreSource, publish
from whetstone.core.settings import Sampling
from whetstone.engine.engine import Capabilities, Completion, GenerationRequest
from whetstone.engine.served.model_folders import ModelFolder
from whetstone.engine.served.vllm_worker import POSITIONS, VALUES
from whetstone.engine.torch_engine import TorchEngine
from whetstone.engine.weights import folder_weights
from whetstone.weights.publisher import VersionEncoder
from whetstone.weights.replica import VersionRejected, WeightReplica, published_tensors
from whetstone.weights.subscription import EngineUpdater
from whetstone.weights.version_store import VersionStore


def model(seed: int, dtype: torch.dtype = torch.bfloat16) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=True,
        eos_token_id=None,
        max_position_embeddings=2048,
    )
    return LlamaForCausalLM(config).to(dtype)  # pyright: ignore[reportArgumentType]


class Run:
    """A trainer of fp32 weights that publishes in bf16, and an engine."""

    def __init__(self) -> None:
        self.store = VersionStore()
        self.publisher = VersionEncoder("llama", self.store)
        self.trained = model(0, torch.float32)
        self.served = model(1)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")))
        self.engine = TorchEngine(self.served, tokenizer)

    def step(self, number: int) -> None:
        with torch.no_grad():
            for parameter in self.trained.parameters():
                parameter += 1e-3 * torch.randn_like(parameter)
        publish(self.publisher, number, published_tensors(self.trained))

    def tensors(self) -> dict[str, torch.Tensor]:
        return published_tensors(self.served)


@pytest.fixture
def run() -> Iterator[Run]:
    found = Run()
    yield found
    found.publisher.close()


def test_replies_in_flight_go_on_under_the_new_version_marked_token_by_token(run: Run) -> None:
    follower = EngineUpdater(run.engine, WeightReplica(run.tensors(), "llama"), StoreSource(run.store))
    places = {name: tensor.data_ptr() for name, tensor in run.tensors().items()}

    async def work() -> Completion:
        run.step(1)
        [first] = await follower.update()
        assert (first.kind, run.engine.version) == ("full", 1)
        run.step(2)
        replies = run.engine.generate(GenerationRequest([1, 2, 3], Sampling(max_tokens=400)))
        reply = asyncio.ensure_future(anext(replies))
        # The engine generates while the version is prepared, and long after.
        [second] = await follower.update()
        assert (second.kind, second.number) == ("delta", 2)
        return await reply

    reply = asyncio.run(work())
    assert sorted(set(reply.versions)) == [1, 2]
    assert reply.versions == sorted(reply.versions)
    for name, parameter in run.trained.named_parameters():
        assert torch.equal(run.tensors()[name], parameter.bfloat16())
        assert run.tensors()[name].data_ptr() == places[name]


class ServerOfFolder:
    """An engine whose server reads a model folder, whose tensors are the replica's own copies."""

    capabilities = Capabilities(repeatable_streams=False, weights=frozenset({"tensors"}))

    def __init__(self, folder: ModelFolder, served: Any) -> None:
        self.folder, self.version = folder, 0
        self.server = {name: tensor.detach().clone() for name, tensor in served.named_parameters()}
        self.sent: list[int] = []

    async def update_weights(self, weights: Any, version: int) -> None:
        self.folder.update(weights)
        files = self.folder.files()
        sent = {} if files.changes is None else load_file(files.changes)
        for name, tensor in folder_weights(files.folder):
            if files.changes is None:
                self.server[name].copy_(tensor)
            elif POSITIONS + name in sent:
                positions, elements = sent[POSITIONS + name].long(), sent[VALUES + name]
                assert bool((positions.diff() > 0).all())
                self.server[name].view(-1).view(elements.dtype)[positions] = elements
        changed = sum(len(tensor) for name, tensor in sent.items() if name.startswith(POSITIONS))
        self.sent.append(-1 if files.changes is None else changed)
        self.version = version


def test_a_server_gets_the_changes_of_all_missed_versions_once(run: Run, tmp_path: Path) -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")))
    folder = ModelFolder(run.served, tokenizer, str(tmp_path))
    engine: Any = ServerOfFolder(folder, run.served)
    follower = EngineUpdater(
        engine, WeightReplica(run.tensors(), "llama"), StoreSource(run.store), copies=True
    )
    run.step(1)
    asyncio.run(follower.update())
    for number in (2, 3):
        with torch.no_grad():
            run.trained.model.norm.weight[4] += number
            run.trained.model.embed_tokens.weight[number] += 1
        publish(run.publisher, number, published_tensors(run.trained))
    [applied] = asyncio.run(follower.update())
    assert (applied.number, engine.version, engine.sent) == (3, 3, [-1, 1 + 2 * 32])
    for name, parameter in run.trained.named_parameters():
        assert torch.equal(engine.server[name], parameter.bfloat16())
        assert torch.equal(run.tensors()[name], parameter.bfloat16())
    folder.close()


def test_a_replica_that_cannot_apply_stays_on_its_version_and_a_full_copy_mends_it(run: Run) -> None:
    source = StoreSource(run.store)
    follower = EngineUpdater(run.engine, WeightReplica(run.tensors(), "llama"), source)
    run.step(1)
    asyncio.run(follower.update())
    run.step(2)
    source.damage = lambda data: data[:-1]
    with pytest.raises(VersionRejected, match="version 2 of the weights arrived damaged"):
        asyncio.run(follower.update())
    assert run.engine.version == 1
    source.damage = bytes
    # Somebody wrote where nobody may: changes do not fit any more, a full copy does.
    with torch.no_grad():
        run.served.model.norm.weight += 1
    [applied] = asyncio.run(follower.update())
    assert (applied.kind, run.engine.version) == ("full", 2)
    for name, parameter in run.trained.named_parameters():
        assert torch.equal(run.tensors()[name], parameter.bfloat16())


class Obstinate:
    """An engine that takes nothing."""

    capabilities = Capabilities(repeatable_streams=False, weights=frozenset({"tensors"}))
    version = 0

    async def update_weights(self, weights: Any, version: int) -> None:
        raise ValueError("no")


def test_an_engine_that_refuses_weights_is_named_and_a_folder_engine_is_refused(run: Run) -> None:
    engine: Any = Obstinate()
    run.step(1)
    replica = WeightReplica(run.tensors(), "llama")
    with pytest.raises(VersionRejected, match="the engine does not take version 1: no"):
        asyncio.run(EngineUpdater(engine, replica, StoreSource(run.store)).update())
    assert replica.version_id is None
    engine.capabilities = Capabilities(repeatable_streams=False, weights=frozenset({"folder"}))
    with pytest.raises(Exception, match="as a folder only"):
        EngineUpdater(engine, replica, StoreSource(run.store))


def test_changes_of_another_type_than_the_models_change_nothing(run: Run, tmp_path: Path) -> None:
    run.step(1)
    copies = {name: tensor.bfloat16() for name, tensor in run.tensors().items()}
    engine = TorchEngine(other := model(3, torch.float32), None)
    before = other.model.norm.weight.clone()
    follower = EngineUpdater(engine, WeightReplica(copies, "llama"), StoreSource(run.store), copies=False)
    with pytest.raises(VersionRejected, match=r"changes of torch.bfloat16, the model's torch.float32"):
        asyncio.run(follower.update())
    assert torch.equal(other.model.norm.weight, before)
