"""Make a small version of a recipe: it keeps every part that the recipe names, and reduces the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whetstone.core.settings import read_settings
from whetstone.run.recipe import Recipe, Stage

STEPS = 2
MAX_TOKENS = 160
_PROMPT_TOKENS = 1500
_SECTIONS = ("data", "environment", "sampling", "algorithm", "trainer", "evaluation", "judge")
PLANTED = "whetstone.engine.scripted:scripted_engine"


def shrink_recipe(
    recipe: Recipe, data: dict[str, Any], benchmarks: dict[str, Path], model: Path | None
) -> Recipe:
    """Return a small version of a recipe without stages.

    ``data`` has values for its section, and ``benchmarks`` a problem file for each of its sets by title.
    ``model`` is a folder, or None for a model from scratch.
    """
    values = recipe.model_dump(exclude={"stages"})
    ratio = MAX_TOKENS / recipe.sampling.max_tokens
    # bfloat16 is slow on most CPUs, and a smoke run must not need a GPU.
    values["model"] |= {"dtype": "float32", "device": "cpu", "threads": 1, "revision": None}
    if model is None:
        values["model"]["scratch"] |= {"hidden_size": 48, "layers": 1, "heads": 2, "kv_heads": 2}
        values["model"]["scratch"] |= {"intermediate_size": 96, "max_positions": 2048}
        values["warmup"] = values["warmup"] and values["warmup"] | {"steps": 5, "batch_size": 16}
    else:
        values["model"]["path"] = str(model)
    values["data"] |= data
    values["environment"]["max_prompt_tokens"] = _PROMPT_TOKENS
    values["sampling"]["max_tokens"] = min(MAX_TOKENS, recipe.sampling.max_tokens)
    buffer = recipe.algorithm.overlong_buffer
    values["algorithm"]["overlong_buffer"] = max(1, int(buffer * min(ratio, 1))) if buffer else 0
    values["algorithm"]["refill_rounds"] = min(1, recipe.algorithm.refill_rounds)
    values["trainer"] |= _trainer(recipe)
    values["evaluation"] |= _evaluation(recipe, benchmarks)
    values["judge"] |= {"workers": 1, "environment": "", "url": ""}
    if values["verifier"] is not None:
        values["verifier"] |= _verifier(recipe, values["verifier"], same_model=model is not None)
    if values["flow"] is not None:
        prompts = values["trainer"]["prompts_per_step"]
        values["flow"] |= {"host": "127.0.0.1", "port": 0, "url": "", "log": "", "room": prompts}
        max_replicas = 1 if recipe.verifier else 2  # the second trainer is a process as well
        values["flow"] |= {"shares": 1, "replicas": min(max_replicas, values["flow"]["replicas"]), "gpus": {}}
        values["flow"]["ranks"] = min(2, values["flow"]["ranks"])
        values["flow"]["staleness"] = min(1, values["flow"]["staleness"])  # two steps cannot use more
        values["flow"]["weights"] |= {"host": "127.0.0.1", "port": 0, "address": "", "folder": ""}
    return read_settings(Recipe, values, where="the smoke run")


def _trainer(recipe: Recipe) -> dict[str, Any]:
    trainer = recipe.trainer
    return {
        "steps": STEPS,
        "passes": 0,
        "prompts_per_step": min(4, trainer.prompts_per_step),
        "samples_per_prompt": min(4, trainer.samples_per_prompt),
        "minibatches": min(2, trainer.minibatches, trainer.prompts_per_step),
        "epochs": min(2, trainer.epochs),
        "micro_batch_tokens": 2048,
        "offload": False,
        # All checkpoints are kept: the proof compares the weights of every step.
        "checkpoint_every": 1,
        "keep_checkpoints": STEPS + 1,
    }


def _verifier(recipe: Recipe, partner: dict[str, Any], *, same_model: bool) -> dict[str, Any]:
    """Return the changes of the second model: the same tiny model, and equally short replies."""
    longest = partner["sampling"].get("max_tokens", recipe.sampling.max_tokens)
    small = {"micro_batch_tokens", "minibatches", "epochs", "offload"}
    return {
        "model": {} if same_model else partner["model"],
        "sampling": partner["sampling"] | {"max_tokens": min(MAX_TOKENS, longest)},
        "engine": {},
        "trainer": {key: value for key, value in partner["trainer"].items() if key not in small},
        "max_prompt_tokens": 0,
    }


def _evaluation(recipe: Recipe, benchmarks: dict[str, Path]) -> dict[str, Any]:
    """Return the evaluation: before and after only, with one or two replies to each of a few problems from
    the given files."""
    own = recipe.evaluation
    sets = [
        {
            **entry.model_dump(exclude={"benchmark", "k", "max_prompt_tokens"}, exclude_none=True),
            "benchmark": "problems",
            "data": str(benchmarks[entry.title]),
            "name": entry.title,
            "n": min(2, entry.n or own.n),
            "k": [1],
            "max_tokens": MAX_TOKENS,
            "limit": 2,
        }
        for entry in own.sets
    ]
    return {
        "every": 0,
        "n": min(2, own.n),
        "k": [1],
        "max_tokens": None if own.max_tokens is None else MAX_TOKENS,
        "train_problems": 2 if own.train_problems else 0,
        "sets": sets,
    }


def join_stages(recipe: Recipe, stages: list[Recipe], out: Path, engine: dict[str, Any]) -> Recipe:
    """Return the recipe of the smoke run, with its own folder and engine.

    It is the first of the small ``stages``. If the recipe has stages, it contains all of them as stages.
    """
    values = stages[0].model_dump(exclude={"stages"})
    values |= {"name": f"{recipe.name}-smoke", "out": str(out), "seed": recipe.seed, "engine": engine}
    values["stages"] = [
        Stage(name=stage.name, **{name: small.model_dump()[name] for name in _SECTIONS})
        for stage, small in zip(recipe.stages, stages, strict=False)
    ]
    return read_settings(Recipe, values, where="the smoke run")
