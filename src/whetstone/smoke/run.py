"""``whetstone train RECIPE --smoke``: the whole way of a recipe on a CPU in minutes, and proofs of it.

A tiny random model of the same architecture, two steps (of each stage), an evaluation before and after, a
SIGKILL in the second step and a resume; no network. Half of the replies to a prompt are planted, a quarter
right and a quarter wrong, for a random model earns nothing. It proves that the recipe's parts fit and move
the weights; of learning it says nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whetstone.data.builtin import shipped_problems
from whetstone.engine.loading import save_model
from whetstone.engine.miniature import architecture_of, build_miniature
from whetstone.engine.scratch import build_tokenizer
from whetstone.errors import UserError
from whetstone.launch.recipe import Recipe, dump_recipe, stage_recipes
from whetstone.outputs import write_file
from whetstone.smoke.plants import Plants, plants
from whetstone.smoke.proofs import prove
from whetstone.smoke.sets import Build, SmokeSets, smoke_sets
from whetstone.smoke.shrink import PLANTED, joined, shrunken
from whetstone.workflow.shipped import VerifierOptions

_TEXTS = 300
_DEADLINE_S = 600.0


def smoke(recipe: Recipe, folder: Path, build: Build, run: Callable[[Recipe], None]) -> str:
    """Run a recipe small in ``folder``, which is empty, and return what was seen in one line.

    ``build`` is `whetstone data build`, ``run`` trains by a recipe in this process. Raises UserError for what
    the recipe lacks, and where a proof fails: then the folder has the log and the run.
    """
    _check(recipe)
    stages = stage_recipes(recipe)
    model, title, tokenizer = _model(recipe, folder)
    given: Plants = {}
    small: list[Recipe] = []
    for number, stage in enumerate(stages):
        place = folder / f"data-{number + 1}"
        place.mkdir()
        sets = smoke_sets(stage, place, build)
        small.append(shrunken(stage, sets.data, sets.benchmarks, model))
        given |= _plants(small[-1], sets, tokenizer)
    if not given:
        raise UserError(f"{folder}: no reply can be planted: of no problem a right program is known")
    planted = folder / "planted.json"
    write_file(planted, [json.dumps(given).encode()])
    # Of an asynchronous run one role dies, and is started again: all prompts may be sampled by version 0.
    # One that samples whole groups: an evaluation in a process of its own would not be started again.
    kill = {"kill_at": 1 if recipe.flow is None else 0, "kill_n": small[0].trainer.samples_per_prompt}
    engine = {"kind": PLANTED, "options": {"planted": str(planted), **kill}}
    whole = joined(recipe, small, folder / "run", engine)
    if recipe.flow is None:
        _first_life(whole, folder, planted)
    run(whole)
    if not planted.with_suffix(".killed").exists():
        raise UserError(f"{folder}: the smoke run did not show that a role can be killed")
    return f"{recipe.name}: {title}, {len(given)} prompts with planted replies; {prove(whole)}"


def _check(recipe: Recipe) -> None:
    """Raise UserError for a verifier that would never have a batch: of its random replies none has cases."""
    options = recipe.workflow.shipped_options
    waits = recipe.flow is not None and recipe.flow.staleness > 0
    if waits and isinstance(options, VerifierOptions) and options.variant != "astraflow_v2":
        raise UserError(
            "a smoke run plants no test cases, by which alone this verifier is paid, and with a flow it "
            "would wait for its batch for ever: try it with workflow.options.variant=astraflow_v2"
        )


def _model(recipe: Recipe, folder: Path) -> tuple[Path | None, str, Any]:
    """A folder with the tiny model, what it is, and its tokenizer. One from scratch is made by the run."""
    texts = [p.statement + r.source for p in shipped_problems("builtin:train") for r in p.references[:1]]
    if recipe.model.path is None:
        return None, "from scratch", build_tokenizer(texts[:1], 300)  # prompts need no template of it
    architecture = architecture_of(recipe.model.path)
    model, tokenizer = build_miniature(architecture, texts[:_TEXTS], recipe.seed % 2**31)
    save_model(model, tokenizer, folder / "model")
    return folder / "model", f"a tiny {architecture}", tokenizer


def _plants(recipe: Recipe, sets: SmokeSets, tokenizer: Any) -> Plants:
    found = plants(sets.problems, recipe.workflow, tokenizer)
    for entry, settings, _ in recipe.evaluation.planned(recipe.sampling, recipe.workflow, recipe.seed):
        found |= plants(sets.measured[entry.title], settings, tokenizer)
    return found


def _first_life(recipe: Recipe, folder: Path, planted: Path) -> None:
    """Run until the engine kills the process, in the second step."""
    file, log = folder / "recipe.yaml", folder / "first-life.log"
    write_file(file, [dump_recipe(recipe).encode()])
    command = [sys.executable, "-m", "whetstone", "train", str(file)]
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
            raise UserError(f"{log}: the second step was not reached within {_DEADLINE_S:.0f} s") from None
    if done.returncode != -signal.SIGKILL or not planted.with_suffix(".killed").exists():
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise UserError(
            f"the run ended with status {done.returncode} before its second step: {last}; see {log}"
        )
