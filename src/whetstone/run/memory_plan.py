"""The device memory of a run, planned from its recipe and the configuration of its model.

``whetstone train RECIPE --dry-run`` prints it, and refuses a recipe that cannot fit its machine. The
arithmetic of the trainer is in ``trainer/memory_plan.py``, that of the engine in ``engine/memory_plan.py``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from whetstone.core.errors import UserError
from whetstone.engine.device import pick_device, resolve_dtype
from whetstone.engine.loading import DTYPES
from whetstone.engine.memory import cache_limit, total_memory
from whetstone.engine.memory_plan import (
    EngineMemory,
    RequestShape,
    embedded_engine_memory,
    server_memory,
)
from whetstone.engine.preview import model_config
from whetstone.engine.scratch import scratch_config
from whetstone.engine.settings import SERVERS, TorchOptions
from whetstone.engine.sources import HubModelUnavailable
from whetstone.evaluate.plan import SamplingPlan
from whetstone.run.auto import needs_embedded
from whetstone.run.device_plan import (
    ENGINE_WEIGHTS,
    GENERATION,
    PHASES,
    DevicePlan,
    MemoryRow,
    PlannedMachine,
    engine_rows,
    merged_rows,
    trainer_rows,
    without_phase,
)
from whetstone.run.dtype import with_recorded_dtype
from whetstone.run.recipe import Recipe, model_recipes, stage_recipes, with_values
from whetstone.trainer.memory_plan import NoMemoryPlan, StepShape, trainer_memory


def planned_machine(recipe: Recipe) -> PlannedMachine:
    """Return the machine in the recipe, or else this one. Raises UserError for a device that is not here."""
    flow, given = recipe.flow, recipe.machine
    on_cpu = recipe.model.device == "cpu"
    if given is None:
        device = pick_device(recipe.model.device)
        size, on_cpu = total_memory(device), device.type == "cpu"
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
    else:
        ranks, size = given.devices, int(given.memory_gb * 1e9)
        if flow is not None and (used := _devices_of(recipe)) > given.devices:
            raise UserError(
                f"`flow.gpus` names {used} devices, and `machine.devices` is {given.devices}; correct one of "
                "them"
            )
    return PlannedMachine(ranks if flow is None else flow.ranks, size, on_cpu)


def planned_dtype(recipe: Recipe) -> Any:
    """Return torch's type of the weights on the machine in the recipe, or else on this one."""
    name = with_recorded_dtype(recipe).model.dtype
    if name == "auto" and recipe.machine is not None and recipe.model.device != "cpu":
        name = "bfloat16"
    return DTYPES[name if name != "auto" else resolve_dtype(name, pick_device(recipe.model.device))]


def memory_errors(recipe: Recipe, log: Callable[[str], None]) -> list[str]:
    """Log the memory plan of each stage of a recipe, and return what does not fit, each with its remedy."""
    errors: list[str] = []
    for number, stage in enumerate(stage_recipes(recipe)):
        where = f"stage `{recipe.stages[number].name}`: " if recipe.stages else ""
        try:
            config = {name: model_configuration(each) for name, each in model_recipes(stage).items()}
            plans = plan_memory(stage, config)
        except (HubModelUnavailable, NoMemoryPlan) as error:
            log(f"not checked: the memory: {error}")
            return []
        except RuntimeError as error:
            log(f"not checked: the memory: torch cannot run this model without weights: {error}")
            return []
        except UserError as error:
            errors.append(f"{where}{error}")
            continue
        for line in (line for plan in plans for line in plan.lines()):
            log(f"{where}{line}")
        if any(plan.excess > 0 for plan in plans):
            errors.append(f"{where}{_refusal(stage, config, plans)}")
    return errors


