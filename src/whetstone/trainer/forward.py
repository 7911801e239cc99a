"""From micro-batches to the log-probs of reply tokens, and back to gradients.

Only the hidden states that predict a reply token go through the language-model head, a chunk at a
time, so that the logits of a large vocabulary never exist for more than a chunk of tokens.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whetstone.engine.architecture import (
    OWN_ATTENTION,
    PROVED,
    check_architecture,
    check_length,
    rope_limits,
)
from whetstone.engine.out_of_memory import TRAINING_KEYS, named_when_out
from whetstone.errors import UserError
from whetstone.trainer.gradient_sums import with_fp32_sums
from whetstone.trainer.packed_attention import PACKED
from whetstone.trainer.packing import Layout, MicroBatch, Prompted, pack
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import AttentionName
from whetstone.trainer.sharding import gathering, give_gradients, release, shard

LOGITS_PER_CHUNK = 2**24
"""Logits that may exist at once: 64 MiB in fp32, and a few such buffers at the same time."""


@dataclass(frozen=True)
class Scores:
    """Flat places of reply tokens, their log-probs and entropies, both with gradient, [c] each.

    whole: whether these are all tokens of their replies.
    """

    places: Tensor
    log_probs: Tensor
    entropies: Tensor
    whole: bool


class Forward:
    """Log-probs of reply tokens under ``softmax(logits / temperature)``, with and without gradients.

    attention: ``packed`` computes a prompt once for its replies and keeps no mask of a row
    (:mod:`whetstone.trainer.packed_attention`); ``model`` pads rows of one reply and leaves attention to the
    implementation that the model was loaded with; ``auto`` is the first where the model's layers can take it.

    Raises UserError for an architecture that is not proved here, for ``packed`` where its layers cannot take
    it, and when the model changes its logits in a way that is not known: that is found by comparing with the
    model's own logits once, at construction.
    """

    def __init__(
        self, model: PreTrainedModel, *, temperature: float, attention: AttentionName = "auto"
    ) -> None:
        check_architecture(model.config)
        self.model = model
        self.temperature = temperature or 1.0
        self._rope = rope_limits(model)
        self.layout: Layout = _layout(model, attention)
        self._body = model.base_model
        self._head = _head(model)
        config = model.config.get_text_config()
        self._divide = float(getattr(config, "logits_scaling", None) or 1.0)
        self._divide /= float(getattr(config, "logit_scale", None) or 1.0)
        self._softcap = float(getattr(config, "final_logit_softcapping", None) or 0.0)
        self._chunk = max(1, LOGITS_PER_CHUNK // int(config.vocab_size))
        self._check_logits()

    @property
    def split_obstacle(self) -> str | None:
        """Why a reply may not be seen as a whole, or None when it is."""
        if self._rope.switch is None:
            return None
        return (
            f"this model has other rotary frequencies beyond {self._rope.switch} tokens, so a reply that "
            "passes them is computed in two parts; take one whose loss is made token by token, as `grpo`"
        )

    def spread(self, ranks: Ranks, *, trained: bool) -> None:
        """Keep only this rank's part of the weights from here on; each pass gathers what it needs.

        All ranks then make as many passes, see :meth:`whetstone.trainer.packing.MicroBatch.idle`. One rank
        keeps all.
        """
        if ranks.mesh is not None:
            shard(self.model, ranks.mesh, trained=trained)
            self._hidden = gathering(self.model, "hidden_states", self._hidden)

    def pack(
        self, groups: Sequence[Prompted], micro_batch_tokens: int, layout: Layout | None = None
    ) -> list[MicroBatch]:
        """Lay replies out as this model needs them; see :func:`whetstone.trainer.packing.pack`.

        ``layout`` is the cheapest that the model can take, unless given. Raises UserError for a sequence
        that is longer than the model's rope allows.
        """
        for group in groups:
            longest = max((len(ids) for ids in group.replies), default=0)
            check_length(self._rope, len(group.prompt_ids) + longest - 1, "sample shorter replies")
        return pack(
            groups,
            micro_batch_tokens=micro_batch_tokens,
            layout=layout or self.layout,
            switch=self._rope.switch,
        )

    def log_probs(self, micro_batches: list[MicroBatch], tokens: int) -> Tensor:
        """[tokens] fp32 log-probs in the flat order of tokens, without gradients."""
        return self.measured(micro_batches, tokens)[0]

    def measured(self, micro_batches: list[MicroBatch], tokens: int) -> tuple[Tensor, Tensor]:
        """[tokens] fp32 log-probs and entropies in the flat order of tokens, without gradients."""
        result = torch.zeros(2, tokens, device=self.model.device)
        with torch.no_grad():
            for cpu_batch in micro_batches:
                with self.memory_for("the log-probs of", cpu_batch):
                    batch = cpu_batch.to(self.model.device)
                    rows, row_of = batch.predictors.unique(return_inverse=True)
                    hidden = self._hidden(batch, rows)
                    for part in self._chunks(batch):
                        scored = self._score(hidden[row_of[part]], batch.targets[part])
                        result[:, batch.tokens[part]] = torch.stack(scored).to(result.dtype)
        release(self.model)
        return result[0], result[1]

    def memory_for(self, phase: str, batch: MicroBatch) -> AbstractContextManager[None]:
        """Around what is done with a micro-batch: raises OutOfMemory when memory is used up."""

        def amount() -> str:
            longest = int(batch.position_ids.max()) + 1
            return f"{batch.input_ids.numel()} tokens, {longest} in the longest sequence"

        return named_when_out(f"{phase} a micro-batch", self.model.device, amount, TRAINING_KEYS)

    def scores(self, micro_batch: MicroBatch, *, whole: bool = False) -> Generator[Scores]:
        """Yield the log-probs of a micro-batch's reply tokens, and add gradients to the parameters.

        The caller makes its loss of what is yielded and calls ``backward`` on it before it goes on. With
        ``whole`` all tokens come at once; otherwise a chunk of them at a time, whose logits are then
        differentiated at once and freed. The gradients of the hidden states are sent through the body at
        the end. The last state of a prompt predicts the first token of every reply, so its gradient is a
        sum over replies, which is made in fp32.
        """
        batch = micro_batch.to(self.model.device)
        rows, row_of = batch.predictors.unique(return_inverse=True)
        hidden = self._hidden(batch, rows)
        gradient = torch.zeros_like(hidden, dtype=torch.promote_types(hidden.dtype, torch.float32))
        chunks = self._chunks(batch)
        slopes = None
        if whole and len(chunks) > 1:
            # The logits of all tokens do not fit: their log-probs first, and each chunk's logits once more
            # when it is known how the loss changes with them.
            with torch.no_grad():
                parts = [self._score(hidden[row_of[part]], batch.targets[part]) for part in chunks]
            columns = [torch.cat(column).requires_grad_() for column in zip(*parts, strict=True)]
            yield Scores(batch.tokens, *columns, whole=True)
            slopes = [torch.zeros_like(c) if c.grad is None else c.grad for c in columns]
        for part in chunks:
            leaf = hidden[row_of[part]].detach().requires_grad_()
            values, entropies = self._score(leaf, batch.targets[part])
            if slopes is None:
                yield Scores(batch.tokens[part], values, entropies, whole=len(chunks) == 1)
            else:
                torch.autograd.backward((values, entropies), [slope[part] for slope in slopes])
            if leaf.grad is not None:
                gradient.index_add_(0, row_of[part], leaf.grad.to(gradient.dtype))
        if not chunks:
            give_gradients(self.model)
        with self._attending(batch):  # layers may be computed once more
            hidden.backward(gradient.to(hidden.dtype))

    @contextmanager
    def _attending(self, batch: MicroBatch) -> Generator[None]:
        """Let the layers attend as the layout of ``batch`` asks; the model by itself attends as before."""
        config: Any = self.model.config
        before = config._attn_implementation
        if batch.attention_mask.dim() == 4:
            config._attn_implementation = PACKED
        try:
            yield
        finally:
            config._attn_implementation = before

    def _hidden(self, batch: MicroBatch, rows: Tensor) -> Tensor:
        """[len(rows), width] hidden states at ``rows`` of the flattened micro-batch."""
        embedding = self.model.get_input_embeddings()
        with self._attending(batch), embedding.register_forward_hook(with_fp32_sums):
            output = self._body(
                input_ids=batch.input_ids,
                position_ids=batch.position_ids,
                attention_mask=batch.attention_mask,
                use_cache=False,
            )
        states = cast(Tensor, output.last_hidden_state)
        return states.reshape(-1, states.shape[-1]).index_select(0, rows)

    def _chunks(self, batch: MicroBatch) -> list[slice]:
        count = len(batch.targets)
        return [slice(i, min(i + self._chunk, count)) for i in range(0, count, self._chunk)]

    def _score(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return selected_log_probs(self._logits(hidden), targets, self.temperature)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = cast(Tensor, self._head(hidden))
        if self._divide != 1.0:
            logits = logits / self._divide
        if self._softcap:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    def _check_logits(self) -> None:
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        ids = torch.arange(6, device=self.model.device)[None] % vocabulary
        with torch.no_grad():
            expected = cast(Tensor, self.model(input_ids=ids, use_cache=False).logits).float()
            body = self._body(input_ids=ids, use_cache=False)
            found = self._logits(cast(Tensor, body.last_hidden_state)).float()
        if not torch.allclose(found, expected, rtol=0.02, atol=0.02 * float(expected.abs().max())):
            raise UserError(
                f"model type `{self.model.config.model_type}` changes its logits in a way the trainer "
                f"does not know; known are those of {', '.join(sorted(PROVED))}"
            )


def selected_log_probs(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs of ``targets`` under softmax(logits / temperature), and the entropies of the distributions.

    logits: [t, vocabulary], any float dtype; targets: [t]; computed in fp32 (float64 for float64). Returns
    two [t] tensors in nats; gradients flow through both, and only once.
    """
    values, entropies = cast(Any, _SelectedLogProbs).apply(logits, targets, temperature)
    return values, entropies


