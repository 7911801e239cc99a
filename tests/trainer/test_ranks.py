"""Several ranks train as one process does: the same gradients, weights and metrics."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tests.trainer.rank_processes import free_port, on_ranks, start
from tests.trainer.test_training_step import gradients as own_gradients
from tests.trainer.tiny_models import VOCABULARY, random_batch, routed, tiny_llama, tiny_moe
from whetstone.algorithm.named import algorithm_named, preset_names
from whetstone.core.errors import UserError
from whetstone.engine.weights import DeferredWeight, copy_model
from whetstone.trainer.optimizer import MasterAdamW
from whetstone.trainer.packing import PromptReplies
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.trainer import Trainer, rank_share

pytestmark = pytest.mark.process

MODELS = {
    "tied": tiny_llama,
    "untied": lambda: tiny_llama(tie_word_embeddings=False),
    "mixture of experts": tiny_moe,
}


def make(ranks: Ranks, kind: str = "tied", preset: str = "grpo", **settings: Any) -> Trainer:
    reference = {"kl_coef": 0.1} if preset == "grpo" else {}
    settings.setdefault("lr", 1e-2)
    settings.setdefault("grad_clip", 1e9)
    return Trainer(
        MODELS[kind](),
        algorithm_named(preset, {"overlong_buffer": 0, **reference}),
        TrainerSection(**settings),
        temperature=0.8,
        max_tokens=12,
        ranks=ranks,
    )


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients(trainer: Trainer, batch: Any) -> dict[str, Tensor]:
    """The gradients of a step's only update, put together."""
    from whetstone.trainer.sharding import as_shard_of

    parts = own_gradients(trainer, batch)
    return {name: whole(as_shard_of(parts[name], p)).clone() for name, p in trainer.model.named_parameters()}


def weights(trainer: Trainer) -> dict[str, Tensor]:
    given: Any = trainer.weights()
    return {name: w.make(torch.float32) if isinstance(w, DeferredWeight) else w.clone() for name, w in given}


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return float(torch.stack([(a[name] - b[name]).norm() for name in a]).norm())


def size(a: dict[str, Tensor]) -> float:
    return float(torch.stack([value.norm() for value in a.values()]).norm())


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_on_two_ranks_are_those_of_one_whatever_the_micro_batches(kind: str) -> None:
    batch = random_batch(1)
    one = gradients(make(Ranks(), kind), batch)

    def work(ranks: Ranks) -> list[float]:
        micro_batches = (1, 40, 4096) if kind == "tied" else (40,)
        found = [gradients(make(ranks, kind, micro_batch_tokens=tokens), batch) for tokens in micro_batches]
        return [distance(each, one) / size(one) for each in found]

    for errors in on_ranks(2, work):
        assert max(errors) < 1e-5


def test_ranks_replay_the_recorded_experts_of_their_replies() -> None:
    """One group, which is divided among the ranks: each part has the experts of the prompt."""
    batch = routed(random_batch(1, groups=1))
    settings: dict[str, Any] = {"micro_batch_tokens": 40, "routing_replay": True}
    one = gradients(make(Ranks(), "mixture of experts", **settings), batch)
    plain = gradients(make(Ranks(), "mixture of experts", micro_batch_tokens=40), batch)
    assert distance(plain, one) / size(one) > 0.01

    def work(ranks: Ranks) -> float:
        found = gradients(make(ranks, "mixture of experts", **settings), batch)
        return distance(found, one) / size(one)

    assert max(on_ranks(2, work)) < 1e-5


CHUNKS = 300


