"""The optimisation loop, and the warm-up of a model from scratch. Torch-free."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from whetstone.settings import Count, Natural, NonEmpty, NonNegative, Positive, Section, Share

AttentionName = Literal["auto", "packed", "model"]
"""How the layers attend in training; see :class:`whetstone.trainer.forward.Forward`."""

Beta = Annotated[float, Field(ge=0, lt=1)]


def _learning_rate(lr: float) -> float:
    if lr > 1:
        raise ValueError(
            f"{lr:g} would destroy the model: AdamW moves every weight by about so much in each step; give 1 "
            "at most, and usually between 1e-7 and 1e-3"
        )
    return lr


LearningRate = Annotated[Positive, AfterValidator(_learning_rate)]


class LoraSection(Section):
    """Adapters are trained in place of the weights: ``targets`` are names of linear layers, as the model's
    code calls them. An adapter's product is multiplied by ``alpha`` / ``rank``."""

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
    """The optimisation loop. A step takes ``prompts_per_step`` groups of ``samples_per_prompt``,
    splits them into ``minibatches`` optimizer updates, and each of these into micro-batches of at
    most ``micro_batch_tokens`` tokens, which changes nothing but memory.

    attention: ``packed`` computes a prompt once for all its replies, in memory that grows with tokens;
        ``model`` is the model's own attention over padded rows of one reply; ``auto`` is the first where the
        architecture can take it.
    steps: the length of the run; or passes: how often each training problem is asked, which becomes whole
        steps when the problems are there (prompts that refill dropped groups come on top).
    lr_decay: after ``warmup_steps`` the rate is ``constant``, or falls (``linear``, ``cosine``) to ``lr_end``
        times ``lr`` at step ``lr_decay_steps`` (0: ``steps``).
    spike_factor: an update whose gradient norm exceeds the median of the last 32 by this factor is left out,
        and counted; 0 leaves out none. One that is not finite is always left out.
    activation_checkpointing: each layer's activations are computed again in the backward pass: about a third
        more time, memory for one layer in place of all.
    offload: masters, summed gradients and moments lie in the host's memory, where the update is computed, and
        of one process the reference, while it is not asked. For a model on an accelerator.
    max_engine_gap: the run ends when the log-probs of tokens that the engine drew with the trainer's very
        weights are off by more than this, in nats, in the mean of a step; 0: never. Rounding in bf16 makes
        some thousandths.
    checkpoint_every: in steps; besides those after the last step and before the first. async_checkpoints:
        write them while the next steps are made, from a copy in the host's memory; the next waits for it.
    keep_checkpoints: how many of the newest stay. keep_best: besides, the one with the highest value of an
        evaluation, such as `heldout/pass@1`.
    wait_s: of several ranks, how long one waits for the others at most, such as for the longest reply of
        theirs, or for the evaluation, which rank 0 makes; of a run with a flow, for one batch.
    """

    steps: Count = 100
    passes: Natural = 0
    prompts_per_step: Count = 8
    samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    minibatches: Count = 1
    epochs: Count = 1
    micro_batch_tokens: Count = 4096
    attention: AttentionName = "auto"
    lr: LearningRate = 1e-6
    warmup_steps: Natural = 0
    lr_decay: Literal["constant", "linear", "cosine"] = "constant"
    lr_decay_steps: Natural = 0
    lr_end: Share = 0.0
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    grad_clip: Positive = 1.0
    spike_factor: NonNegative = 0.0
    activation_checkpointing: bool = False
    offload: bool = False
    lora: LoraSection | None = None
    max_engine_gap: NonNegative = 0.1
    wait_s: Positive = 3600.0
    checkpoint_every: Count = 50
    async_checkpoints: bool = False
    keep_checkpoints: Count = 2
    keep_best: NonEmpty | None = None

    @model_validator(mode="after")
    def _one_length(self) -> TrainerSection:
        if self.passes and "steps" in self.model_fields_set:
            raise ValueError("`steps` and `passes` both say how long the run is; give one of them")
        return self


class WarmupSection(Section):
    """Supervised warm-up on generated micro-tasks, for a model from scratch.

    ``wrong_share`` of the examples carry a deliberately wrong answer, so that RL has something to mend.
    writes: what the model learns to write, ``programs``, or test ``cases`` for them, as a verifier does.
    """

    writes: Literal["programs", "cases"] = "programs"

    steps: Count = 250
    batch_size: Count = 64
    lr: LearningRate = 2e-3
    wrong_share: Share = 0.7
