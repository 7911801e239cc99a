"""What an algorithm is: settings that a recipe may change, and a loss of whole replies.

An algorithm is a class, one file each in ``presets/``; a subclass changes defaults, adds settings, or has a
loss of its own. Torch is imported for its types only, here and in the presets, so that a recipe can be read
without it: their mathematics is methods of tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import BeforeValidator, Field, model_validator

from whetstone.algorithm.loss import Aggregation, Divergence, divergence, probability_ratio
from whetstone.core.settings import Natural, NonNegative, Positive, Section

if TYPE_CHECKING:
    from torch import Tensor

    from whetstone.core.sample import Sample


# A correction is for replies that an engine drew, which is not quite the policy that is trained. It
# multiplies the loss of each token by a weight made of rho = p_old / p_engine. The token weights of the
# mini-batch stay: what a correction takes from one token is given to no other.
class TIS(Section):
    """Truncated importance sampling: times min(rho, cap).

    Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025.

    kind: the name of the correction.
    cap: the largest factor; lower it if a few tokens dominate the gradient.
    """

    kind: Literal["tis"] = "tis"
    cap: Positive = 2.0

    def factors(self, old: Tensor, engine: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """What the losses of the tokens are multiplied by, and what is reported; [T] each."""
        rho = probability_ratio(old, engine).detach()
        return rho.clamp(max=self.cap), {"importance": rho, "importance_truncated": rho > self.cap}


class IcePop(Section):
    """Times rho, or nothing where rho is outside [low, high] (arXiv 2510.18855).

    kind: the name of the correction.
    low, high: the bounds of rho; narrow them if engine and trainer differ in many tokens.
    """

    kind: Literal["icepop"] = "icepop"
    low: NonNegative = 0.5
    high: Positive = 5.0

    @model_validator(mode="after")
    def _ordered(self) -> IcePop:
        if self.low >= self.high:
            raise ValueError(f"`low` ({self.low}) must be below `high` ({self.high})")
        return self

    def factors(self, old: Tensor, engine: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """What the losses of the tokens are multiplied by, and what is reported; [T] each."""
        rho = probability_ratio(old, engine).detach()
        masked = (rho < self.low) | (rho > self.high)
        return rho.masked_fill(masked, 0.0), {"importance": rho, "importance_masked": masked}


Correction = Annotated[
    Annotated[TIS | IcePop, Field(discriminator="kind")] | None,
    BeforeValidator(lambda value: {"kind": value} if isinstance(value, str) else value),
]
"""``tis``, ``icepop``, or either with its settings; null is none."""


PRESETS = "whetstone.algorithm.presets"

_Loss = TypeVar("_Loss", bound=Callable[..., Any])


_OrOff = BeforeValidator(lambda value: 0 if value is None else value)
# What 0 or false switches off, null does, too.
Coefficient = Annotated[NonNegative, _OrOff]
NaturalOrOff = Annotated[Natural, _OrOff]
Switch = Annotated[bool, _OrOff]

Baseline = Literal["group_std", "group_mean", "group_relative", "leave_one_out", "none"]


@dataclass(frozen=True)
class LossInputs:
    """What a loss is made of: reply tokens in order, [T] each.

    log_probs: under the current weights; gradients flow through these only. old: under the weights at the
        start of the step. engine: as the engine drew them. reference: under the starting weights, None where
        no KL penalty needs them. All are natural logs under softmax(logits / temperature).
    entropies: of the current distributions, in nats, without gradient.
    advantages: of the reply a token belongs to. weights: what each token's loss is multiplied by
        before all are summed; over the mini-batch they follow ``aggregation``.
    replies: the number of each token's reply within the mini-batch. lengths: [N], the tokens of each reply
        of the mini-batch, whichever rank has it.
    whole: whether every reply here has all its tokens; not so in a loss that is ``token_by_token``.
    prepared: what ``Algorithm.prepare`` made of the whole mini-batch; None where it makes nothing.
    """

    log_probs: Tensor
    old: Tensor
    engine: Tensor
    reference: Tensor | None
    entropies: Tensor
    advantages: Tensor
    weights: Tensor
    replies: Tensor
    lengths: Tensor
    whole: bool
    prepared: Tensor | None = None

    def reply_sum(self, values: Tensor) -> Tensor:
        """[T]: for each token the sum of ``values`` ([T]) over its reply, with its gradient.

        Raises RuntimeError in a loss that is ``token_by_token``.
        """
        if not self.whole:
            raise RuntimeError("this loss sees whole replies only without the decorator token_by_token")
        sums = values.new_zeros(len(self.lengths)).index_add(0, self.replies, values)
        return sums.gather(0, self.replies)

    def reply_mean(self, values: Tensor) -> Tensor:
        """[T]: for each token the mean of ``values`` ([T]) over its reply; see :meth:`reply_sum`."""
        return self.reply_sum(values) / self.lengths.gather(0, self.replies)


@dataclass(frozen=True)
class Losses:
    """[T] losses, before weights, and [T] values whose means over all tokens become metrics."""

    tokens: Tensor
    metrics: dict[str, Tensor]


def token_by_token(loss: _Loss) -> _Loss:
    """Declare that a loss makes each token's value from that token alone.

    The trainer then calls it for one chunk of logits at a time, which saves computing them twice.
    """
    cast(Any, loss).token_by_token = True
    return loss


class Algorithm(Section, ABC):
    """One policy-gradient algorithm.

    preset: the name of a file in ``algorithm/presets``, or ``module.Class`` of your own.
    advantage: ``group_std`` is (R - mean) / (std + 1e-6) with the unbiased std; ``group_mean`` is R - mean;
        ``group_relative`` is (R - mean) / mean; ``leave_one_out`` is R - mean of the others; ``none`` is R,
        less the penalties of the tokens to come.
    whiten: advantages are scaled to mean 0 and deviation 1 over all tokens of the step.
    aggregation: ``token_mean`` divides by the tokens of the whole mini-batch; ``sequence_mean`` averages
        token means; ``fixed_length`` divides by samples * max_tokens.
    correction: ``tis`` or ``icepop``, for what sets the engine's log-probs apart from the trainer's.
    kl_coef: weight of a penalty on KL(p || p_ref) against the starting weights; 0 loads no reference.
    kl_estimate: how it is estimated, see :func:`whetstone.algorithm.loss.divergence`.
    kl_in: ``loss`` adds it to the loss of each token; ``reward`` takes it from the reward, by the policy at
        the start of the step.
    entropy_coef: weight of the mean entropy of the tokens' distributions, which is to be high.
    drop_zero_variance: groups whose rewards are all equal are dropped, and counted.
    refill_rounds: dropped groups are replaced by fresh prompts for at most this many extra rounds.
    overlong_buffer: DAPO's soft length penalty over the last so many tokens before max_tokens; 0 is off.
    mask_truncated: replies cut at max_tokens carry no loss.
    truncated_in_baseline: whether the rewards of such replies count in the baseline of their group.
    """

    corrects_itself: ClassVar[bool] = False
    """Whether the loss refers to the engine's log-probs, so that a correction would count twice."""
    reads_entropies: ClassVar[bool] = False
    """Whether the loss depends on ``entropies``. Otherwise they are only reported, and may be rounded."""
    cross_entropy: ClassVar[bool] = False
    """Whether the loss is the cross-entropy of replies: the log-probs of ``LossInputs`` are then those of
    softmax(logits), whatever the temperature of sampling, and are not compared with the engine's."""

    preset: str = ""
    advantage: Baseline = "group_std"
    whiten: Switch = False
    aggregation: Aggregation = "sequence_mean"
    correction: Correction = None
    kl_coef: Coefficient = 0.0
    kl_estimate: Divergence = "k3"
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_coef: Coefficient = 0.0
    drop_zero_variance: Switch = True
    refill_rounds: NaturalOrOff = 0
    overlong_buffer: NaturalOrOff = 0
    mask_truncated: Switch = False
    truncated_in_baseline: bool = True

    @abstractmethod
    def loss(self, inputs: LossInputs) -> Losses:
        """The loss of each token, minimised; ``objective`` adds penalties, the trainer sums.

        Called for whole replies, as many as a micro-batch holds, or, when decorated by
        ``token_by_token``, for any part of them.
        """

    def prepare(self, minibatch: LossInputs) -> Tensor | None:
        """What a loss must know of the whole mini-batch: a [T] tensor; ``loss`` gets a part as ``prepared``.

        Called before each update, where a subclass has it, with all tokens, whichever ranks computed them,
        under the current weights, without gradients. It costs one more forward pass.
        """
        return None

    def trained_reward(self, sample: Sample) -> float | None:
        """Return the reward that the advantage of a sample is made of; None: the sample is not trained on."""
        return sample.reward

    def kl_weights(self, inputs: LossInputs) -> Tensor | float:
        """What the divergence of each token is multiplied by in the loss."""
        return self.kl_coef

    @property
    def samples_with_start(self) -> bool:
        """Whether all replies are sampled with the weights of the start of the run."""
        return False

    @property
    def needs_reference(self) -> bool:
        """Whether a penalty needs the log-probs of the starting weights."""
        return self.kl_coef > 0

    @property
    def penalises_reward(self) -> bool:
        """Whether the KL penalty is part of the reward."""
        return self.needs_reference and self.kl_in == "reward"

    @property
    def sees_whole_minibatch(self) -> bool:
        """Whether the loss needs something of all tokens of a mini-batch."""
        return type(self).prepare is not Algorithm.prepare

    @property
    def sees_whole_replies(self) -> bool:
        """Whether the loss needs all tokens of a reply at once."""
        return not getattr(type(self).loss, "token_by_token", False)

    def obstacle(self, max_tokens: int) -> str | None:
        """Why replies of at most ``max_tokens`` tokens cannot be trained on, or None."""
        if self.overlong_buffer <= max_tokens:
            return None
        return (
            f"`algorithm.overlong_buffer` is {self.overlong_buffer} tokens, but replies have at most "
            f"{max_tokens} (`sampling.max_tokens`); DAPO uses a fifth of that, here {max_tokens // 5}"
        )

    @model_validator(mode="after")
    def _agreeing(self) -> Algorithm:
        if self.correction is not None and self.corrects_itself:
            raise ValueError(
                f"the ratio of `{self.preset}` refers to the engine's log-probs already, so a `correction` "
                "would count twice; set it to null"
            )
        if self.penalises_reward and self.mask_truncated:
            raise ValueError(
                "`kl_in: reward` needs log-probs of every reply that shapes the baseline, and "
                "`mask_truncated` leaves some out; set one of them off, or take `kl_in: loss`"
            )
        if not (self.truncated_in_baseline or self.mask_truncated):
            raise ValueError(
                "`truncated_in_baseline: false` is for replies that `mask_truncated` masks; set it to true"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _say_its_name(cls, values: Any) -> Any:
        package, _, file = cls.__module__.rpartition(".")
        name = file if package == PRESETS else f"{cls.__module__}.{cls.__qualname__}"
        return {"preset": name, **values} if isinstance(values, dict) else values


def objective(spec: Algorithm, found: Losses, inputs: LossInputs, entropies: Tensor) -> Losses:
    """What is minimised for each token, [T], and what is reported.

    found: what ``spec.loss`` makes of ``inputs``. entropies: [T], those of ``inputs``, with their gradient
    where ``entropy_coef`` is above 0. The correction is of the policy gradient only, not of the penalties.
    Raises ValueError for a loss that is not one a token.
    """
    losses, metrics = found.tokens, dict(found.metrics)
    if losses.shape != inputs.log_probs.shape:
        raise ValueError(
            f"the loss of algorithm `{spec.preset}` has the shape {tuple(losses.shape)}; "
            f"return one value for each of the {len(inputs.log_probs)} tokens"
        )
    if spec.correction is not None:
        factors, noted = spec.correction.factors(inputs.old, inputs.engine)
        losses, metrics = losses * factors, metrics | noted
    if inputs.reference is not None:
        metrics["kl"] = divergence(inputs.log_probs.detach(), inputs.reference, "k3")
        if not spec.penalises_reward:
            penalty = divergence(inputs.log_probs, inputs.reference, spec.kl_estimate)
            losses = losses + spec.kl_weights(inputs) * penalty
    if spec.entropy_coef > 0:
        losses = losses - spec.entropy_coef * entropies
    return Losses(losses, metrics)