@pytest.mark.parametrize("tied", [True, False])
def test_a_bf16_gradient_over_many_chunks_of_logits_is_summed_in_fp32(tied: bool) -> None:
    """FSDP2 reduces what the backward passes of all chunks have left, so they may not add it up in bf16."""
    batch = random_batch(4, groups=2, replies=2 * CHUNKS // 5)

    def found(ranks: Ranks, chunks: int) -> dict[str, Tensor]:
        model = tiny_llama(torch.bfloat16, tie_word_embeddings=tied)
        spec = algorithm_named("dapo", {"overlong_buffer": 0})
        tokens = sum(len(s.response_ids) for group in batch.groups for s in group.samples)
        chunk = VOCABULARY * max(1, tokens // ranks.size // chunks)
        settings = TrainerSection(lr=1e-2, grad_clip=1e9, micro_batch_tokens=8192, logits_per_chunk=chunk)
        trainer = Trainer(model, spec, settings, temperature=0.8, max_tokens=12, ranks=ranks)
        return {name: value.double() for name, value in gradients(trainer, batch).items()}

    # Nobody says the tokens below 3, so these rows have the gradients of the chunks alone, also where the
    # head is tied to the input. They are 0.0025 apart here, and 0.02 where the sum is made in bf16.
    head = "model.embed_tokens.weight" if tied else "lm_head.weight"
    one = {head: found(Ranks(), 1)[head][:3]}
    for many in on_ranks(2, lambda ranks: found(ranks, CHUNKS)):
        assert distance(one, {head: many[head][:3]}) / size(one) < 0.007


def test_a_batch_with_fewer_groups_than_ranks_is_shared_by_replies() -> None:
    batch = random_batch(2, groups=1)
    one = gradients(make(Ranks()), batch)
    for error in on_ranks(3, lambda ranks: distance(gradients(make(ranks), batch), one) / size(one)):
        assert error < 1e-5


Trained = tuple[dict[str, Tensor], list[dict[str, float]], bool]


def train(ranks: Ranks, preset: str, steps: int) -> Trained:
    """The weights after some steps, the metrics of each, and whether an engine would serve those weights."""
    trainer = make(ranks, preset=preset, lr=1e-3, epochs=2, minibatches=2, grad_clip=0.5)
    metrics = [trainer.step(random_batch(seed)) for seed in range(steps)]
    served = copy_model(trainer.model, trainer.weights(), torch.float32)
    found = weights(trainer)
    return found, metrics, all(torch.equal(p, found[name]) for name, p in served.named_parameters())


def same_training(presets: list[str], steps: int) -> None:
    start = weights(make(Ranks()))
    alone = {preset: train(Ranks(), preset, steps) for preset in presets}
    for together in on_ranks(2, lambda ranks: {p: train(ranks, p, steps) for p in presets}):
        for preset, (found, told, served) in together.items():
            one, metrics, _ = alone[preset]
            assert distance(found, one) < 1e-3 * distance(one, start), preset
            assert [step.keys() for step in told] == [step.keys() for step in metrics]
            for ours, theirs in zip(told, metrics, strict=True):
                assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5), preset
            assert served, preset


def test_steps_end_at_the_same_weights_metrics_and_served_model() -> None:
    same_training(["grpo", "m2po"], steps=3)


@pytest.mark.slow
def test_ten_steps_of_every_preset_end_at_the_same_weights() -> None:
    same_training(preset_names(), steps=10)


def test_a_gradient_that_is_not_finite_on_one_rank_is_skipped_on_all() -> None:
    def work(ranks: Ranks) -> tuple[float, bool]:
        trainer = make(ranks)
        before = weights(trainer)
        if ranks.rank == 1:
            trainer.optimizer._gradients[0].view(-1)[0] = torch.nan
        metrics = trainer.step(random_batch(0))
        return metrics["skipped"], distance(before, weights(trainer)) == 0

    assert on_ranks(2, work) == [(1.0, True)] * 2


def test_an_optimizer_in_the_hosts_memory_makes_the_same_update_and_state() -> None:
    batch = random_batch(3)

    def work(ranks: Ranks) -> list[dict[str, Tensor]]:
        states: list[dict[str, Tensor]] = []
        for offload in (False, True):
            trainer = make(ranks)
            trainer.optimizer.close()
            named = trainer.model.named_parameters()
            trainer.optimizer = MasterAdamW(named, grad_clip=0.5, offload=offload, ranks=ranks)
            trainer.step(batch)
            states += [weights(trainer), {name: whole(t) for name, t in trainer.state_dict().items()}]
        return states

    for on, state, off, offloaded in on_ranks(2, work):
        assert distance(on, off) == 0
        assert state.keys() == offloaded.keys()
        assert all(torch.equal(tensor, offloaded[name]) for name, tensor in state.items())


def test_replies_are_shared_out_whole_once_and_evenly() -> None:
    groups = [PromptReplies([1] * n, [[7] * (5 * n + i) for i in range(4)]) for n in (3, 1, 8, 2, 5)]
    flat = [token for group in groups for reply in group.replies for token in reply]
    for ranks in (1, 2, 3, 7):
        shares = [rank_share(groups, rank, ranks) for rank in range(ranks)]
        places = torch.cat([places for _, places in shares])
        assert sorted(places.tolist()) == list(range(len(flat)))
        loads = [sum(len(g.prompt_ids) + sum(map(len, g.replies)) for g in mine) for mine, _ in shares]
        assert max(loads) <= 2 * sum(loads) / ranks


def ends(rank_1: Callable[[Ranks], None]) -> list[str]:
    """How two ranks end, of which the second does something in the middle of a step."""
    port = free_port()

    def work(ranks: Ranks) -> str:
        trainer = make(ranks)
        trainer.step(random_batch(0))
        if ranks.rank == 1:
            rank_1(ranks)
        trainer.step(random_batch(1))
        return "went on"

    children = [start(rank, 2, port, work) for rank in range(2)]
    told: list[str] = []
    for child, reading in children:
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        told.append(str(pickle.loads(data)) if data else "")
    return told


def test_a_rank_that_is_killed_ends_the_other_with_a_word() -> None:
    survivor, killed = ends(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    assert killed == ""
    assert "RankLost" in survivor
    assert "another rank ended" in survivor


def test_only_the_first_of_several_failing_ranks_reports() -> None:
    def fail(_: Ranks) -> None:
        raise UserError("no problem is left")

    silent, speaking = ends(fail)
    assert "no problem is left" in speaking
    assert "StoppedByOtherRank" in silent
    assert "UserError" not in silent.splitlines()[-1]
