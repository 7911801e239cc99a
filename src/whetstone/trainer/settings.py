"""Settings of the optimization loop, and of the warm-up of a model from scratch. Torch-free."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from whetstone.core.settings import Count, Natural, NonEmpty, NonNegative, Positive, Section, Share

AttentionName = Literal["auto", "packed", "model"]
"""The attention implementation in training; see :class:`whetstone.trainer.forward.Forward`."""

Beta = Annotated[float, Field(ge=0, lt=1)]


def _learning_rate(lr: float) -> float:
    if lr > 1:
        raise ValueError(
            f"{lr:g} would destroy the model: AdamW moves every weight by about this much in each "
            "step; use at "
            "most 1, and usually between 1e-7 and 1e-3"
        )
    return lr


LearningRate = Annotated[Positive, AfterValidator(_learning_rate)]


class LoraSection(Section):
    """Adapters are trained instead of the weights, with less memory for gradients and moments.

    rank: the inner size of an adapter; raise it if the reward stops rising below that of full training.
    alpha: the product of an adapter is multiplied by ``alpha`` / ``rank``.
    targets: names of linear layers in the model's code that get an adapter.
    """

    rank: Count = 32
    alpha: Count = 64
    targets: tuple[NonEmpty, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )


class TrainerSection(Section):
    """The optimization loop. A step takes ``prompts_per_step`` groups of ``samples_per_prompt``, splits them
    into ``minibatches`` optimizer updates, and each of these into micro-batches of at most
    ``micro_batch_tokens`` tokens, which only affects memory.

    attention: ``packed`` computes a prompt once for all its replies, in memory linear in tokens; ``model``
        uses the model's own attention over padded rows of one reply; ``auto`` is ``packed`` if the
        architecture supports it.
    steps: the length of the run; or passes: how often each training problem is used, converted to whole steps
        when the problems are known (prompts that refill dropped groups come in addition).
    prompts_per_step: the prompts, and so the groups, of one step; more give steadier gradients.
    samples_per_prompt: the replies to each prompt, whose rewards are compared with each other; raise it if
        many groups have equal rewards.
    minibatches: optimizer updates of a step; above 1, the later ones train on replies of older weights.
    epochs: how often a step trains on its batch.
    micro_batch_tokens: the most tokens of a forward and backward pass; lower it if memory runs out. It
        changes no result beyond rounding.
    logits_per_chunk: the most logits that exist at once; 0: as the free memory of a CUDA device allows, and
        2^24 on other devices and with ``deterministic``.
    lr: the learning rate of AdamW, usually between 1e-7 and 1e-3; lower it if the KL or the gap to the
        engine grows.
    warmup_steps: steps in which the learning rate rises from 0 to ``lr``.
    lr_decay: after ``warmup_steps`` the rate is ``constant``, or falls (``linear``, ``cosine``) to ``lr_end``
        times ``lr`` at step ``lr_decay_steps`` (0: ``steps``).
    lr_decay_steps: the step at which the decay ends; 0 is the last one.
    lr_end: the learning rate after the decay, as a share of ``lr``.
    betas: the decay rates of AdamW's first and second moment.
    eps: the number that AdamW adds to the denominator.
    weight_decay: AdamW's decay of the weights in each step, times the learning rate; 0 is none.
    grad_clip: the largest norm of a gradient; larger ones are scaled down to it.
    activation_checkpointing: compute each layer's activations again in the backward pass: about a third more
        time, memory for one layer instead of all.
    offload: keep master weights, summed gradients and moments in host memory, where the update is computed;
        with one process also the reference while it is not used. For a model on an accelerator.
    lora: trains adapters instead of the weights; null trains the weights.
    routing_replay: for a mixture of experts: each token of a reply is processed by the experts that processed
        it when the engine generated, so that rounding cannot select others. A token takes layers times
        experts per token bytes on its way to the trainer.
    max_engine_gap: the run ends if the log-probs of tokens that the engine sampled with the trainer's current
        weights differ by more than this on average in a step, in nats; 0: never. Rounding in bf16 causes some
        thousandths.
    checkpoint_every: in steps, in addition to the first and last step.
    keep_checkpoints: how many of the newest to keep.
    wait_s: with several ranks, the longest wait for another rank, such as for its longest reply, or for the
        evaluation on rank 0; in a run with a flow, the longest wait for a batch.
    """

    steps: Count = 100
    passes: Natural = 0
    prompts_per_step: Count = 8
    samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    minibatches: Count = 1
    epochs: Count = 1
    micro_batch_tokens: Count = 4096
    attention: AttentionName = "auto"
    logits_per_chunk: Natural = 0
    lr: LearningRate = 1e-6
    warmup_steps: Natural = 0
    lr_decay: Literal["constant", "linear", "cosine"] = "constant"
    lr_decay_steps: Natural = 0
    lr_end: Share = 0.0
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    grad_clip: Positive = 1.0
    activation_checkpointing: bool = False
    offload: bool = False
    lora: LoraSection | None = None
    routing_replay: bool = False
    max_engine_gap: NonNegative = 0.1
    wait_s: Positive = 3600.0
    checkpoint_every: Count = 50
    keep_checkpoints: Count = 2

    @model_validator(mode="after")
    def _check_length(self) -> TrainerSection:
        if self.passes and "steps" in self.model_fields_set:
            raise ValueError("`steps` and `passes` both say how long the run is; give one of them")
        return self


class WarmupSection(Section):
    """Supervised warm-up of a model from scratch.

    writes: what the model learns to write: ``programs`` for generated micro-tasks, or test ``cases`` for
        them, as a verifier does; or the replies in ``demonstrations`` of the training problems, which the
        environment gives.
    steps: the number of optimizer steps.
    batch_size: replies per step.
    lr: the learning rate of AdamW.
    wrong_share: the share of micro-tasks with a deliberately wrong answer, so that RL can improve the model;
        null is 0.7. Demonstrations have their own wrong answers.
    """

    writes: Literal["programs", "cases", "demonstrations"] = "programs"

    steps: Count = 250
    batch_size: Count = 64
    lr: LearningRate = 2e-3
    wrong_share: Share | None = None

    @model_validator(mode="after")
    def _check_wrong_share(self) -> WarmupSection:
        if self.writes == "demonstrations" and self.wrong_share is not None:
            raise ValueError(
                "`wrong_share` is for micro-tasks; the environment makes the wrong answers of its "
                "demonstrations: remove it, or on the command line set warmup.wrong_share=null"
            )
        return self
