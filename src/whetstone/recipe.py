"""One typed configuration of a whole run. Torch-free; an unknown key is an error with a suggestion.

A recipe is a YAML file a person reads in one screen. ``load_recipe`` reads it, applies
``key.path=value`` overrides from the command line, and validates everything before anything runs.
"""

from __future__ import annotations

import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from whetstone.algorithm.spec import AlgorithmSpec, resolve
from whetstone.errors import UserError, did_you_mean

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of a recipe: frozen, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScratchModel(Section):
    """A Llama-shaped model with fresh weights and a byte-level BPE tokenizer of the warm-up texts."""

    hidden_size: Count = 192
    layers: Count = 4
    heads: Count = 6
    kv_heads: Count = 6
    intermediate_size: Count = 512
    vocab_size: Count = 512
    max_positions: Count = 512


class ModelSection(Section):
    """The model to train: a folder, a GGUF file or a hub id in ``path``, or ``scratch``.

    ``dtype`` is what forward, backward and generation compute in; the optimizer always keeps fp32
    master weights. ``device`` ``auto`` takes the GPU when there is one.
    """

    path: str | None = None
    revision: str | None = None
    scratch: ScratchModel | None = None
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    device: str = "auto"
    threads: Natural = 0

    @model_validator(mode="after")
    def _one_source(self) -> ModelSection:
        if (self.path is None) == (self.scratch is None):
            raise ValueError("give exactly one of `path` and `scratch`")
        return self


class WarmupSection(Section):
    """Supervised warm-up on generated micro-tasks, for a model from scratch.

    ``wrong_share`` of the examples carry a deliberately wrong answer, so that RL has something to mend.
    """

    steps: Count = 250
    batch_size: Count = 64
    lr: Annotated[float, Field(gt=0)] = 2e-3
    wrong_share: Share = 0.7


class DataSection(Section):
    """Problem sets: a JSONL or Parquet file, or a set that ships: ``builtin:train``, ``builtin:heldout``,
    ``micro:train``, ``micro:heldout``.

    difficulty: train only on problems whose ``meta.difficulty`` is one of these; empty trains on all.
    max_problems: train on a seeded subset of at most so many; 0 takes all.
    """

    train: str = "builtin:train"
    heldout: str = "builtin:heldout"
    difficulty: tuple[str, ...] = ()
    max_problems: Natural = 0


class WorkflowSection(Section):
    """How a problem becomes a prompt, and a reply a program and a reward.

    chat: use the tokenizer's chat template; otherwise ``prompt`` is the whole text.
    prompt: user text; ``{statement}``, ``{starter}`` and ``{instruction}`` are filled in, where the
        instruction says how the tests will call the program.
    prefix: text that the assistant's reply starts with (given, not sampled); ``{starter}`` is filled in.
    answer_format: ``plain``, or ``think_answer``: <think>…</think> then <answer>…</answer>.
    extraction: where the program stands in the reply; see ``whetstone.judge.extract``.
    reward: ``all`` is 1 for an accepted program and 0 otherwise; ``fraction`` is the share of cases passed.
    """

    chat: bool = True
    system: str | None = None
    prompt: str = "{statement}\n\n{instruction}"
    prefix: str = ""
    answer_format: Literal["plain", "think_answer"] = "plain"
    extraction: Literal["last_fence", "first_fence", "all_fences", "whole"] = "last_fence"
    reward: Literal["all", "fraction"] = "all"
    max_prompt_tokens: Count = 1024


class SamplingSection(Section):
    """How training replies are drawn."""

    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Natural = 0
    max_tokens: Count = 256
    stop: tuple[str, ...] = ()


class AlgorithmSection(Section):
    """A preset by name, and overrides of its fields; see ``whetstone.algorithm.spec``."""

    preset: str = "grpo"
    advantage: Literal["group_std", "group_mean"] | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    dual_clip: float | None = None
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"] | None = None
    kl_coef: float | None = None
    drop_zero_variance: bool | None = None
    refill_rounds: int | None = None
    overlong_buffer: int | None = None
    mask_truncated: bool | None = None

    def spec(self) -> AlgorithmSpec:
        """The resolved algorithm."""
        fields = self.model_dump()
        return resolve(fields.pop("preset"), fields)

    @model_validator(mode="after")
    def _known(self) -> AlgorithmSection:
        try:
            self.spec()
        except UserError as error:
            raise ValueError(str(error)) from None
        return self


