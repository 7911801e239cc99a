"""One training step: a batch of scored groups in, new weights and metrics out.

With a single update per batch the policy that is trained is the one the ratio refers to, so p_old is
the current log-prob without its gradient and the ratio is exactly 1: no extra pass. With several
updates p_old is computed for the whole batch before the first of them. The engine's own log-probs are
never the denominator; how far they are from the trainer's is reported as ``logprob_gap``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from whetstone.algorithm.algorithm import Algorithm, LossInputs
from whetstone.algorithm.loss import divergence
from whetstone.algorithm.objective import objective
from whetstone.engine.out_of_memory import WEIGHTS_KEYS, named_when_out, weights_in_words
from whetstone.engine.weights import second_model
from whetstone.errors import UserError
from whetstone.sample import Batch
from whetstone.trainer.forward import Forward, Scores
from whetstone.trainer.memory import check_offload, checkpoint_activations, visiting
from whetstone.trainer.meter import Meter, check_engine
from whetstone.trainer.minibatch import MiniBatch, make_minibatches, step_advantages
from whetstone.trainer.optimizer import MasterAdamW
from whetstone.trainer.packing import MicroBatch, Prompted
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.schedule import learning_rate
from whetstone.trainer.settings import TrainerSection
from whetstone.trainer.sharding import named_weights
from whetstone.trainer.share import share


@dataclass
class _Work:
    """A mini-batch, its advantages, and the fixed log-probs its loss refers to ([T] each).

    All of that is whole on every rank, so what an algorithm makes of it needs no word of the others. Packed
    are the replies that this rank computes.
    """

    data: MiniBatch
    micro_batches: list[MicroBatch]
    advantages: Tensor
    old: Tensor | None = None
    reference: Tensor | None = None

    def inputs(self, scores: Scores) -> LossInputs:
        """What the loss of some of the tokens is made of."""
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

    temperature: that of sampling; log-probs are those of softmax(logits / temperature), as the engine's
    are. max_tokens: the longest reply that may be sampled. The model is put into evaluation mode, since
    dropout would make the ratio of a policy to itself differ from 1. With a KL penalty the weights
    that ``model`` has *now* become the frozen reference, so construct the trainer with the run's starting
    weights, and resume by :meth:`load_state_dict`. ``deterministic`` makes torch refuse operations that
    may give other bits for the same input, in the whole process. With several ``ranks`` the model is sharded,
    in place; all of them construct a trainer of the same weights, and make each step together, on one batch.

    ``version`` is the number of steps taken. Raises UserError for a model that cannot be trained, and
    for an ``overlong_buffer`` that does not fit ``max_tokens``.
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
            torch.use_deterministic_algorithms(True)
        self.model = model.eval()
        self.version = 0
        self._spec = spec
        self._settings = settings
        self._max_tokens = max_tokens
        self.dtype = model.dtype
        self._ranks = ranks or Ranks()
        attention = settings.attention
        self.forward = Forward(model, temperature=temperature, attention=attention)
        obstacle = self.forward.split_obstacle if spec.sees_whole_replies else None
        if obstacle is not None:
            raise UserError(f"algorithm `{spec.preset}` needs whole replies, but {obstacle}")
        if settings.offload:
            check_offload(model.device)
        reference = self.plain_copy() if spec.needs_reference else None
        self._reference = reference and Forward(reference, temperature=temperature, attention=attention)
        if self._reference is not None:
            self._reference.spread(self._ranks, trained=False)
            if settings.offload and self._ranks.size == 1:
                self._reference.model.to("cpu")  # pyright: ignore[reportArgumentType]
        if settings.activation_checkpointing:
            checkpoint_activations(model)
        self.forward.spread(self._ranks, trained=True)
        with self._memory_for("making masters, gradients and moments"):
            self.optimizer = MasterAdamW(
                model.named_parameters(),
                betas=settings.betas,
                eps=settings.eps,
                weight_decay=settings.weight_decay,
                grad_clip=settings.grad_clip,
                spike_factor=settings.spike_factor,
                offload=settings.offload,
                ranks=self._ranks,
            )

    def step(self, batch: Batch) -> dict[str, float]:
        """Train on a batch: ``epochs`` passes over ``minibatches`` updates. Returns the metrics.

        loss, grad_norm: means over the updates (norms before clipping; skipped updates are left out).
        ratio_mean, ratio_min, ratio_max, ratio_p01, ratio_p99: of p / p_old, over tokens and updates.
        clip_fraction: share of tokens that a bound or a mask holds. entropy: mean of a token's distribution,
        in nats. kl: mean k3 estimate against the reference, when there is one; step_kl: against p_old.
        engine_kl,
        logprob_gap, logprob_gap_max: k3, mean and largest |trainer - engine| log-prob, before a token's
        first update; engine_gap: the mean over the tokens that were drawn with the very weights of the step's
        start, of which the gap should be rounding. What the algorithm and its correction report. tokens,
        replies: those that carry loss.
        updates, skipped: optimizer updates made, and left out for a gradient that was not finite. lr: the
        learning rate.

        A batch in which nothing carries loss makes no update; then only the counts and lr are given.

        Raises UserError, in the state of the updates made, for an ``engine_gap`` beyond ``max_engine_gap``.
        """
        lr = learning_rate(self._settings, self.version)
        works = self._prepare(batch)
        meter = Meter(self._ranks)
        skipped_before, spikes_before = self.optimizer.skipped, self.optimizer.spikes
        for epoch in range(self._settings.epochs):
            for work in works:
                self._update(work, lr, meter, first=epoch == 0)
        metrics = meter.metrics()
        check_engine(metrics.get("engine_gap"), self._settings.max_engine_gap)
        self.version += 1
        skipped, spikes = self.optimizer.skipped - skipped_before, self.optimizer.spikes - spikes_before
        return {
            **metrics,
            "lr": lr,
            "tokens": float(sum(work.data.tokens for work in works)),
            "replies": float(sum(len(work.data.lengths) for work in works)),
            "updates": float(len(works) * self._settings.epochs - skipped - spikes),
            "skipped": float(skipped),
            "spikes": float(spikes),
        }

    def weights(self, *, parts: bool = False) -> Iterator[tuple[str, object]]:
        """The model's parameters by name, tied ones once. Live tensors: the next step changes them.

        Those of several ranks are ``Deferred``: reading one gathers it, so all ranks read them together.
        Or, as ``parts``, each rank's own rows, for ``weights.pieces.shards``.
        """
        yield from named_weights(self.model, parts=parts)

    def plain_copy(self) -> Any:
        """A plain model with the weights as they are, adapters merged. All ranks call this together."""
        return second_model(self.model, named_weights(self.model), self.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """Masters, moments and counters, all that a later :meth:`load_state_dict` needs. Live tensors."""
        return {**self.optimizer.state_dict(), "version": torch.tensor(self.version)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue exactly where :meth:`state_dict` was taken. Raises UserError when it does not fit."""
        self.optimizer.load_state_dict(state)
        self.version = int(state["version"])

    def _prepare(self, batch: Batch) -> list[_Work]:
        """Mini-batches, packed, with the log-probs and advantages that the first update needs."""
        made = make_minibatches(
            batch,
            self._spec,
            count=self._settings.minibatches,
            max_tokens=self._max_tokens,
        )
        minibatches = [data.to(self.model.device) for data in made]
        packed = [self._pack(data) for data in made]
        several = len(minibatches) * self._settings.epochs > 1
        penalised = self._spec.penalises_reward
        nothing: list[Tensor | None] = [None] * len(minibatches)
        old = self._log_probs(self.forward, minibatches, packed) if several or penalised else nothing
        start = nothing
        if self._reference is not None:
            with visiting(self._reference.model, self.model.device):
                start = self._log_probs(self._reference, minibatches, packed)
        penalties = [self._penalty(*pair) for pair in zip(old, start, strict=True)] if penalised else None
        advantages = step_advantages(minibatches, self._spec, penalties)
        # With one update p_old is the current policy itself, and the ratio exactly 1.
        columns = (minibatches, packed, advantages, old if several else nothing, start)
        return [_Work(*row) for row in zip(*columns, strict=True)]

    def _penalty(self, old: Tensor | None, reference: Tensor | None) -> Tensor:
        """[T]: what the reward of each token loses by being unlikely under the starting weights."""
        assert old is not None
        assert reference is not None
        return self._spec.kl_coef * divergence(old, reference, self._spec.kl_estimate)

    def _pack(self, data: MiniBatch) -> list[MicroBatch]:
        """This rank's share of the replies, in as many micro-batches as any other rank has."""
        size, tokens, written = self._ranks.size, self._settings.micro_batch_tokens, data.written.cpu()
        if size == 1:
            return [batch.predicting(written) for batch in self.forward.pack(data.groups, tokens)]
        mine, places = share(data.groups, self._ranks.rank, size)
        packed = [batch.placed(places).predicting(written) for batch in self.forward.pack(mine, tokens)]
        missing = self._ranks.most(len(packed), "the number of micro-batches") - len(packed)
        [smallest] = self.forward.pack([Prompted([0], [[0]])], tokens)
        return packed + [smallest.idle()] * missing

    def _log_probs(
        self, forward: Forward, minibatches: list[MiniBatch], packed: list[list[MicroBatch]]
    ) -> list[Tensor | None]:
        """[T] for each mini-batch, whichever ranks compute them."""
        return [
            self._ranks.sum(forward.log_probs(p, data.tokens), "the log-probs of a mini-batch")
            for data, p in zip(minibatches, packed, strict=True)
        ]

    def _update(self, work: _Work, lr: float, meter: Meter, *, first: bool) -> None:
        """One optimizer update: every micro-batch forward and backward, then AdamW."""
        whole = self._spec.sees_whole_replies
        prepared = self._prepared(work)
        for micro_batch in work.micro_batches:
            with self.forward.memory_for("training on", micro_batch):
                for scores in self.forward.scores(micro_batch, whole=whole):
                    inputs = work.inputs(scores)
                    if prepared is not None:
                        inputs = replace(inputs, prepared=prepared[scores.places])
                    found = objective(self._spec, self._spec.loss(inputs), inputs, scores.entropies)
                    loss = (inputs.weights * found.tokens).sum()
                    loss.backward()
                    fresh = work.data.versions[scores.places] == self.version
                    meter.tokens(inputs, found, loss, first=first, fresh=fresh)
        with self._memory_for("the update of the optimizer"):
            meter.update(self.optimizer.update(lr))

    def _memory_for(self, phase: str) -> AbstractContextManager[None]:
        amount = partial(weights_in_words, self.model)
        return named_when_out(phase, self.model.device, amount, WEIGHTS_KEYS)

    def _prepared(self, work: _Work) -> Tensor | None:
        """What the algorithm makes of all tokens under the current weights."""
        if not self._spec.sees_whole_minibatch:
            return None
        own = torch.stack(self.forward.measured(work.micro_batches, work.data.tokens))
        measured = self._ranks.sum(own, "the log-probs of a mini-batch")
        everywhere = torch.arange(work.data.tokens, device=self.model.device)
        return self._spec.prepare(work.inputs(Scores(everywhere, *measured, whole=True)))
