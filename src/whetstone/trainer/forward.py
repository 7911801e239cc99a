"""From micro-batches to the log-probs of reply tokens, and back to gradients.

Only the hidden states that predict a reply token pass through the language-model head, one chunk at a time,
so the logits of a large vocabulary only exist for one chunk of tokens.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whetstone.core.errors import UserError
from whetstone.engine.architecture import (
    OWN_ATTENTION,
    TESTED_FAMILIES,
    check_architecture,
    check_length,
    rope_limits,
)
from whetstone.engine.expert_routing import ExpertRouters
from whetstone.engine.invariance import attention_set_to, missing_rows, supports_invariance
from whetstone.engine.out_of_memory import TRAINING_KEYS, explain_out_of_memory
from whetstone.trainer.attention_kernels import INVARIANT_PACKED, PACKED
from whetstone.trainer.log_probs import LogProbHead, Supports
from whetstone.trainer.packing import Layout, MicroBatch, PromptReplies, pack
from whetstone.trainer.ranks import Ranks
from whetstone.trainer.settings import AttentionName
from whetstone.trainer.sharding import (
    free_gathered,
    shard_model,
    with_gathered_weights,
    zero_missing_gradients,
)


def with_fp32_sums(embedding: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    """A forward hook of an embedding that sums the gradient of a row over its tokens in fp32 on a CPU.

    torch's CPU kernel sums in the dtype of the weights. In bf16 such a sum stops growing after a few hundred
    occurrences of a token. Other devices sum in fp32 and need no hook.
    """
    if output.device.type != "cpu" or output.dtype not in (torch.bfloat16, torch.float16):
        return output
    if not output.requires_grad:
        return output
    ids, places = arguments[0].unique(return_inverse=True)
    # Each row is read once, so the embedding kernel adds nothing. The fp32 indexing computes the sum.
    return embedding.forward(ids).float()[places].to(output.dtype)


@dataclass(frozen=True)
class Scores:
    """Flat positions of reply tokens, their log-probs and entropies, both with gradients, [c] each.

    whole: whether they include all tokens of their replies.
    """

    places: Tensor
    log_probs: Tensor
    entropies: Tensor
    whole: bool


class Forward:
    """Log-probs of reply tokens under ``softmax(logits / temperature)``, with and without gradients.

    attention: ``packed`` computes a prompt once for its replies and needs no mask of a row
    (:mod:`whetstone.trainer.attention_kernels`); ``model`` pads rows of one reply and uses the model's own
    attention; ``auto`` is ``packed`` if the model's layers support it. logits_per_chunk: see
    :class:`whetstone.trainer.log_probs.LogProbHead`. routing_replay: the experts of a micro-batch replace
    those that the model would choose, also when a layer is computed again for the backward pass. invariant:
    log-probs are those of an engine bit for bit, where this is possible (``engine/invariance.py``).

    Raises UserError for an untested architecture, for ``packed`` if its layers do not support it, for
    ``routing_replay`` if it has no experts, and if the model changes its logits in an unknown way, which is
    detected at construction by comparing with the model's own logits.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        temperature: float,
        attention: AttentionName = "auto",
        logits_per_chunk: int = 0,
        routing_replay: bool = False,
        invariant: bool = False,
    ) -> None:
        check_architecture(model.config)
        self.model = model
        self._rope = rope_limits(model)
        self.layout: Layout = _layout(model, attention)
        self.routers = ExpertRouters(model) if routing_replay else None
        self._body = model.base_model
        self._invariant = invariant and self.layout == "shared_prefix" and supports_invariance(model)
        self._head = LogProbHead(
            model,
            invariant=self._invariant,
            temperature=temperature or 1.0,
            logits_per_chunk=logits_per_chunk,
        )
        # An unknown scaling of logits would silently give wrong log-probs. Meta tensors have no values.
        if model.device.type != "meta":
            self._check_logits()

    @property
    def split_reason(self) -> str | None:
        """Why a reply may be computed in two parts, or None if it never is."""
        if self._rope.switch is None:
            return None
        return (
            f"this model has other rotary frequencies beyond {self._rope.switch} tokens, so a reply that "
            "passes them is computed in two parts; take one whose loss is made token by token, as `grpo`"
        )

    def shard(self, ranks: Ranks, *, trained: bool) -> None:
        """Keep only this rank's part of the weights from now on; each pass gathers what it needs.

        All ranks must then make the same number of passes, see
        :meth:`whetstone.trainer.packing.MicroBatch.without_targets`. A single rank keeps all weights.
        """
        if ranks.mesh is not None:
            shard_model(self.model, ranks.mesh, trained=trained)
            self._hidden = with_gathered_weights(self.model, "hidden_states", self._hidden)

    def pack(
        self, groups: Sequence[PromptReplies], micro_batch_tokens: int, layout: Layout | None = None
    ) -> list[MicroBatch]:
        """Lay out replies for this model; see :func:`whetstone.trainer.packing.pack`.

        ``layout`` defaults to the cheapest that the model supports. Raises UserError for a sequence that is
        longer than the model's rope allows.
        """
        for group in groups:
            longest = max((len(ids) for ids in group.replies), default=0)
            check_length(self._rope, len(group.prompt_ids) + longest - 1, "sample shorter replies")
        return pack(
            groups,
            micro_batch_tokens=micro_batch_tokens,
            layout=layout or self.layout,
            padding=missing_rows if self._invariant else lambda _: 0,
            switch=self._rope.switch,
        )

    def log_probs(
        self, micro_batches: list[MicroBatch], tokens: int, supports: Supports | None = None
    ) -> Tensor:
        """Return [tokens] fp32 log-probs in the flat order of tokens, without gradients."""
        return self.log_probs_and_entropies(micro_batches, tokens, supports)[0]

    def log_probs_and_entropies(
        self, micro_batches: list[MicroBatch], tokens: int, supports: Supports | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return [tokens] fp32 log-probs and entropies in the flat order of tokens, without gradients."""
        result = torch.zeros(2, tokens, device=self.model.device)
        with torch.no_grad():
            for cpu_batch in micro_batches:
                with self.memory_for("the log-probs of", cpu_batch):
                    batch, hidden, row_of = self._hidden_to_score(cpu_batch)
                    for part in self._head.chunks(len(batch.targets)):
                        scored = self._score(batch, part, hidden[row_of[part]], supports)
                        result[:, batch.tokens[part]] = torch.stack(scored).to(result.dtype)
        free_gathered(self.model)
        return result[0], result[1]

    def memory_for(self, phase: str, batch: MicroBatch) -> AbstractContextManager[None]:
        """A context for work on a micro-batch that raises OutOfMemory if memory is used up."""

        def amount() -> str:
            longest = int(batch.position_ids.max()) + 1
            return f"{batch.input_ids.numel()} tokens, {longest} in the longest sequence"

        return explain_out_of_memory(f"{phase} a micro-batch", self.model.device, amount, TRAINING_KEYS)

    def scores(
        self, micro_batch: MicroBatch, *, whole: bool = False, supports: Supports | None = None
    ) -> Generator[Scores]:
        """Yield the log-probs of a micro-batch's reply tokens, and add gradients to the parameters.

        For each yielded item the caller computes its loss and calls ``backward`` before it continues. With
        ``whole`` all tokens come at once; otherwise one chunk at a time, whose logits are then freed. At the
        end the gradients of the hidden states are propagated through the body. The last state of a prompt
        predicts the first token of every reply, so its gradient is a sum over replies, computed in fp32.
        """
        batch, hidden, row_of = self._hidden_to_score(micro_batch)
        gradient = torch.zeros_like(hidden, dtype=torch.promote_types(hidden.dtype, torch.float32))
        chunks = self._head.chunks(len(batch.targets))
        slopes = None
        if whole and len(chunks) > 1:
            # The logits of all tokens do not fit into memory. Compute their log-probs first, and each
            # chunk's logits again once the gradient of the loss is known.
            with torch.no_grad():
                parts = [self._score(batch, part, hidden[row_of[part]], supports) for part in chunks]
            columns = [torch.cat(column).requires_grad_() for column in zip(*parts, strict=True)]
            yield Scores(batch.tokens, *columns, whole=True)
            slopes = [torch.zeros_like(c) if c.grad is None else c.grad for c in columns]
        for part in chunks:
            leaf = hidden[row_of[part]].detach().requires_grad_()
            values, entropies = self._score(batch, part, leaf, supports)
            if slopes is None:
                yield Scores(batch.tokens[part], values, entropies, whole=len(chunks) == 1)
            else:
                torch.autograd.backward((values, entropies), [slope[part] for slope in slopes])
            if leaf.grad is not None:
                gradient.index_add_(0, row_of[part], leaf.grad.to(gradient.dtype))
        if not chunks:
            zero_missing_gradients(self.model)
        # With activation checkpointing, layers are computed again in the backward pass.
        with self._layers_set_for(batch):
            hidden.backward(gradient.to(hidden.dtype))

    def _score(
        self, batch: MicroBatch, part: slice, hidden: Tensor, supports: Supports | None
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies of some of the targets, whose hidden states are given."""
        own = None if supports is None else supports.select(batch.tokens[part])
        return self._head.score(hidden, batch.targets[part], own)

    @contextmanager
    def _layers_set_for(self, batch: MicroBatch) -> Generator[None]:
        """Let the layers use the attention of the batch's layout and its experts; restore the model's own
        afterwards."""
        with ExitStack() as set_for:
            if batch.attention_mask.dim() == 4:
                name = INVARIANT_PACKED if self._invariant else PACKED
                set_for.enter_context(attention_set_to(self.model, name))
            if self.routers is not None and batch.experts is not None:
                set_for.enter_context(self.routers.replay(batch.experts))
            yield

    def _hidden_to_score(self, cpu_batch: MicroBatch) -> tuple[MicroBatch, Tensor, Tensor]:
        """Return the batch on the model's device, its hidden states that predict a token, each once, and for
        each token the index of its state."""
        # On a device, the host would wait for the number of states.
        rows, row_of = cpu_batch.predictors.unique(return_inverse=True)
        batch = cpu_batch.to(self.model.device)
        hidden = self._hidden(batch, rows.to(self.model.device))
        return batch, hidden, row_of.to(self.model.device)

    def _hidden(self, batch: MicroBatch, rows: Tensor) -> Tensor:
        """Return [len(rows), width] hidden states at ``rows`` of the flattened micro-batch."""
        embedding = self.model.get_input_embeddings()
        with self._layers_set_for(batch), embedding.register_forward_hook(with_fp32_sums):
            output = self._body(
                input_ids=batch.input_ids,
                position_ids=batch.position_ids,
                attention_mask=batch.attention_mask,
                use_cache=False,
            )
        states = cast(Tensor, output.last_hidden_state)
        return states.reshape(-1, states.shape[-1]).index_select(0, rows)

    def _check_logits(self) -> None:
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        ids = torch.arange(6, device=self.model.device)[None] % vocabulary
        with torch.no_grad():
            expected = cast(Tensor, self.model(input_ids=ids, use_cache=False).logits).float()
            read = partial(self._body, input_ids=ids, use_cache=False)
            # A recording also tells whether the routers can be replaced.
            body = read() if self.routers is None else self.routers.record(read)[0]
            found = self._head.logits(cast(Tensor, body.last_hidden_state)).float()
        if not torch.allclose(found, expected, rtol=0.02, atol=0.02 * float(expected.abs().max())):
            raise UserError(
                f"model type `{self.model.config.model_type}` changes its logits in a way the trainer "
                f"does not know; known are those of {', '.join(sorted(TESTED_FAMILIES))}"
            )


def _layout(model: PreTrainedModel, attention: AttentionName) -> Layout:
    kind = model.config.get_text_config().model_type
    if attention == "packed" and kind in OWN_ATTENTION:
        raise UserError(
            f"trainer.attention: `packed` cannot serve architecture `{kind}`, whose layers compute attention "
            "by themselves; take `auto` or `model`"
        )
    return "padded" if attention == "model" or kind in OWN_ATTENTION else "shared_prefix"
