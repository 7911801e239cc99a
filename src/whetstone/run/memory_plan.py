"""The device memory of a run, planned from its recipe and the configuration of its model.

``whetstone train RECIPE --dry-run`` prints it, and refuses a recipe that cannot fit its machine. The bytes of
each model are those of ``run/model_memory.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from whetstone.core.errors import UserError
from whetstone.engine.device import pick_device, resolve_dtype
from whetstone.engine.loading import DTYPES
from whetstone.engine.memory import total_memory
from whetstone.engine.preview import model_config
from whetstone.engine.scratch import scratch_config
from whetstone.engine.sources import HubModelUnavailable
from whetstone.run.auto import with_recorded_choices
from whetstone.run.model_memory import (
    GENERATION,
    KEYS,
    PHASES,
    ModelMemory,
    NoMemoryPlan,
    PlannedMachine,
    Rows,
)
from whetstone.run.recipe import Recipe, model_recipes, stage_recipes


@dataclass(frozen=True)
class DevicePlan:
    """The memory of each device with the same roles. Phases follow each other, so the largest counts."""

    title: str
    machine: PlannedMachine
    rows: Rows

    @property
    def phases(self) -> list[str]:
        """The phases in which this device is used."""
        return [phase for phase in PHASES if self.total(phase)]

    @property
    def excess(self) -> int:
        """The bytes by which the largest phase exceeds what may be used; negative if it fits."""
        return max(map(self.total, PHASES)) - self.machine.usable

    def total(self, phase: str) -> int:
        """Return the bytes of a phase."""
        return sum(row.get(phase, 0) for row in self.rows.values())

    def lines(self) -> Iterator[str]:
        """Yield the plan as a table in GB (10^9 bytes)."""
        phases, width = self.phases, max(map(len, self.rows), default=0) + 2
        yield f"memory of {self.title}, in GB of {self.machine.device_bytes / 1e9:.4g} GB:"
        yield "  " + " " * width + "".join(f"{phase:>12}" for phase in phases) + "  changed by"
        for name, row in self.rows.items():
            values = "".join(f"{row.get(phase, 0) / 1e9:12.2f}" for phase in phases)
            yield f"  {name:{width}}{values}  {KEYS[name]}"
        totals = "".join(f"{self.total(phase) / 1e9:12.2f}" for phase in phases)
        yield f"  {'total':{width}}{totals}  {self.machine.usable / 1e9:.4g} may be used"

    def refusal(self) -> str:
        """Return the message for a device that does not suffice, with the keys of its largest row."""
        phase = max(PHASES, key=self.total)
        largest = max(self.rows, key=lambda name: self.rows[name].get(phase, 0))
        return (
            f"memory: {phase} needs {self.total(phase) / 1e9:.3g} GB on {self.title}, and "
            f"{self.machine.usable / 1e9:.3g} of {self.machine.device_bytes / 1e9:.3g} GB may be used; the "
            f"largest part, {largest}, is changed by {KEYS[largest]}; else use more devices (torchrun's "
            "--nproc-per-node or `flow.ranks`, planned with `machine.devices`), a smaller model, adapters "
            "(`trainer.lora`) or shorter replies (`sampling.max_tokens`)"
        )


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
        worst = max(plans, key=lambda plan: plan.excess)
        if worst.excess > 0:
            errors.append(f"{where}{worst.refusal()}")
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


def planned_dtype(recipe: Recipe) -> torch.dtype:
    """Return torch's type of the weights on the machine in the recipe, or else on this one."""
    name = with_recorded_choices(recipe).model.dtype
    if name == "auto" and recipe.machine is not None and recipe.model.device != "cpu":
        name = "bfloat16"
    return DTYPES[name if name != "auto" else resolve_dtype(name, pick_device(recipe.model.device))]