def model_configuration(recipe: Recipe) -> Any:
    """Return the transformers configuration of a recipe's model. Raises HubModelUnavailable."""
    model = recipe.model
    if model.scratch is not None:
        return scratch_config(model.scratch)
    # A recipe has exactly one of the two.
    assert model.path is not None
    try:
        return model_config(model.path, revision=model.revision)
    except HubModelUnavailable:
        raise HubModelUnavailable(
            f"the configuration of {model.path} is not on this machine, and the hub cannot be reached; "
            f"`hf download {model.path} config.json` gets it where there is a network"
        ) from None


def _refusal(recipe: Recipe, config: Mapping[str, Any], plans: Sequence[DevicePlan]) -> str:
    """Return the message for a recipe that does not fit, with the settings under which it does."""
    worst = max(plans, key=lambda plan: plan.excess)
    phase = max(PHASES, key=worst.total)
    changes: list[str] = []
    best = worst
    for key, value in _remedies(recipe, worst.machine):
        changed = with_values(recipe, _nested(key, value))
        try:
            found = max(plan_memory(changed, config), key=lambda plan: plan.excess)
        except UserError:
            continue
        if found.excess < best.excess:
            recipe, best = changed, found
            changes.append(f"{key}={json.dumps(value)}")
        if best.excess <= 0:
            break
    text = (
        f"memory: {phase} needs {worst.total(phase) / 1e9:.3g} GB on {worst.title}, and "
        f"{worst.machine.usable / 1e9:.3g} of {worst.machine.device_bytes / 1e9:.3g} GB may be used"
    )
    if best.excess <= 0:
        return f"{text}; it fits with {' '.join(changes)} ({best.peak / 1e9:.3g} GB)"
    also = f"; with {' '.join(changes)} it needs {best.peak / 1e9:.3g} GB" if changes else ""
    return (
        f"{text}{also}; use more devices (torchrun's --nproc-per-node or `flow.ranks`, planned with "
        "`machine.devices`), a smaller model, adapters (`trainer.lora`) or shorter replies "
        "(`sampling.max_tokens`)"
    )


