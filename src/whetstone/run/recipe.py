"""The typed configuration of a run. Torch-free; an unknown key is an error with a suggestion.

A recipe is a YAML file that fits on one screen. ``load_recipe`` reads it, applies ``key.path=value``
overrides from the command line, and validates everything before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, field_validator, model_validator

from whetstone.algorithm.named import DEFAULT, AnyAlgorithm, algorithm_named
from whetstone.core.errors import UserError
from whetstone.core.settings import Natural, NonEmpty, Sampling, Section, read_mapping, read_settings
from whetstone.core.shipped_recipes import recipe_file
from whetstone.data.settings import DataSection
from whetstone.engine.settings import AUTO, EngineSection, MachineSection, ModelSection
from whetstone.environments.settings import EnvironmentSection
from whetstone.evaluate.settings import EvaluationSection
from whetstone.judge.settings import JudgeSection
from whetstone.report.settings import ReportSection
from whetstone.rollout.settings import FlowSection
from whetstone.trainer.settings import TrainerSection, WarmupSection


class Stage(Section):
    """The values in which a stage differs from the rest of the recipe, section by section.

    An ``algorithm.preset`` sets its own values; in the other sections, keys that are not named keep their
    values.

    name: the name of the stage, and of its folder in the run's folder.
    data, environment, sampling, algorithm, trainer, evaluation, judge: keys of that section with the values
        that this stage has instead.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    data: dict[str, Any] = Field(default_factory=dict[str, Any])
    environment: dict[str, Any] = Field(default_factory=dict[str, Any])
    sampling: dict[str, Any] = Field(default_factory=dict[str, Any])
    algorithm: dict[str, Any] = Field(default_factory=dict[str, Any])
    trainer: dict[str, Any] = Field(default_factory=dict[str, Any])
    evaluation: dict[str, Any] = Field(default_factory=dict[str, Any])
    judge: dict[str, Any] = Field(default_factory=dict[str, Any])


class _Partner(Section):
    """The values in which the second model differs from the first, section by section.

    model, warmup, sampling, algorithm: replace those of the recipe key by key. Another ``model.path`` or
    ``model.scratch``, and an ``algorithm.preset``, set their own values. trainer: its training settings
    (``lr``, ``minibatches``, …); both models share length and batch size. engine: its keys, likewise.
    max_prompt_tokens: of its prompts; 0: as for the first model.
    """

    model: dict[str, Any] = Field(default_factory=dict[str, Any])
    warmup: dict[str, Any] = Field(default_factory=dict[str, Any])
    sampling: dict[str, Any] = Field(default_factory=dict[str, Any])
    engine: dict[str, Any] = Field(default_factory=dict[str, Any])
    algorithm: dict[str, Any] = Field(default_factory=dict[str, Any])
    trainer: dict[str, Any] = Field(default_factory=dict[str, Any])
    max_prompt_tokens: Natural = 0

    @field_validator("trainer")
    @classmethod
    def _shared(cls, trainer: dict[str, Any]) -> dict[str, Any]:
        if shared := sorted(_SHARED & trainer.keys()):
            raise ValueError(f"both models share `trainer.{shared[0]}`; set it in `trainer` of the recipe")
        return trainer


_SHARED = {
    "steps",
    "passes",
    "prompts_per_step",
    "samples_per_prompt",
    "checkpoint_every",
    "keep_checkpoints",
    "wait_s",
}


# Below this temperature or probability, only the likeliest token is drawn.
_GREEDY = 0.01


