"""The evaluation section of a recipe: schedule, process, and number of replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, model_validator

from whetstone.core.errors import UserError
from whetstone.core.settings import Count, Natural, NonEmpty, NonNegative, Positive, Sampling, Section, TopP
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.benchmarks import check_benchmark
from whetstone.evaluate.plan import PassK, SamplingPlan, check_k
from whetstone.evaluate.plan_file import PlannedBenchmark, asking_of, sampling_of


def _train_problems(value: object) -> object:
    """Parse a count or ``all``. One message replaces those of pydantic for each member of a union."""
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{value!r} is not a number of problems; give 0 for none, or `all` for every one")


TrainProblems = Annotated[int | Literal["all"], BeforeValidator(_train_problems)]


class EvaluationSection(Section):
    """Evaluation during a run: on the held-out problems and on training problems, both asked as in training,
    and on ``sets``.

    A number of 0 is the only spelling of "none" here; null means "as in the rest of the recipe".

    every: steps between two evaluations; 0 evaluates only before the first step and after the last.
    train_problems: the number of training problems to evaluate, a seeded subset; 0 for none, ``all`` for
        every one. The held-out set is always evaluated whole.
    n: the number of replies to each problem; more give narrower intervals.
    k: the k of pass@k, each at most ``n``.
    temperature: of the sampled replies; 0 is greedy.
    max_tokens: the longest reply in tokens; null for that of training.
    stop: texts that end a reply; null for those of training.
    sets: further problem sets to evaluate. Each is an entry of an evaluation plan (`whetstone eval --plan`):
        a benchmark or a file, with its own n, temperature, lengths, stop strings and prompt. An entry
        inherits what it does not set from this section.

    seed: of the sampled replies, and of the choice of training problems; null for the seed of the run. All
        stages of a run share one seed.
    process: ``inline`` evaluates between two steps; ``separate`` in another process, from the
        checkpoints, during training (``every`` is then a multiple of ``trainer.checkpoint_every``).
        threads: of that process's torch, 0 for one each core; it also gives way to training (niceness 10).
        wait_s: the longest wait for it after training, in seconds.
    """

    every: Natural = 0
    process: Literal["inline", "separate"] = "inline"
    threads: Natural = 1
    wait_s: Positive = 3600.0
    n: Count = 8
    k: PassK = (1, 8)
    temperature: NonNegative = 0.8
    top_p: TopP = 1.0
    max_tokens: Count | None = None
    stop: tuple[NonEmpty, ...] | None = None
    train_problems: TrainProblems = 0
    sets: tuple[PlannedBenchmark, ...] = ()
    seed: int | None = None

    @model_validator(mode="after")
    def _enough(self) -> EvaluationSection:
        check_k(self.n, self.k)
        titles = [entry.title for entry in self.sets]
        for title in titles:
            if titles.count(title) > 1:
                raise ValueError(f"two of `sets` are called `{title}`; give one a `name`")
            if title in ("train", "heldout") or title != Path(title).name or title in (".", ".."):
                raise ValueError(f"a set cannot be called `{title}`; give it another `name`")
        return self

    def due(self, step: int, *, last: bool) -> bool:
        """Return whether the model is evaluated after this step; step 0 is before the first."""
        return last or step == 0 or (self.every > 0 and step % self.every == 0)

    def seed_of(self, run: int) -> int:
        """Return the seed of evaluations; ``run`` is the seed of the run."""
        return run if self.seed is None else self.seed

    def plan(self, training: Sampling, seed: int) -> SamplingPlan:
        """Return the sampling plan of both problem sets. Unset values are those of training, whose ``seed``
        is given."""
        return SamplingPlan(
            n=self.n,
            k=self.k,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=training.max_tokens if self.max_tokens is None else self.max_tokens,
            stop=training.stop if self.stop is None else self.stop,
            seed=self.seed_of(seed),
        )

    def planned(
        self, training: Sampling, environment: EnvironmentSection, seed: int
    ) -> Iterator[_PlannedSet]:
        """Return the prompt settings and sampling plan of each of ``sets``. Raises UserError that names the
        key. Only the examples that a set names are read."""
        usual = self.plan(training, seed)
        for number, entry in enumerate(self.sets):
            where = f"evaluation.sets.{number}"

            def name(key: str, where: str = where) -> str:
                return f"`{where}.{key}`"

            try:
                check_benchmark(entry.benchmark, entry.data)
            except UserError as error:
                raise UserError(f"`{where}`: {error}") from None
            plan = sampling_of(entry, usual, name, usual.model_dump(exclude={"max_tokens", "stop"}))
            yield _PlannedSet(entry, asking_of(entry, environment, "", name), plan)


class _PlannedSet(NamedTuple):
    """Return the prompt settings and the sampling plan of one of ``sets``."""

    entry: PlannedBenchmark
    settings: EnvironmentSection
    plan: SamplingPlan
