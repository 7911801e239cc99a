"""One training step: a batch of scored groups in, new weights and metrics out.

With a single update per batch the trained policy is the one that the ratio refers to. p_old is then the
current log-prob without gradient and the ratio is exactly 1, without an extra pass. With several updates
p_old is computed for the whole batch before the first. The engine's log-probs are never the denominator;
their distance from the trainer's is reported as ``logprob_gap``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whetstone.algorithm.algorithm import Algorithm, LossInputs, objective
from whetstone.algorithm.loss import divergence
from whetstone.core.errors import UserError
from whetstone.core.sample import Batch
from whetstone.engine.out_of_memory import WEIGHTS_KEYS, describe_weights, explain_out_of_memory
from whetstone.engine.weights import copy_model
from whetstone.trainer.forward import Forward, Scores
from whetstone.trainer.memory import check_offload, checkpoint_activations, move_to_host, moved_to
from whetstone.trainer.meter import StepMeter, check_engine_gap
from whetstone.trainer.minibatch import MiniBatch, make_minibatches, step_advantages
from whetstone.trainer.optimizer import MasterAdamW, learning_rate
from whetstone.trainer.packing import MicroBatch, PromptReplies
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.sharding import mesh_device, named_weights


def rank_share(groups: Sequence[PromptReplies], rank: int, size: int) -> tuple[list[PromptReplies], Tensor]:
    """Return the replies of ``rank``, and the position of each of their tokens in the flat order of all: [t].

    Groups stay whole, so that a prompt is computed once, unless there are fewer groups than ranks. Heaviest
    first, each goes to the rank with the fewest tokens so far, prompts included.
    """
    pieces = _pieces(groups, size)
    loads = [0] * size
    mine: list[int] = []
    for number in sorted(range(len(pieces)), key=lambda i: (-pieces[i].weight, i)):
        least = loads.index(min(loads))
        loads[least] += pieces[number].weight
        if least == rank:
            mine.append(number)
    chosen = [pieces[number] for number in sorted(mine)]
    places = [torch.arange(piece.first, piece.first + piece.tokens) for piece in chosen]
    return [piece.replies for piece in chosen], torch.cat(places) if places else torch.zeros(0).long()


class _Piece:
    """Some consecutive replies of a group; ``first`` is the flat position of their first token."""

    def __init__(self, replies: PromptReplies, first: int) -> None:
        self.replies = replies
        self.first = first
        self.tokens = sum(len(ids) for ids in replies.replies)
        self.weight = len(replies.prompt_ids) + self.tokens


def _pieces(groups: Sequence[PromptReplies], size: int) -> list[_Piece]:
    parts = max(1, -(-size // max(1, len(groups))))
    result: list[_Piece] = []
    first = 0
    for group in groups:
        count = len(group.replies)
        for part in range(parts):
            piece = group.part(count * part // parts, count * (part + 1) // parts)
            if piece.replies:
                result.append(_Piece(piece, first))
                first += result[-1].tokens
    return result


@dataclass
class _PreparedMiniBatch:
    """A mini-batch, its advantages, and the constant log-probs of its loss ([T] each).

    These are complete on every rank, so an algorithm needs no communication to use them. ``micro_batches``
    has only the replies that this rank computes.
    """

    data: MiniBatch
    micro_batches: list[MicroBatch]
    advantages: Tensor
    old: Tensor | None = None
    reference: Tensor | None = None

    def inputs(self, scores: Scores) -> LossInputs:
        """Return the loss inputs of some of the tokens."""
        data, places = self.data, scores.places
        return LossInputs(
            log_probs=scores.log_probs,
            old=scores.log_probs.detach() if self.old is None else self.old[places],
            engine=data.engine_log_probs[places],
            reference=None if self.reference is None else self.reference[places],
            entropies=scores.entropies.detach(),
            advantages=self.advantages[places],
            weights=data.weights[places],
            replies=data.replies[places],
            lengths=data.lengths,
            whole=scores.whole,
        )


class Trainer:
    """Trains ``model`` by the algorithm of ``spec``.

    temperature: that of sampling; log-probs are those of softmax(logits / temperature) over the support of
    each token, as the engine's are. A cross-entropy has those of softmax(logits) over the whole vocabulary.
    max_tokens: the longest reply that may be sampled. The model is put into evaluation mode, since dropout
    would make the ratio of a policy to itself differ from 1. With a KL penalty, the weights that ``model``
    has *now* become the frozen reference. So construct the trainer with the run's starting weights, and
    resume by :meth:`load_state_dict`. ``deterministic`` makes torch refuse operations that may give other
    bits for the same input, in the whole process. With several ``ranks`` the model, which may be in host
    memory, is sharded in place. All of them construct a trainer of the same weights, and make each step
    together, on one batch.

    ``version`` is the number of steps taken. Raises UserError for a model that cannot be trained, and for an
    ``overlong_buffer`` that does not fit ``max_tokens``.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        spec: Algorithm,
        settings: TrainerSection,
        *,
        temperature: float,
        max_tokens: int,
        deterministic: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        obstacle = spec.obstacle(max_tokens)
        if obstacle is not None:
            raise UserError(obstacle)
        if deterministic:
            # Operations that may give other bits for the same input fail: a resumed run must repeat them.
            # Without a fixed workspace of cuBLAS, torch refuses matrix products on CUDA.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
        if spec.cross_entropy:
            temperature = 1.0
        self.model = model.eval()
        self.version = 0
        self._spec = spec
        self._settings = settings
        self._max_tokens = max_tokens
        self.dtype = model.dtype
        self._ranks = ranks or Ranks()
        self._deterministic = deterministic
        self.forward = self._make_forward(model, temperature, routing_replay=settings.routing_replay)
        obstacle = self.forward.split_reason if spec.sees_whole_replies else None
        if obstacle is not None:
            raise UserError(f"algorithm `{spec.preset}` needs whole replies, but {obstacle}")
        if settings.offload:
            mesh = self._ranks.mesh
            check_offload(model.device if mesh is None else mesh_device(mesh))
        # The copy is made before sharding, while this rank still has all weights.
        self._reference = self._make_reference(temperature) if spec.needs_reference else None
        if settings.activation_checkpointing:
            checkpoint_activations(model)
        self.forward.shard(self._ranks, trained=True)
        with self._memory_for("making masters, gradients and moments"):
            self.optimizer = MasterAdamW(
                model.named_parameters(),
                betas=settings.betas,
                eps=settings.eps,
                weight_decay=settings.weight_decay,
                grad_clip=settings.grad_clip,
                offload=settings.offload,
                ranks=self._ranks,
            )

    def _make_forward(
        self, model: PreTrainedModel, temperature: float, *, routing_replay: bool = False
    ) -> Forward:
        return Forward(
            model,
            temperature=temperature,
            routing_replay=routing_replay,
            invariant=self._deterministic,
            attention=self._settings.attention,
            logits_per_chunk=self._settings.logits_per_chunk,
        )

    def _make_reference(self, temperature: float) -> Forward:
        """Return a copy of the model with its present weights, sharded and offloaded as the settings say."""
        # Computed as the policy is, whose rounding would otherwise be part of the KL estimate. But it is
        # another policy, so it chooses its own experts.
        reference = self._make_forward(self.plain_copy(), temperature)
        reference.shard(self._ranks, trained=False)
        if self._settings.offload and self._ranks.size == 1:
            # The reference is needed once per step, so it is moved to the device only then.
            move_to_host(reference.model)
        return reference

    def step(self, batch: Batch) -> dict[str, float]:
        """Train on a batch: ``epochs`` passes over ``minibatches`` updates. Returns the metrics.

        loss, grad_norm: means over the updates (norms before clipping; skipped updates are left out).
        ratio_mean, ratio_min, ratio_max, ratio_p01, ratio_p99: of p / p_old, over tokens and updates.
        clip_fraction: share of tokens that a bound or a mask holds. entropy: mean of a token's distribution,
        in nats. kl: mean k3 estimate against the reference, when there is one; step_kl: against p_old.
        engine_kl,
        logprob_gap, logprob_gap_max: k3, mean and largest |trainer - engine| log-prob, before a token's
        first update; outside: the share of tokens whose ratio is outside [0.9, 1.1] then; engine_gap: the
        mean over the tokens that were drawn with the very weights of the step's
        start, of which the gap should be rounding. What the algorithm and its correction report. tokens,
        replies: those that carry loss.
        updates, skipped: optimizer updates made, and left out for a gradient that was not finite. lr: the
        learning rate. A cross-entropy is not compared with the engine.

        A batch in which nothing carries loss makes no update; then only the counts and lr are given.

        Raises UserError, in the state of the updates made, for an ``engine_gap`` beyond ``max_engine_gap``.
        """
        lr = learning_rate(self._settings, self.version)
        works = self._prepare(batch)
        meter = StepMeter(self._ranks)
        skipped_before = self.optimizer.skipped
        for epoch in range(self._settings.epochs):
            for work in works:
                self._update(work, lr, meter, first=epoch == 0)
        metrics = meter.metrics()
        # A large gap means that engine and trainer compute different models, so the step must not count.
        check_engine_gap(metrics.get("engine_gap"), self._settings.max_engine_gap)
        self.version += 1
        skipped = self.optimizer.skipped - skipped_before
        return {
            **metrics,
            "lr": lr,
            "tokens": float(sum(work.data.tokens for work in works)),
            "replies": float(sum(len(work.data.lengths) for work in works)),
            "updates": float(len(works) * self._settings.epochs - skipped),
            "skipped": float(skipped),
        }

    def weights(self, *, parts: bool = False) -> Iterator[tuple[str, object]]:
        """Yield the model's parameters by name, tied ones once. They are live tensors: the next step changes
        them.

        With several ranks they are ``DeferredWeight``: reading one gathers it, so all ranks must read them
        together. With ``parts``, each rank's own rows, for ``weights.shards.rank_shards``.
        """
        yield from named_weights(self.model, parts=parts)

    def plain_copy(self) -> Any:
        """Return a plain model with the current weights, adapters merged. All ranks call this together."""
        return copy_model(self.model, named_weights(self.model), self.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """Return master weights, moments and counters for :meth:`load_state_dict`. They are live tensors."""
        return {**self.optimizer.state_dict(), "version": torch.tensor(self.version)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue exactly from a :meth:`state_dict`. Raises UserError if it does not fit."""
        self.optimizer.load_state_dict(state)
        self.version = int(state["version"])

    def _prepare(self, batch: Batch) -> list[_PreparedMiniBatch]:
        """Return packed mini-batches with the log-probs and advantages that the first update needs."""
        made = make_minibatches(
            batch,
            self._spec,
            count=self._settings.minibatches,
            max_tokens=self._max_tokens,
            routers=self.forward.routers,
        )
        minibatches = [data.to(self.model.device) for data in made]
        packed = [self._pack(data) for data in made]
        # Later updates need the log-probs of the policy before the first one.
        several = len(minibatches) * self._settings.epochs > 1
        penalised = self._spec.penalises_reward
        nothing: list[Tensor | None] = [None] * len(minibatches)
        old = self._log_probs(self.forward, minibatches, packed) if several or penalised else nothing
        start = nothing
        if self._reference is not None:
            with moved_to(self._reference.model, self.model.device):
                start = self._log_probs(self._reference, minibatches, packed)
        penalties = [self._penalty(*pair) for pair in zip(old, start, strict=True)] if penalised else None
        advantages = step_advantages(minibatches, self._spec, penalties)
        # With one update p_old is the current policy itself, and the ratio exactly 1.
        columns = (minibatches, packed, advantages, old if several else nothing, start)
        return [_PreparedMiniBatch(*row) for row in zip(*columns, strict=True)]

    def _penalty(self, old: Tensor | None, reference: Tensor | None) -> Tensor:
        """Return [T]: the reduction of each token's reward for being unlikely under the starting weights."""
        assert old is not None
        assert reference is not None
        return self._spec.kl_coef * divergence(old, reference, self._spec.kl_estimate)

    def _pack(self, data: MiniBatch) -> list[MicroBatch]:
        """Return this rank's share of the replies, in the same number of micro-batches on every rank."""
        size, tokens, written = self._ranks.size, self._settings.micro_batch_tokens, data.written.cpu()
        if size == 1:
            return [batch.only_predicting(written) for batch in self.forward.pack(data.groups, tokens)]
        mine, places = rank_share(data.groups, self._ranks.rank, size)
        packed = [
            batch.with_positions(places).only_predicting(written) for batch in self.forward.pack(mine, tokens)
        ]
        # Every pass gathers the sharded weights, so all ranks must make the same number of passes.
        missing = self._ranks.largest(len(packed), "the number of micro-batches") - len(packed)
        [smallest] = self.forward.pack([PromptReplies([0], [[0]])], tokens)
        return packed + [smallest.without_targets()] * missing

    def _log_probs(
        self, forward: Forward, minibatches: list[MiniBatch], packed: list[list[MicroBatch]]
    ) -> list[Tensor | None]:
        """Return [T] for each mini-batch, whichever ranks compute them."""
        return [
            self._ranks.sum(forward.log_probs(p, data.tokens, data.supports), "the log-probs of a mini-batch")
            for data, p in zip(minibatches, packed, strict=True)
        ]

    def _update(self, work: _PreparedMiniBatch, lr: float, meter: StepMeter, *, first: bool) -> None:
        """Make one optimizer update: every micro-batch forward and backward, then AdamW."""
        whole = self._spec.sees_whole_replies
        # At another temperature the log-probs differ from the engine's under the same weights.
        comparable = not self._spec.cross_entropy
        prepared = self._loss_preparation(work)
        for micro_batch in work.micro_batches:
            with self.forward.memory_for("training on", micro_batch):
                for scores in self.forward.scores(micro_batch, whole=whole, supports=work.data.supports):
                    inputs = work.inputs(scores)
                    if prepared is not None:
                        inputs = replace(inputs, prepared=prepared[scores.places])
                    found = objective(self._spec, self._spec.loss(inputs), inputs, scores.entropies)
                    loss = (inputs.weights * found.tokens).sum()
                    loss.backward()
                    # Tokens of older weights have a gap that is not rounding.
                    fresh = work.data.versions[scores.places] == self.version
                    meter.add_tokens(inputs, found, loss, first=first and comparable, fresh=fresh)
        with self._memory_for("the update of the optimizer"):
            meter.add_update(self.optimizer.update(lr))

    def _memory_for(self, phase: str) -> AbstractContextManager[None]:
        amount = partial(describe_weights, self.model)
        return explain_out_of_memory(phase, self.model.device, amount, WEIGHTS_KEYS)

    def _loss_preparation(self, work: _PreparedMiniBatch) -> Tensor | None:
        """Return what the algorithm computes from all tokens under the current weights."""
        if not self._spec.sees_whole_minibatch:
            return None
        data = work.data
        own = torch.stack(
            self.forward.log_probs_and_entropies(work.micro_batches, data.tokens, data.supports)
        )
        measured = self._ranks.sum(own, "the log-probs of a mini-batch")
        everywhere = torch.arange(data.tokens, device=self.model.device)
        return self._spec.prepare(work.inputs(Scores(everywhere, *measured, whole=True)))