class Recipe(Section):
    """A whole run, or with ``stages`` several consecutive runs (``run/stages.py``).

    With ``flow`` its roles are concurrent processes (``run/roles/``).

    name: the name of the run, and of its folder in ``runs``.
    seed: of every random choice; another one gives another run of the same recipe.
    deterministic: true lets torch reject operations that are not deterministic, for metrics that are equal to
        the byte.
    out: the folder of the run; empty is ``runs`` and the name.
    model: the model to train.
    warmup: a supervised warm-up of a model from scratch; null is none.
    data: the problems to train and evaluate on.
    environment: prompts, turns, tools and rewards.
    sampling: how replies are sampled in training.
    engine: what samples them.
    algorithm: advantages, loss and penalties, by the name of a preset.
    trainer: the optimization loop.
    evaluation: evaluations before, during and after training.
    judge: how programs are judged.
    report: other tools that show the metrics of the run.
    verifier: the second model of an environment that trains two; null for one model.
    flow: sampling and training in concurrent processes; null for one process.
    machine: the machine whose memory ``--dry-run`` plans; null for this one.
    stages: runs that follow each other, each with the values in which it differs; empty is one run.
    """

    name: NonEmpty
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    deterministic: bool = False
    out: str = ""
    model: ModelSection
    warmup: WarmupSection | None = None
    data: DataSection = DataSection()
    environment: EnvironmentSection = EnvironmentSection()
    sampling: Sampling = Sampling()
    engine: EngineSection = EngineSection()
    algorithm: AnyAlgorithm = Field(default_factory=lambda: algorithm_named(DEFAULT))
    trainer: TrainerSection = TrainerSection()
    evaluation: EvaluationSection = EvaluationSection()
    judge: JudgeSection = JudgeSection()
    report: ReportSection = ReportSection()
    verifier: _Partner | None = None
    flow: FlowSection | None = None
    machine: MachineSection | None = None
    stages: tuple[Stage, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.warmup is not None and self.model.scratch is None:
            raise ValueError(
                "`warmup` is for a model from scratch, and `model.path` names a trained one; remove it: "
                "`warmup=null`"
            )
        if self.trainer.minibatches > self.trainer.prompts_per_step:
            raise ValueError("`trainer.minibatches` cannot exceed `trainer.prompts_per_step`")
        if fault := self._two_model_error():
            raise ValueError(fault)
        obstacle = self.algorithm.obstacle(self.longest_sample)
        if obstacle is not None:
            raise ValueError(obstacle)
        if self.algorithm.cross_entropy and (fault := self._cross_entropy_error()):
            raise ValueError(fault)
        separate = self.evaluation.process == "separate"
        if separate and self.evaluation.every % self.trainer.checkpoint_every:
            raise ValueError(
                "`evaluation.process: separate` evaluates checkpoints, so `evaluation.every` "
                f"({self.evaluation.every}) must be a multiple of `trainer.checkpoint_every` "
                f"({self.trainer.checkpoint_every})"
            )
        if self.engine.placement == "shared" and self.flow is not None:
            raise ValueError(
                "`engine.placement: shared` is for sampling and training in turn; with `flow` both run "
                "concurrently: set it to `apart`"
            )
        if self.flow is not None:
            prompts = self.trainer.prompts_per_step
            obstacle = self.flow.invalid_reason(prompts, self.algorithm, deterministic=self.deterministic)
            if obstacle is not None:
                raise ValueError(obstacle)
            trainers, models = self.flow.gpus.trainers, len(self.environment.models)
            if trainers and len(trainers) != models:
                raise ValueError(
                    f"`flow.gpus.trainers` has {len(trainers)} entries, and the run trains {models}: give "
                    "one for each model, or none"
                )
            if self.stages:
                raise ValueError("`flow` and `stages` cannot be in one recipe: run the stages one by one")
        names = [stage.name for stage in self.stages]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two of `stages` are called `{twice[0]}`")
        return self

    @model_validator(mode="after")
    def _check_sampling(self) -> Recipe:
        sampling = self.sampling
        keys = {
            "temperature": (sampling.temperature < _GREEDY, 1),
            "top_p": (sampling.top_p < _GREEDY, 1),
            "top_k": (sampling.top_k == 1, 0),
        }
        for key, (greedy, usual) in keys.items():
            if greedy:
                raise ValueError(
                    f"`sampling.{key}` is {getattr(sampling, key):g}: all replies to a prompt would be "
                    f"equal, without a learning signal; set it to {usual}, for example"
                )
        return self

    def _cross_entropy_error(self) -> str:
        """Return what a cross-entropy of replies cannot be combined with; empty if there is nothing."""
        name = f"`algorithm.preset: {self.algorithm.preset}`"
        if self.flow is not None:
            return f"{name} samples and trains one model in turn: remove `flow`"
        if self.engine.placement == "shared" and self.algorithm.samples_with_start:
            return (
                f"`engine.placement: shared` wakes the engine by new weights, and {name} gives it none: "
                "set it to `apart`"
            )
        return ""

    @model_validator(mode="after")
    def _check_routing_replay(self) -> Recipe:
        if self.trainer.routing_replay and self.model.scratch is not None:
            raise ValueError(
                "`trainer.routing_replay` is for a mixture of experts, and `model.scratch` has none; set it "
                "to false"
            )
        return self

    def _two_model_error(self) -> str:
        """Return what is invalid in a run of two models; empty if it is valid."""
        kind, two = self.environment.kind, len(self.environment.models) > 1
        if not two:
            return (
                ""
                if self.verifier is None
                else f"`verifier` is a second model, but `{kind}` uses only one; remove it"
            )
        if self.verifier is None:
            return f"`{kind}` needs a second model: set `verifier`, `{{}}` for one like the first"
        if self.flow is None:
            return "each of two models has a trainer of its own: add `flow: {staleness: 0}` to the recipe"
        if self.verifier.engine.get("kind") == AUTO:
            return "`verifier.engine.kind`: leave it out for the engine of the first model, or name another"
        if self.verifier.engine.get("placement") == "shared":
            return "two models cannot have `engine.placement: shared`: set it to `apart`"
        if self.trainer.keep_checkpoints < 2:
            return "`trainer.keep_checkpoints` must be at least 2: both models resume from the same step"
        return ""

    @property
    def longest_sample(self) -> int:
        """The most tokens that the model generates in one sample."""
        return self.environment.longest_sample(self.sampling.max_tokens)

    def run_dir(self) -> Path:
        """Return the run's folder: ``out``, or ``runs/<name>``."""
        return Path(self.out or f"runs/{self.name}")


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe, a file or the name of a built-in one, and apply ``key.path=value`` overrides (YAML).

    Raises UserError naming file, key and the closest known key.
    """
    data = read_mapping(path, overrides, what="a recipe", example="recipes/tiny.yaml")
    return read_settings(Recipe, data, where=str(recipe_file(path)))


def partner_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe of the second model: a run in a subfolder of the first one's, with the same steps.

    Its ``environment`` is the coder's, except for the length of its own prompts. It is not evaluated. Raises
    UserError that names the key of ``verifier``.
    """
    assert recipe.verifier is not None
    partner = recipe.verifier
    base = recipe.model_dump(exclude_unset=True, exclude={"verifier"})
    given = partner.model_dump(exclude={"max_prompt_tokens"})
    changed = {name: section for name, section in given.items() if section}
    values = {**base, **_merged_sections(base, changed)}
    if {"path", "scratch"} & partner.model.keys():
        own = {
            key: value for key, value in base["model"].items() if key not in ("path", "scratch", "revision")
        }
        values["model"] = {**own, **partner.model}
    most = partner.max_prompt_tokens or recipe.environment.max_prompt_tokens
    values |= {
        "name": f"{recipe.name}-verifier",
        "out": str(recipe.run_dir() / "verifier"),
        "environment": {"chat": recipe.environment.chat, "max_prompt_tokens": most},
        "evaluation": {},
        "data": {**base.get("data", {}), "references": {"sample": 0}},
        "judge": {**base.get("judge", {}), "workers": 1},
    }
    if recipe.flow is not None:
        values["flow"] = {**base["flow"], "gpus": {}}
    made = read_settings(Recipe, values, name=lambda key: f"`verifier.{key}`")
    if made.algorithm.cross_entropy:
        raise UserError(
            f"`verifier.algorithm.preset` is `{made.algorithm.preset}`, which trains one model only; take a "
            f"policy gradient, such as `{DEFAULT}`"
        )
    return made


def model_recipes(recipe: Recipe) -> dict[str, Recipe]:
    """Return the recipe of each model of a run, by name. Raises UserError as ``partner_recipe`` does."""
    first, *others = recipe.environment.models
    return {first: recipe, **{name: partner_recipe(recipe) for name in others}}


def with_values(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """Return the recipe with some values replaced key by key. Raises UserError as reading does."""
    return read_settings(Recipe, _deep_merge(recipe.model_dump(exclude_unset=True), values))


def _deep_merge(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    inside = {key: base.get(key) for key, value in values.items() if isinstance(value, dict)}
    merged = {key: _deep_merge(its or {}, values[key]) for key, its in inside.items()}
    return {**base, **values, **merged}


def stage_recipes(recipe: Recipe) -> list[Recipe]:
    """Return the recipe of each stage; a recipe without stages is its only one.

    Raises UserError that names the stage's key.
    """
    if not recipe.stages:
        return [recipe]
    base = recipe.model_dump(exclude_unset=True, exclude={"stages"})
    made: list[Recipe] = []
    for number, stage in enumerate(recipe.stages):
        values = {**base, **_merged_sections(base, stage.model_dump(exclude_unset=True, exclude={"name"}))}
        values |= {
            "name": f"{recipe.name}-{stage.name}",
            "out": str(recipe.run_dir() / f"{number + 1}-{stage.name}"),
            # Stages may share problems, which should come in another order.
            "seed": recipe.seed + number,
        }
        if number > 0:
            values.pop("warmup", None)
            # With the same seed, the results of two stages are comparable.
            values["evaluation"] = {"seed": recipe.seed, **values.get("evaluation", {})}
        made.append(read_settings(Recipe, values, name=lambda key, number=number: f"`stages.{number}.{key}`"))
    return made


def recipe_parts(recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """Yield the recipe of each stage and of each model, with its name for messages."""
    for number, stage in enumerate(stage_recipes(recipe)):
        yield (f"stage `{recipe.stages[number].name}`: " if recipe.stages else ""), stage
    if recipe.verifier is not None:
        yield "`verifier`: ", partner_recipe(recipe)


def _merged_sections(base: dict[str, Any], stage: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the complete sections that a stage changes."""
    sections: dict[str, Any] = {}
    for name, said in stage.items():
        whole: dict[str, Any] = {} if "preset" in said else dict(base.get(name) or {})
        for one, other in (("steps", "passes"), ("passes", "steps")):
            if one in said:
                whole.pop(other, None)
        sections[name] = whole | said
    return sections


def dump_recipe(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML with every field (without steps, if the length is in passes)."""
    unknown = {"trainer": {"steps"}} if recipe.trainer.passes else None
    content = recipe.model_dump(mode="json", exclude=unknown)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def check_lengths(recipe: Recipe, context: int | None) -> None:
    """Raise UserError for reply lengths that leave no room for a prompt.

    context: the most tokens of prompt and reply together; None for no limit.
    """
    allowed = recipe.engine.options.get("max_context")
    bounds = {
        f"the context of {recipe.model.path or 'the model'}": (context, "take a model with a longer context"),
        "`engine.options.max_context`": (allowed if isinstance(allowed, int) else None, "raise that"),
    }
    for key, tokens in _lengths(recipe):
        for bound, (most, remedy) in bounds.items():
            if most is not None and tokens >= most:
                raise UserError(
                    f"`{key}` is {tokens}, but {bound} is {most}: no token is left for a prompt; lower it, "
                    f"or {remedy}"
                )


def _lengths(recipe: Recipe) -> list[tuple[str, int]]:
    sampling, evaluation = recipe.sampling, recipe.evaluation
    lengths = [("sampling.max_tokens", sampling.max_tokens)]
    if evaluation.max_tokens is not None:
        lengths.append(("evaluation.max_tokens", evaluation.max_tokens))
    planned = evaluation.planned(sampling, recipe.environment, recipe.seed)
    return lengths + [(f"evaluation.sets: {each.entry.title}", each.plan.max_tokens) for each in planned]