def _remedies(recipe: Recipe, machine: PlannedMachine) -> Iterator[tuple[str, Any]]:
    """Yield settings that need less memory and train the same, the cheapest in time first."""
    trainer, engine = recipe.trainer, recipe.engine
    if not trainer.activation_checkpointing:
        yield "trainer.activation_checkpointing", True
    longest = recipe.environment.max_prompt_tokens + recipe.longest_sample
    if trainer.micro_batch_tokens > longest:
        yield "trainer.micro_batch_tokens", longest
    if engine.kind in SERVERS and engine.placement == "apart" and recipe.flow is None:
        yield "engine.placement", "shared"
    if engine.kind == "torch":
        limit = cache_limit(engine.options.get("cache_mb"), machine.device_bytes) >> 20
        yield "engine.options.cache_mb", max(1, limit // 4)
    if not trainer.offload and not machine.on_cpu:
        yield "trainer.offload", True


def _nested(key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _devices_of(recipe: Recipe) -> int:
    assert recipe.flow is not None
    gpus = recipe.flow.gpus
    names = [name for part in (*gpus.trainers, *gpus.replicas, gpus.evaluation) for name in part.split(",")]
    return len({name.strip() for name in names if name.strip()})


def plan_memory(recipe: Recipe, config: Mapping[str, Any]) -> list[DevicePlan]:
    """Return the plan of each kind of device for a recipe without stages.

    config: the transformers configuration of each model of the run, by the name of ``model_recipes``. Raises
    UserError for an engine whose cache cannot hold one reply, and for a model without a plan.
    """
    machine = planned_machine(recipe)
    prompts = recipe.trainer.prompts_per_step
    if recipe.machine is not None and recipe.flow is None and prompts % machine.ranks:
        raise UserError(
            f"`trainer.prompts_per_step` is {prompts}, which the {machine.ranks} ranks of `machine.devices` "
            f"cannot share equally; set it to {-(-prompts // machine.ranks) * machine.ranks}"
        )
    models = [
        _ModelPlan(each, config[name], machine, first=each is recipe)
        for name, each in model_recipes(recipe).items()
    ]
    if recipe.flow is None:
        ranks = f"each of {machine.ranks} devices" if machine.ranks > 1 else "the device"
        rows = [[*model.trainer_rows, *model.local_engine_rows] for model in models]
        return [DevicePlan(f"{ranks} (trainer and engine)", machine, merged_rows(rows))]
    return _flow_plans(recipe, machine, models)


def _flow_plans(recipe: Recipe, machine: PlannedMachine, models: Sequence[_ModelPlan]) -> list[DevicePlan]:
    assert recipe.flow is not None
    gpus, apart = recipe.flow.gpus, recipe.evaluation.process == "separate"
    if not gpus.trainers and not gpus.replicas:
        return [_shared_device(recipe, machine, models)]
    ranks = f"each of {machine.ranks} devices" if machine.ranks > 1 else "the device"
    plans: list[DevicePlan] = []
    for name, model in zip(model_recipes(recipe), models, strict=True):
        title = f"{ranks} of the trainer{'' if len(models) == 1 else f' of {name}'}"
        if model.evaluates and not apart:
            rows = [*model.trainer_rows, *model.engine_rows((GENERATION,), evaluation=True)]
        else:
            rows = without_phase(model.trainer_rows, GENERATION)
        plans.append(DevicePlan(title, machine, merged_rows([rows])))
    sampling = [model.engine_rows((GENERATION,), sampling=True) for model in models]
    plans.append(DevicePlan("a device of a replica", machine, merged_rows(sampling)))
    if apart and gpus.evaluation and models[0].evaluates:
        rows = models[0].engine_rows((GENERATION,), evaluation=True)
        plans.append(DevicePlan("the device of the evaluation", machine, merged_rows([rows])))
    return plans


def _shared_device(recipe: Recipe, machine: PlannedMachine, models: Sequence[_ModelPlan]) -> DevicePlan:
    """Return the plan of the device that all roles of a flow share. Replicas sample while a trainer works."""
    assert recipe.flow is not None
    rows = [model.trainer_rows for model in models]
    rows += [model.engine_rows(PHASES, sampling=True) for model in models] * recipe.flow.replicas
    if models[0].evaluates:
        # A trainer does not train while it evaluates; another process evaluates at any time.
        phases = PHASES if recipe.evaluation.process == "separate" else (GENERATION,)
        rows.append(models[0].engine_rows(phases, evaluation=True))
    return DevicePlan("the device (all roles)", machine, merged_rows(rows))


@dataclass(frozen=True)
class _ModelPlan:
    """The memory of one model of a run."""

    recipe: Recipe
    config: Any
    machine: PlannedMachine
    first: bool

    @property
    def evaluates(self) -> bool:
        """Whether this model is evaluated during the run."""
        evaluation, heldout = self.recipe.evaluation, self.recipe.data.heldout
        return self.first and bool(heldout is not None or evaluation.train_problems or evaluation.sets)

    @cached_property
    def _dtype(self) -> Any:
        return planned_dtype(self.recipe)

    def _prompt_tokens(self, wanted: int, reply_tokens: int) -> int:
        """Return the longest prompt that leaves room for a reply."""
        context = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        limits = [limit for limit in (context, self.recipe.engine.options.get("max_context")) if limit]
        return max(1, min([wanted, *(limit - reply_tokens for limit in limits)]))

    @cached_property
    def trainer_rows(self) -> list[MemoryRow]:
        """The rows of a rank of the trainer."""
        recipe, ranks = self.recipe, self.machine.ranks
        trainer = recipe.trainer
        groups = -(-trainer.prompts_per_step // trainer.minibatches // ranks) or 1
        shape = StepShape(
            prompt_tokens=self._prompt_tokens(recipe.environment.max_prompt_tokens, recipe.longest_sample),
            reply_tokens=recipe.longest_sample,
            groups=groups,
            replies=trainer.samples_per_prompt,
            step_tokens=trainer.prompts_per_step * trainer.samples_per_prompt * recipe.longest_sample,
        )
        memory = trainer_memory(
            self.config,
            self._dtype,
            recipe.algorithm,
            trainer,
            shape,
            ranks=ranks,
            on_cpu=self.machine.on_cpu,
        )
        return trainer_rows(memory, in_use_only=trainer.offload and ranks == 1)

    @property
    def _engine_kind(self) -> str:
        """The engine of the planned machine; ``auto`` takes vLLM on an accelerator if the run can use it."""
        kind = self.recipe.engine.kind
        if kind != "auto":
            return kind
        return "torch" if self.machine.on_cpu or needs_embedded(self.recipe) else "vllm"

    @property
    def local_engine_rows(self) -> list[MemoryRow]:
        """The rows of an engine that samples in turn with the trainer."""
        rows = self.engine_rows((GENERATION,), sampling=True, evaluation=self.evaluates)
        server = self._engine_kind in SERVERS
        if server and self.recipe.engine.placement == "shared":
            return rows
        # The weights of the embedded engine stay while the trainer works; so does all of a server that does
        # not sleep.
        staying = {row.name for row in rows} if server else {ENGINE_WEIGHTS}
        return [
            replace(row, bytes=dict.fromkeys(PHASES, row.bytes[GENERATION])) if row.name in staying else row
            for row in rows
        ]

    def engine_rows(
        self, phases: Sequence[str], *, sampling: bool = False, evaluation: bool = False
    ) -> list[MemoryRow]:
        """The rows of an engine that samples or evaluates in ``phases``."""
        shapes = [*(self._sampled() if sampling else []), *(self._evaluated() if evaluation else [])]
        return engine_rows(self._engine_memory(shapes), phases)

    def _engine_memory(self, shapes: Sequence[RequestShape]) -> EngineMemory:
        kind, given, size = self._engine_kind, self.recipe.engine.options, self.machine.device_bytes
        if kind in SERVERS:
            return server_memory(
                self.config,
                self._dtype,
                max(shapes, key=lambda shape: shape.prompt_tokens + shape.reply_tokens),
                kind=kind,
                arguments=[str(word) for word in given.get("arguments", ())],
                devices=int(given.get("tensor_parallel", 1)),
                device_bytes=size,
            )
        if kind != "torch":
            # Nothing is known of a user's own engine.
            return EngineMemory(0, 0, 0)
        known = {key: value for key, value in given.items() if key in TorchOptions.model_fields}
        options = TorchOptions.model_validate(known)
        return embedded_engine_memory(
            self.config,
            self._dtype,
            shapes,
            max_batch=options.max_batch,
            cache_bytes=cache_limit(options.cache_mb, size),
        )

    def _sampled(self) -> Iterator[RequestShape]:
        recipe, sampling = self.recipe, self.recipe.sampling
        trainer, reply = recipe.trainer, recipe.longest_sample
        count = -(-trainer.prompts_per_step // self.machine.ranks)
        if recipe.flow is not None:
            count = recipe.flow.room_for(trainer.prompts_per_step)
        prompt = self._prompt_tokens(recipe.environment.max_prompt_tokens, reply)
        yield RequestShape(count, trainer.samples_per_prompt, prompt, reply, sampling.truncates)

    def _evaluated(self) -> Iterator[RequestShape]:
        recipe, evaluation = self.recipe, self.recipe.evaluation
        plans: list[tuple[SamplingPlan, int]] = []
        if recipe.data.heldout is not None or evaluation.train_problems:
            own = evaluation.plan(recipe.sampling, recipe.seed)
            plans.append((own, recipe.environment.max_prompt_tokens))
        for each in evaluation.planned(recipe.sampling, recipe.environment, recipe.seed):
            plans.append((each.plan, each.settings.max_prompt_tokens))
        for plan, wanted in plans:
            prompt = self._prompt_tokens(wanted, plan.max_tokens)
            yield RequestShape(TorchOptions().max_batch, plan.n, prompt, plan.max_tokens, plan.top_p < 1)
