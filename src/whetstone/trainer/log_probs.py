"""From hidden states to the log-probs of tokens and the entropies, with gradients.

Logits are computed for a chunk of tokens at a time. Operations without entropies, such as cut cross-entropy,
cannot serve a step, which reports them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whetstone.core.errors import UserError
from whetstone.engine.invariance import whole_rows
from whetstone.engine.sampling import log_softmax, within_supports

# The most logits at once where free memory is not known: 64 MiB in fp32. A few such buffers exist at the same
# time.
LOGITS_PER_CHUNK = 2**24

# The share of the free memory for a chunk's logits, and their bytes in all buffers: in the compute dtype, as
# scores, as probabilities, as the gradient of the entropy, and as the gradient of the logits.
_SHARE, _BYTES_PER_LOGIT = 0.25, 16


@dataclass(frozen=True)
class Supports:
    """For each of T tokens the vocabulary entries from which it was sampled, if top-p or top-k left some out.

    ids: [n], in which ``starts`` and ``counts`` ([T]) are the place of each token's; a token without ids was
    sampled from the whole vocabulary.
    """

    ids: Tensor
    starts: Tensor
    counts: Tensor

    def to(self, device: torch.device) -> Supports:
        """Return a copy on ``device``."""
        return Supports(self.ids.to(device), self.starts.to(device), self.counts.to(device))

    def select(self, tokens: Tensor) -> Supports:
        """Return the supports of some of the tokens, by number."""
        return Supports(self.ids, self.starts[tokens], self.counts[tokens])

    def whole_rows(self) -> Supports:
        """Return these and the whole vocabulary for each row that ``invariance.whole_rows`` adds."""
        return Supports(self.ids, whole_rows(self.starts), whole_rows(self.counts))

    def exclude(self, logits: Tensor) -> Tensor:
        """Return the logits ([T, vocabulary]) without those that sampling could not choose."""
        first = self.counts.cumsum(0) - self.counts
        shifts = (self.starts - first).repeat_interleave(self.counts)
        places = torch.arange(len(shifts), device=logits.device) + shifts
        return within_supports(logits, self.ids[places], self.counts)


class LogProbHead:
    """The language-model head of ``model``, and what follows it.

    Log-probs are those of ``softmax(logits / temperature)``, over the support of each token.
    logits_per_chunk: the most logits at once; 0: as the free memory of a CUDA device allows, and 2^24
    elsewhere and with deterministic algorithms. invariant: whether log-probs are those of an engine bit for
    bit (``engine/invariance.py``).
    Raises UserError for a model without a head.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        temperature: float,
        logits_per_chunk: int = 0,
        invariant: bool = False,
    ) -> None:
        head = model.get_output_embeddings()
        if not isinstance(head, nn.Module):
            raise UserError(
                f"model type `{model.config.model_type}` has no language-model head to train; choose "
                "a model for causal language modelling"
            )
        config = model.config.get_text_config()
        self._head = head
        self._temperature = temperature
        self._vocabulary = int(config.vocab_size)
        self._limit = logits_per_chunk
        self._invariant = invariant
        self._divide = float(getattr(config, "logits_scaling", None) or 1.0)
        self._divide /= float(getattr(config, "logit_scale", None) or 1.0)
        self._softcap = float(getattr(config, "final_logit_softcapping", None) or 0.0)

    @property
    def weight(self) -> Tensor:
        """The weights of the head: [vocabulary, width]."""
        return cast(Tensor, self._head.weight)

    def chunks(self, tokens: int) -> list[slice]:
        """Divide ``tokens`` into parts that are scored at once."""
        device = next(self._head.parameters()).device
        size = max(1, (self._limit or logits_at_once(device)) // self._vocabulary)
        return [slice(i, min(i + size, tokens)) for i in range(0, tokens, size)]

    def score(
        self, hidden: Tensor, targets: Tensor, supports: Supports | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probs of ``targets`` ([t]) after ``hidden`` ([t, width]), and the entropies, in
        nats; [t] each. Both are over the ``supports`` of the targets if given. Gradients flow once."""
        rows = len(targets)
        if self._invariant:
            hidden, targets = whole_rows(hidden), whole_rows(targets)
            supports = supports and supports.whole_rows()
        logits = self.logits(hidden)
        if supports is not None:
            logits = supports.exclude(logits)
        values, entropies = selected_log_probs(logits, targets, self._temperature)
        return values[:rows], entropies[:rows]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of hidden states, as the model computes them."""
        logits = cast(Tensor, self._head(hidden))
        if self._divide != 1.0:
            logits = logits / self._divide
        if self._softcap:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits


def logits_at_once(device: torch.device) -> int:
    """Return how many logits may exist at once."""
    if device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
        return LOGITS_PER_CHUNK
    free, _ = torch.cuda.mem_get_info(device)
    # torch keeps freed memory for itself.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(LOGITS_PER_CHUNK, int(free * _SHARE) // _BYTES_PER_LOGIT)


def selected_log_probs(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return log-probs of ``targets`` under softmax(logits / temperature), and the entropies.

    logits: [t, vocabulary], any float dtype; targets: [t]; computed in fp32 (float64 for float64). Returns
    two [t] tensors in nats; gradients flow through both, but only once.
    """
    values, entropies = cast(Any, _SelectedLogProbs).apply(logits, targets, temperature)
    return values, entropies


class _SelectedLogProbs(torch.autograd.Function):
    """log-softmax at one position per row, with two buffers of the logits' size, one of them kept."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        scores, probabilities = log_softmax(logits, temperature)
        chosen = scores.gather(-1, targets[:, None]).squeeze(-1)
        entropies = scores.mul_(probabilities).sum(-1).neg_()
        ctx.probabilities, ctx.targets, ctx.entropies = probabilities, targets, entropies.detach()
        ctx.temperature, ctx.dtype = temperature, logits.dtype
        # Without an entropy bonus the gradient of the entropies is None, which then costs nothing.
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
