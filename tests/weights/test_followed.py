"""Trainers that publish and replicas that follow, as the roles of a run do: whichever way, whatever fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from tests.weights.test_engine_follows import model
from whetstone.core.errors import UserError
from whetstone.core.settings import read_settings
from whetstone.engine.engine import Capabilities
from whetstone.engine.torch_engine import TorchEngine
from whetstone.weights import subscription
from whetstone.weights.offer import NO_WEIGHTS, Offer
from whetstone.weights.publisher import VersionPublisher
from whetstone.weights.replica import VersionRejected, published_tensors
from whetstone.weights.settings import WeightsSection
from whetstone.weights.shards import elements_of
from whetstone.weights.subscription import SubscribedWeights

pytestmark = pytest.mark.process

TOKEN = "a token"


def section(**values: Any) -> WeightsSection:
    return read_settings(WeightsSection, {"silence_s": 5.0, **values})


def trainer(settings: WeightsSection, tmp_path: Path, token: str = TOKEN) -> VersionPublisher:
    return VersionPublisher("policy", settings, dtype=torch.bfloat16, token=token, folder=tmp_path / "shared")


class Trained:
    """A model in fp32 that is published step by step."""

    def __init__(self, published: VersionPublisher, seed: int = 0) -> None:
        self.published, self.model = published, model(seed, torch.float32)

    def step(self, number: int) -> Offer:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter += 1e-4 * torch.randn_like(parameter)
        return self.published.publish(number, published_tensors(self.model).items()).result()


def engine_of(served: Any) -> TorchEngine:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")))
    return TorchEngine(served, tokenizer)


class Rollout:
    """A replica of one model with the embedded engine."""

    def __init__(self, settings: WeightsSection, token: str = TOKEN, seed: int = 1) -> None:
        self.said: list[str] = []
        self.served = model(seed)
        self.engine: Any = engine_of(self.served)
        self.weights = SubscribedWeights(
            {"policy": (self.engine, self.served)}, settings, token=token, log=self.said.append
        )

    @property
    def serving(self) -> Offer:
        return self.weights.serving["policy"]

    def apply(self, offer: Offer) -> None:
        asyncio.run(asyncio.wait_for(self.weights.apply("policy", offer), 60))

    def has(self, trained: Trained) -> bool:
        return same(published_tensors(self.served), published_tensors(trained.model))


def same(held: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> bool:
    return all((elements_of(held[n]) == elements_of(t.bfloat16())).all() for n, t in wanted.items())


WAYS = [{"by": by, "send": send} for by in ("tcp", "folder") for send in ("delta", "full")]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(way.values()))
def test_replicas_have_every_version_bit_by_bit_also_one_that_joins_late(
    way: dict[str, str], tmp_path: Path
) -> None:
    settings = section(**way)
    with trainer(settings, tmp_path) as published:
        trained = Trained(published)
        early, behind, late = (Rollout(settings, seed=seed) for seed in (1, 2, 3))
        for number in range(4):
            offer = trained.step(number)
            early.apply(offer)
            assert early.serving == offer
            assert early.has(trained)
            if number == 0:
                behind.apply(offer)
        kind = way["send"]
        assert f": {kind}, " in early.said[-1]
        for rollout in (behind, late):
            rollout.apply(offer)
            assert rollout.serving == offer
            assert rollout.has(trained)
            rollout.weights.close()
        early.weights.close()


def test_a_snapshot_is_published_while_training_goes_on(tmp_path: Path) -> None:
    settings = section()
    with trainer(settings, tmp_path) as published:
        weights = {"w": torch.randn(3_000_000)}
        was = weights["w"].clone()
        first = published.publish(0, weights.items())
        weights["w"] += 1
        with pytest.raises(ValueError, match="version 0 after version 0"):
            published.publish(0, weights.items())
        held: Any = torch.nn.Module()
        held.w, held.device = torch.nn.Parameter(torch.zeros(3_000_000).bfloat16()), torch.device("cpu")
        taking: Any = Taking()
        replica = SubscribedWeights({"policy": (taking, held)}, settings, token=TOKEN)
        asyncio.run(replica.apply("policy", first.result()))
        replica.close()
        assert torch.equal(held.w.detach(), was.bfloat16())


class Taking:
    """An engine elsewhere. ``refuses`` what it is given, as long as that is set."""

    capabilities = Capabilities(repeatable_streams=False, weights=frozenset({"tensors"}))

    def __init__(self, refuses: bool = False) -> None:
        self.refuses, self.version, self.updates = refuses, 0, 0
        self.held: dict[str, torch.Tensor] = {}

    async def update_weights(self, weights: Any, version: int) -> None:
        if self.refuses:
            raise ValueError("no room")
        self.updates += 1
        for name, given in weights:
            if isinstance(given, torch.Tensor):
                self.held[name] = given.clone()
            else:
                given.write(self.held[name])
        self.version = version


def test_an_engine_elsewhere_goes_over_several_versions_in_one_update(tmp_path: Path) -> None:
    settings = section()
    with trainer(settings, tmp_path) as published:
        trained, engine = Trained(published), Taking()
        served: Any = engine
        weights = SubscribedWeights({"policy": (served, model(1))}, settings, token=TOKEN)
        asyncio.run(weights.apply("policy", trained.step(0)))
        trained.step(1)
        asyncio.run(weights.apply("policy", trained.step(2)))
        assert (engine.updates, engine.version) == (2, 2)
        assert same(engine.held, published_tensors(trained.model))
        # What it refuses is added up, and it is given everything when it takes again.
        engine.refuses = True
        offer = trained.step(3)
        asyncio.run(weights.apply("policy", offer))
        assert weights.serving["policy"] == NO_WEIGHTS
        engine.refuses = False
        asyncio.run(weights.apply("policy", offer))
        assert weights.serving["policy"] == offer
        assert same(engine.held, published_tensors(trained.model))
        weights.close()


def test_a_publisher_that_is_gone_leaves_the_version_and_another_start_of_it_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        settings = section(port=probe.getsockname()[1])
    rollout = Rollout(settings)
    with trainer(settings, tmp_path) as published:
        offer = Trained(published).step(7)
        rollout.apply(offer)
    rollout.apply(Offer(8, offer.url, offer.run_id))
    assert rollout.serving == offer
    assert "does not answer" in rollout.said[-1]
    # It was killed before it saved, begins at an older version, and what it makes of that is other weights.
    with trainer(settings, tmp_path) as published:
        trained = Trained(published, seed=5)
        rollout.apply(back := trained.step(6))
        assert rollout.serving == back
        rollout.apply(again := trained.step(7))
        assert again.version == offer.version
        assert again != offer
        assert rollout.serving == again
        assert rollout.has(trained)
    # One that never had any does not wait for ever.
    monkeypatch.setattr(subscription, "UNREACHABLE_S", 0.0)
    with pytest.raises(UserError, match=r"does not answer.*is it running"):
        Rollout(settings).apply(offer)


def test_errors_of_publishing_name_the_remedy(tmp_path: Path) -> None:
    settings = section(threads=2)
    with trainer(settings, tmp_path) as published:
        offer = Trained(published).step(1)
        with pytest.raises(UserError, match="another token; start both with the same token"):
            Rollout(settings, token="another").apply(offer)
        other = model(1)
        other.lm_head = torch.nn.Linear(32, 64, dtype=torch.bfloat16)  # no longer tied
        weights = SubscribedWeights({"policy": (engine_of(other), other)}, settings, token=TOKEN)
        with pytest.raises(VersionRejected, match=r"without `lm_head.bias`.*same `model` section"):
            asyncio.run(weights.apply("policy", offer))
        with pytest.raises(UserError, match="weights are offered for `coder`; this replica has policy"):
            asyncio.run(weights.apply("coder", offer))
        with pytest.raises(UserError, match="not a URL of weights"):
            asyncio.run(weights.apply("policy", Offer(1, "carrier pigeon")))
        taken = published.publish(2, published_tensors(model(0, torch.float32)).items()).result()
        port = int(taken.url.rpartition(":")[2])
        with pytest.raises(UserError, match=f"{port}: cannot listen for replicas: .*name another port"):
            trainer(section(port=port), tmp_path)
    with pytest.raises(UserError, match="set a token"):
        trainer(section(host="0.0.0.0"), tmp_path, token="")
    with pytest.raises(UserError, match="`folder` is for `by: folder`"):
        section(folder="x")
    with pytest.raises(UserError, match="`copies`"):
        section(copies=1)


def test_a_folder_that_cannot_be_written_is_an_error_and_the_next_version_is_whole(tmp_path: Path) -> None:
    settings = section(by="folder")
    with trainer(settings, tmp_path) as published:
        trained, rollout = Trained(published), Rollout(settings)
        rollout.apply(trained.step(1))
        # A file where version 2 is to be written, which nobody can write into.
        torn = tmp_path / "shared" / ".delta-000000000002.tmp"
        torn.touch()
        with pytest.raises(UserError, match="cannot be written"):
            trained.step(2)
        torn.unlink()
        rollout.apply(offer := trained.step(3))
        assert rollout.serving == offer
        assert ": full, " in rollout.said[-1]
        assert rollout.has(trained)
