"""When a run is evaluated, where, and by how many replies."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from whetstone.evaluate.plan import PassK, Plan, check_k
from whetstone.settings import Count, Natural, NonNegative, Positive, Sampling, Section, TopP


class EvaluationSection(Section):
    """Evaluation during a run, on both problem sets, with the prompt, length and stops of training.

    every: in steps; 0 evaluates only before and after. train_problems: how many training problems to
    take, a seeded subset, 0 for all; the held-out set is always whole. n, k: replies to each problem,
    and the k of pass@k.

    process: ``inline`` evaluates between two steps; ``separate`` in a process of its own, from the
        checkpoints, while training goes on (``every`` is then a multiple of ``trainer.checkpoint_every``).
        threads: of that process's torch, 0 for one each core; it also gives way to training (niceness 10).
        wait_s: how long it is waited for when training has ended.
    """

    every: Natural = 0
    process: Literal["inline", "separate"] = "inline"
    threads: Natural = 1
    wait_s: Positive = 3600.0
    n: Count = 8
    k: PassK = (1, 8)
    temperature: NonNegative = 0.8
    top_p: TopP = 1.0
    train_problems: Natural = 0

    @model_validator(mode="after")
    def _enough(self) -> EvaluationSection:
        check_k(self.n, self.k)
        return self

    def due(self, step: int, *, last: bool) -> bool:
        """Whether the model is evaluated after this step; step 0 is before the first."""
        return last or step == 0 or (self.every > 0 and step % self.every == 0)

    def plan(self, training: Sampling, seed: int) -> Plan:
        """The sampling plan: n, k, temperature and top_p as said here, length and stops as in training."""
        return Plan(
            n=self.n,
            k=self.k,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=training.max_tokens,
            stop=training.stop,
            seed=seed,
        )
