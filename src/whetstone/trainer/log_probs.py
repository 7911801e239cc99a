"""From hidden states to the log-probs of tokens and the entropies, with gradients.

Logits are computed for a chunk of tokens at a time. On an H100, Liger's fused operation computes both results
without writing logits to memory, if it is installed and an algorithm only reports entropies: these it rounds
to bf16. Operations without entropies, such as cut cross-entropy, cannot serve a step, which reports them.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whetstone.core.errors import UserError
from whetstone.engine.invariance import whole_rows
from whetstone.engine.sampling import log_softmax, within_supports

log = logging.getLogger(__name__)

# The most logits at once where free memory is not known: 64 MiB in fp32. A few such buffers exist at the same
# time.
LOGITS_PER_CHUNK = 2**24

# The share of the free memory for a chunk's logits, and their bytes in all buffers: in the compute dtype, as
# scores, as probabilities, as the gradient of the entropy, and as the gradient of the logits.
_SHARE, _BYTES_PER_LOGIT = 0.25, 16

# Liger adds up the gradient of the weights in bf16 beyond this number of tokens; chunks are added in fp32.
_FUSED_TOKENS = 1024

# The largest difference from our own result, relative to its norm: more than the rounding of bf16.
_TOLERANCE = 0.02


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
    elsewhere and with deterministic algorithms. exact_entropies: whether entropies rounded to bf16 are not
    sufficient. invariant: whether log-probs are those of an engine bit for bit (``engine/invariance.py``).
    Raises UserError for a model without a head.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        temperature: float,
        logits_per_chunk: int = 0,
        exact_entropies: bool = True,
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
        self._may_fuse = not (exact_entropies or self._softcap)

    @property
    def weight(self) -> Tensor:
        """The weights of the head: [vocabulary, width]."""
        return cast(Tensor, self._head.weight)

    @property
    def fused(self) -> bool:
        """Whether Liger's operation computes the log-probs."""
        return self._fused is not None

    @cached_property
    def _fused(self) -> Any:
        """Liger's operation, or None. It is chosen at first use, when the weights are on their device."""
        operation = _fused_operation(self._head) if self._may_fuse else None
        return operation if operation is not None and self._fused_agrees(operation) else None

    def chunks(self, tokens: int) -> list[slice]:
        """Divide ``tokens`` into parts that are scored at once."""
        size = _FUSED_TOKENS
        if self._fused is None:
            device = next(self._head.parameters()).device
            size = max(1, (self._limit or logits_at_once(device)) // self._vocabulary)
        return [slice(i, min(i + size, tokens)) for i in range(0, tokens, size)]

    def score(
        self, hidden: Tensor, targets: Tensor, supports: Supports | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probs of ``targets`` ([t]) after ``hidden`` ([t, width]), and the entropies, in
        nats; [t] each. Both are over the ``supports`` of the targets if given. Gradients flow once."""
        if supports is not None or self._fused is None:
            return self._own_score(hidden, targets, supports)
        return self._fused_score(hidden, targets, self._fused)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of hidden states, as the model computes them."""
        logits = cast(Tensor, self._head(hidden))
        if self._divide != 1.0:
            logits = logits / self._divide
        if self._softcap:
            logits = torch.tanh(logits / self._softcap) * self._softcap
        return logits

    def _own_score(
        self, hidden: Tensor, targets: Tensor, supports: Supports | None = None
    ) -> tuple[Tensor, Tensor]:
        rows = len(targets)
        if self._invariant:
            hidden, targets = whole_rows(hidden), whole_rows(targets)
            supports = supports and supports.whole_rows()
        logits = self.logits(hidden)
        if supports is not None:
            logits = supports.exclude(logits)
        values, entropies = selected_log_probs(logits, targets, self._temperature)
        return values[:rows], entropies[:rows]

    def _fused_score(self, hidden: Tensor, targets: Tensor, operation: Any) -> tuple[Tensor, Tensor]:
        weight = self.weight
        arguments = (hidden, weight, targets, self._temperature * self._divide, -100, 1, True)
        losses, entropies = operation.apply(*arguments)
        return -losses, entropies.float()

    def _fused_agrees(self, operation: Any) -> bool:
        """Return whether the fused operation gives our values and gradients for a few tokens."""
        weight = self.weight
        values = torch.randn(6, weight.shape[1], generator=torch.Generator().manual_seed(0)).to(weight)
        targets = (torch.arange(6) * 7 % self._vocabulary).to(weight.device)
        trained = [weight] if weight.requires_grad else []
        results: list[tuple[Tensor, ...]] = []
        reason, remedy = "", "update or remove liger-kernel"
        try:
            for score in (partial(self._fused_score, operation=operation), self._own_score):
                hidden = values.clone().requires_grad_()
                with torch.enable_grad():
                    found = score(hidden, targets)
                    gradients = torch.autograd.grad(found[0].sum(), [*trained, hidden])
                results.append((*(value.detach() for value in found), *gradients))
            errors = [float((a - b).float().norm() / b.float().norm()) for a, b in zip(*results, strict=True)]
            if max(errors) > _TOLERANCE:
                reason = f"its results are wrong by {max(errors):.2g}"
        except ImportError as error:
            # Its operation for Hopper is in a package of its own, which `liger-kernel` does not install.
            reason, remedy = str(error), "install 'liger-kernel[cutedsl]'"
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason:
            log.warning("the fused log-probs of Liger are not used: %s; %s", reason, remedy)
        return not reason


def logits_at_once(device: torch.device) -> int:
    """Return how many logits may exist at once."""
    if device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
        return LOGITS_PER_CHUNK
    free, _ = torch.cuda.mem_get_info(device)
    # torch keeps freed memory for itself.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return max(LOGITS_PER_CHUNK, int(free * _SHARE) // _BYTES_PER_LOGIT)


def _fused_operation(head: nn.Module) -> Any:
    """Return Liger's operation if it is installed and fused for this head, else None."""
    if type(head) is not nn.Linear or cast(Any, head).bias is not None or find_spec("liger_kernel") is None:
        return None
    if head.weight.dtype != torch.bfloat16 or not _has_fused_kernel(head.weight.device):
        return None
    # Otherwise the host waits in each call for a test of the targets.
    os.environ.setdefault("LIGER_SCALED_CE_SM90_VALIDATE_TARGETS", "0")
    return getattr(import_module("liger_kernel.ops"), "LigerFusedLinearScaledCrossEntropyFunction", None)


def _has_fused_kernel(device: torch.device) -> bool:
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) == (9, 0)


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