class _SelectedLogProbs(torch.autograd.Function):
    """log-softmax at one place per row, with two buffers of the logits' size, one of them kept."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        scores = logits.to(dtype, copy=True)
        if temperature != 1.0:
            scores.div_(temperature)
        scores.sub_(scores.amax(dim=-1, keepdim=True))
        probabilities = scores.exp()
        total = probabilities.sum(-1, keepdim=True)
        probabilities.div_(total)
        scores.sub_(total.log())
        chosen = scores.gather(-1, targets[:, None]).squeeze(-1)
        entropies = scores.mul_(probabilities).sum(-1).neg_()
        ctx.probabilities, ctx.targets, ctx.entropies = probabilities, targets, entropies.detach()
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        # Nobody asks for the gradient of the entropies where there is no bonus: then it costs nothing.
        ctx.set_materialize_grads(False)
        return chosen, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None, None]:
        of_chosen, of_entropies = gradients
        result = cast(Tensor, ctx.probabilities)
        # The buffer becomes the gradient, so a second backward would be wrong: let it fail instead.
        ctx.probabilities = None
        spread = None
        if of_entropies is not None:
            # With p = softmax(z): dH/dz = -p (log p + H).
            spread = torch.special.xlogy(result, result).addcmul_(result, ctx.entropies[:, None])
            spread.mul_(-of_entropies[:, None] / ctx.temperature)
        if of_chosen is None:
            result.zero_()
        else:
            scale = of_chosen[:, None] / ctx.temperature
            result.mul_(-scale).scatter_add_(-1, ctx.targets[:, None], scale)
        if spread is not None:
            result.add_(spread)
        return result.to(ctx.dtype), None, None


def _layout(model: PreTrainedModel, attention: AttentionName) -> Layout:
    kind = model.config.get_text_config().model_type
    if attention == "packed" and kind in OWN_ATTENTION:
        raise UserError(
            f"trainer.attention: `packed` cannot serve architecture `{kind}`, whose layers compute attention "
            "by themselves; take `auto` or `model`"
        )
    return "padded" if attention == "model" or kind in OWN_ATTENTION else "shared_prefix"


def _head(model: PreTrainedModel) -> nn.Module:
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Module):
        raise UserError(f"model type `{model.config.model_type}` has no language-model head to train")
    return head