def _planned_machine(recipe: Recipe) -> PlannedMachine:
    """Return the machine in the recipe, or else this one. Raises UserError for a device that is not here."""
    flow, given = recipe.flow, recipe.machine
    on_cpu = recipe.model.device == "cpu"
    if given is None:
        device = pick_device(recipe.model.device)
        ranks, size = int(os.environ.get("WORLD_SIZE", "1")), total_memory(device)
        on_cpu = device.type == "cpu"
    else:
        ranks, size = given.devices, int(given.memory_gb * 1e9)
    if flow is None:
        prompts = recipe.trainer.prompts_per_step
        if given is not None and prompts % ranks:
            raise UserError(
                f"`trainer.prompts_per_step` is {prompts}, which the {ranks} ranks of `machine.devices` "
                f"cannot share equally; set it to {-(-prompts // ranks) * ranks}"
            )
        return PlannedMachine(ranks, size, on_cpu)
    parts = (*flow.gpus.trainers, *flow.gpus.replicas, flow.gpus.evaluation)
    used = len({name.strip() for part in parts for name in part.split(",") if name.strip()})
    if given is not None and used > given.devices:
        raise UserError(
            f"`flow.gpus` names {used} devices, and `machine.devices` is {given.devices}; correct one of them"
        )
    return PlannedMachine(flow.ranks, size, on_cpu)


def plan_memory(recipe: Recipe, config: Mapping[str, Any]) -> list[DevicePlan]:
    """Return the plan of each kind of device for a recipe without stages.

    config: the transformers configuration of each model of the run, by the name of ``model_recipes``. Raises
    UserError for an engine whose cache cannot hold one reply, and for a model without a plan.
    """
    machine = _planned_machine(recipe)
    models = {
        name: ModelMemory(each, config[name], planned_dtype(each), machine, first=each is recipe)
        for name, each in model_recipes(recipe).items()
    }
    flow, apart = recipe.flow, recipe.evaluation.process == "separate"
    first = next(iter(models.values()))
    ranks = f"each of {machine.ranks} devices" if machine.ranks > 1 else "the device"

    def device(title: str, rows: Iterable[Rows]) -> DevicePlan:
        return DevicePlan(title, machine, _merged(rows))

    if flow is None:
        rows = [
            each for model in models.values() for each in (model.trainer_rows(), model.local_engine_rows())
        ]
        return [device(f"{ranks} (trainer and engine)", rows)]
    if not flow.gpus.trainers and not flow.gpus.replicas:
        # All roles share it. Replicas sample while a trainer works.
        rows = [model.trainer_rows() for model in models.values()]
        rows += [model.engine_rows(PHASES, sampling=True) for model in models.values()] * flow.replicas
        if first.evaluates:
            # A trainer does not train while it evaluates; another process evaluates at any time.
            rows.append(first.engine_rows(PHASES if apart else (GENERATION,), evaluation=True))
        return [device("the device (all roles)", rows)]
    plans: list[DevicePlan] = []
    for name, model in models.items():
        evaluates = model.evaluates and not apart
        rows = [model.trainer_rows(PHASES if evaluates else PHASES[1:])]
        rows += [model.engine_rows((GENERATION,), evaluation=True)] if evaluates else []
        plans.append(device(f"{ranks} of the trainer{f' of {name}' if len(models) > 1 else ''}", rows))
    sampling = [model.engine_rows((GENERATION,), sampling=True) for model in models.values()]
    plans.append(device("a device of a replica", sampling))
    if apart and flow.gpus.evaluation and first.evaluates:
        rows = [first.engine_rows((GENERATION,), evaluation=True)]
        plans.append(device("the device of the evaluation", rows))
    return plans


def _merged(parts: Iterable[Rows]) -> Rows:
    """Return the sums of rows with equal names, without empty ones, in order."""
    found: Rows = {}
    for name, row in (item for part in parts for item in part.items()):
        before = found.get(name, {})
        found[name] = {phase: before.get(phase, 0) + row.get(phase, 0) for phase in PHASES}
    return {name: row for name, row in found.items() if any(row.values())}