class TrainerSection(Section):
    """The optimisation loop. A step takes ``prompts_per_step`` groups of ``samples_per_prompt``,
    splits them into ``minibatches`` optimizer updates, and each of these into micro-batches of at
    most ``micro_batch_tokens`` tokens, which changes nothing but memory."""

    steps: Count = 100
    prompts_per_step: Count = 8
    samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    minibatches: Count = 1
    epochs: Count = 1
    micro_batch_tokens: Count = 4096
    lr: Annotated[float, Field(gt=0)] = 1e-6
    warmup_steps: Natural = 0
    betas: tuple[float, float] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    grad_clip: Annotated[float, Field(gt=0)] = 1.0
    checkpoint_every: Count = 50
    keep_checkpoints: Count = 2


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
    wait_s: Annotated[float, Field(gt=0)] = 3600.0
    n: Count = 8
    k: tuple[Count, ...] = (1, 8)
    temperature: Annotated[float, Field(ge=0)] = 0.8
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    train_problems: Natural = 0

    @model_validator(mode="after")
    def _enough(self) -> EvaluationSection:
        if max(self.k) > self.n:
            raise ValueError(f"pass@{max(self.k)} needs n >= {max(self.k)}, but n is {self.n}")
        return self

    def due(self, step: int, *, last: bool) -> bool:
        """Whether the model is evaluated after this step; step 0 is before the first."""
        return last or step == 0 or (self.every > 0 and step % self.every == 0)


class JudgeSection(Section):
    """The judge's workers (0: one for each core) and the weakest isolation it may run with.

    max_cases: training judges at most so many of a problem's cases, 0 for all: a seeded subset, the same for
        all replies to a prompt, and another one when the problem comes again. Evaluation judges all.
    fork_per_case: false runs the cases of a Python program in one process: several times cheaper, but what
        one case leaves behind the next one finds.
    """

    workers: Natural = 0
    minimum_tier: Literal["root", "userns", "restricted"] = "restricted"
    max_cases: Natural = 0
    fork_per_case: bool = True


class Recipe(Section):
    """A whole run."""

    name: str
    seed: int = 0
    deterministic: bool = False
    out: str = ""
    model: ModelSection
    warmup: WarmupSection | None = None
    data: DataSection = DataSection()
    workflow: WorkflowSection = WorkflowSection()
    sampling: SamplingSection = SamplingSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    trainer: TrainerSection = TrainerSection()
    evaluation: EvaluationSection = EvaluationSection()
    judge: JudgeSection = JudgeSection()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.warmup is not None and self.model.scratch is None:
            raise ValueError("`warmup` is for a model from scratch; `model.path` names a trained one")
        if self.trainer.minibatches > self.trainer.prompts_per_step:
            raise ValueError("`trainer.minibatches` cannot exceed `trainer.prompts_per_step`")
        separate = self.evaluation.process == "separate"
        if separate and self.evaluation.every % self.trainer.checkpoint_every:
            raise ValueError(
                "`evaluation.process: separate` evaluates checkpoints, so `evaluation.every` "
                f"({self.evaluation.every}) must be a multiple of `trainer.checkpoint_every` "
                f"({self.trainer.checkpoint_every})"
            )
        return self

    def run_dir(self) -> Path:
        """Where the run's files go: ``out``, or ``runs/<name>``."""
        return Path(self.out or f"runs/{self.name}")


def load_recipe(path: str | Path, overrides: typing.Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply ``key.path=value`` overrides (values are YAML).

    Raises UserError naming file, key and the closest known key.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; give a recipe, such as recipes/tiny.yaml") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{file}: not YAML: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{file}: a recipe is a mapping of keys; see recipes/tiny.yaml")
    for override in overrides:
        _override(data, override)
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{file}: " + "; ".join(_explain(e) for e in error.errors())) from None


def dump_recipe(recipe: Recipe) -> str:
    """The resolved recipe as YAML, every field included."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UserError(f"override `{override}` is not of the form key.path=value")
    *parents, last = key.split(".")
    node = data
    for parent in parents:
        child = node.setdefault(parent, {})
        if child is None:
            child = node[parent] = {}
        if not isinstance(child, dict):
            raise UserError(f"override `{override}`: `{parent}` is not a section")
        node = child
    try:
        node[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UserError(f"override `{override}`: the value is not YAML: {error}") from None


def _explain(error: Any) -> str:
    location = [str(part) for part in error["loc"]]
    key = ".".join(location)
    if error["type"] == "extra_forbidden":
        model = _section_at(location[:-1])
        known = [".".join([*location[:-1], name]) for name in model.model_fields]
        return f"unknown key `{key}`{did_you_mean(key, known)}"
    message = error["msg"].removeprefix("Value error, ")
    return f"`{key}`: {message}" if key else message


def _section_at(location: list[str]) -> type[BaseModel]:
    """The section class that a key's parents name."""
    model: type[BaseModel] = Recipe
    for part in location:
        annotation = model.model_fields[part].annotation
        options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
        model = next(o for o in options if isinstance(o, type) and issubclass(o, BaseModel))
    return model
