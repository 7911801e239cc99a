"""``whetstone train RECIPE --smoke``: run all parts of a recipe on a CPU in minutes, and prove that they ran.

The run uses a tiny random model of the same architecture and no network. It has two steps (in each stage), an
evaluation before and after, a SIGKILL in the second step, and a resume. A random model earns no reward.
Therefore a quarter of the replies to a prompt are replaced by a correct program, and a quarter by a wrong
one. The run proves that the recipe's parts fit together and change the weights. It proves nothing about
learning.

The small version of a recipe keeps every part that the recipe names, and reduces the numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open

from whetstone.core.errors import UserError
from whetstone.core.outputs import write_file
from whetstone.core.settings import read_settings
from whetstone.data.builtin import shipped_problems
from whetstone.engine.loading import save_model
from whetstone.engine.scratch import architecture_of, build_miniature, build_tokenizer
from whetstone.evaluate.results import headline_key
from whetstone.report.metrics import read_metrics
from whetstone.run.recipe import Recipe, Stage, dump_recipe, model_recipes, stage_recipes
from whetstone.testing.smoke.sets import Build, SmokeSets, smoke_sets
from whetstone.testing.smoke.tasks import PlantedReplies, planted_replies

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


# Enough text to train the vocabulary of the tiny tokenizer.
_TEXTS = 300
_DEADLINE_S = 600.0


def run_smoke(recipe: Recipe, folder: Path, build: Build, run: Callable[[Recipe], None]) -> str:
    """Run a small version of a recipe in the empty ``folder``, and return the proofs in one line.

    ``build`` is `whetstone data build`; ``run`` trains a recipe in this process. Raises UserError if the
    recipe lacks something or a proof fails. The folder then contains the log and the run.
    """
    _check(recipe)
    stages = stage_recipes(recipe)
    model, title, tokenizer = _build_model(recipe, folder)
    replies: PlantedReplies = {}
    small: list[Recipe] = []
    for number, stage in enumerate(stages):
        data_folder = folder / f"data-{number + 1}"
        data_folder.mkdir()
        sets = smoke_sets(stage, data_folder, build)
        small.append(shrink_recipe(stage, sets.data, sets.benchmarks, model))
        replies |= _plant_replies(small[-1], sets, tokenizer)
    if not replies:
        raise UserError(
            f"{folder}: no reply can be planted, as no problem has a known correct program; add references"
        )
    planted = folder / "planted.json"
    write_file(planted, [json.dumps(replies).encode()])
    kill = _kill_options(recipe, small[0])
    engine = {"kind": PLANTED, "options": {"planted": str(planted), **kill}}
    small_recipe = join_stages(recipe, small, folder / "run", engine)
    if recipe.flow is None:
        _run_until_killed(small_recipe, folder, planted)
    run(small_recipe)
    if not planted.with_suffix(".killed").exists():
        raise UserError(f"{folder}: the smoke run did not show that a role can be killed")
    return f"{recipe.name}: {title}, {len(replies)} prompts with planted replies; {prove(small_recipe)}"


def _kill_options(recipe: Recipe, small: Recipe) -> dict[str, int]:
    """Return when the engine kills its process: in the second step, or in an asynchronous run at once.

    Such a run kills one role, which is started again; all prompts may be sampled with version 0.
    """
    # The size of a group, because a process that samples fewer is an evaluation, which is not started again.
    kill = {"kill_at": 1, "kill_n": small.trainer.samples_per_prompt}
    if recipe.flow is not None:
        kill["kill_at"] = 0
    elif small.algorithm.samples_with_start:
        # The version remains 0, so the requests of the first step are counted.
        kill |= {"kill_at": 0, "kill_after": small.trainer.prompts_per_step}
    return kill


def _check(recipe: Recipe) -> None:
    """Raise UserError for a run that would wait for a batch for ever, because random replies earn no
    reward."""
    obstacle = recipe.environment.build().smoke_obstacle
    if obstacle and recipe.flow is not None and recipe.flow.staleness > 0:
        raise UserError(f"the smoke run would wait for a batch for ever: {obstacle}")


def _build_model(recipe: Recipe, folder: Path) -> tuple[Path | None, str, Any]:
    """Return the folder of the tiny model, its description, and its tokenizer. The run itself makes a model
    from scratch."""
    texts = [p.statement + r.source for p in shipped_problems("builtin:train") for r in p.references[:1]]
    if recipe.model.path is None:
        return None, "from scratch", build_tokenizer(texts[:1], 300)  # prompts do not use its template
    architecture = architecture_of(recipe.model.path)
    model, tokenizer = build_miniature(architecture, texts[:_TEXTS], recipe.seed % 2**31)
    save_model(model, tokenizer, folder / "model")
    return folder / "model", f"a tiny {architecture}", tokenizer


def _plant_replies(recipe: Recipe, sets: SmokeSets, tokenizer: Any) -> PlantedReplies:
    found = planted_replies(sets.problems, recipe.environment, tokenizer)
    for entry, settings, _ in recipe.evaluation.planned(recipe.sampling, recipe.environment, recipe.seed):
        found |= planted_replies(sets.measured[entry.title], settings, tokenizer)
    return found


def _run_until_killed(recipe: Recipe, folder: Path, planted: Path) -> None:
    """Run until the engine kills the process in the second step."""
    file, log = folder / "recipe.yaml", folder / "first-life.log"
    write_file(file, [dump_recipe(recipe).encode()])
    command = [sys.executable, "-m", "whetstone", "train", str(file)]
    # A part that still uses the network fails, and does not succeed on some machines only.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                timeout=_DEADLINE_S,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"{log}: the second step did not start within {_DEADLINE_S:.0f} s") from None
    if done.returncode != -signal.SIGKILL or not planted.with_suffix(".killed").exists():
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise UserError(
            f"the run ended with status {done.returncode} before its second step: {last}; see {log}"
        )


def prove(recipe: Recipe) -> str:
    """Check the files of the run, and return the proofs as text. Raises UserError, which names the failed
    proof."""
    accepted, judged = 0, False
    # In a synchronous run the other models may earn no reward, so they learn nothing.
    ahead = recipe.flow is not None and recipe.flow.staleness > 0
    others = [*model_recipes(recipe).values()][1:] if ahead else []
    for stage in [*stage_recipes(recipe), *others]:
        folder, steps = stage.run_dir(), stage.trainer.steps
        # Evaluations of an asynchronous run run in a process of their own, with a file of their own.
        separate = folder / "evaluations" / "records.jsonl"
        records = read_metrics(folder / "metrics.jsonl") + (
            read_metrics(separate) if separate.exists() else []
        )
        train = [record for record in records if record["kind"] == "train"]
        _require([r["step"] for r in train] == [*range(1, steps + 1)], folder, "each step was recorded once")
        _require(all(r["loss/updates"] > 0 for r in train), folder, "every step made an update")
        accepted += sum(int(r.get("verdict/accepted", 0)) for r in train)
        judged |= any("verdict/accepted" in r for r in train)
        weights = [_weights_digest(folder / "checkpoints" / f"step-{step}") for step in range(steps + 1)]
        _require(len(set(weights)) == steps + 1, folder, "every step changed the weights")
        if stage not in others:
            _check_evaluations(folder, [r for r in records if r["kind"] == "eval"], stage)
    # An environment that judges no programs accepts none.
    _require(accepted > 0 or not judged, recipe.run_dir(), "a planted program was accepted")
    stages = f" in each of {len(recipe.stages)} stages" if recipe.stages else ""
    killed = (
        "it was killed in step 2 and resumed"
        if recipe.flow is None
        else "a role was killed and started again"
    )
    return (
        f"{recipe.trainer.steps} steps{stages} changed the weights, {accepted} programs were accepted, "
        f"{killed}, and it was evaluated before and after"
    )


def _check_evaluations(folder: Path, records: list[dict[str, Any]], recipe: Recipe) -> None:
    """Check that each set was evaluated before the first step and after the last."""
    sets = [entry.title for entry in recipe.evaluation.sets]
    sets += ["train"] if recipe.evaluation.train_problems else []
    sets += ["heldout"] if recipe.data.heldout is not None else []
    for step in (0, recipe.trainer.steps):
        found = [record for record in records if record["step"] == step]
        present = {key: value for record in found for key, value in record.items()}
        missing = [name for name in sets if headline_key(present, name) is None]
        _require(not missing, folder, f"step {step} was evaluated on {', '.join(missing)}")


def _weights_digest(checkpoint: Path) -> str:
    """Return a digest of the weights alone. The state of the trainer counts steps, so it always differs."""
    digest = hashlib.sha256()
    for file in sorted(checkpoint.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in sorted(tensors.keys()):
                # Converted, because numpy has no bfloat16.
                digest.update(name.encode() + tensors.get_tensor(name).float().numpy().tobytes())
    return digest.hexdigest()


def _require(condition: bool, folder: Path, claim: str) -> None:
    if not condition:
        raise UserError(f"{folder}: the smoke run did not show that {claim}")
