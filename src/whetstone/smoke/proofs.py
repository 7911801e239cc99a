"""What a smoke run has to show once it has ended."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from safetensors import safe_open

from whetstone.errors import UserError
from whetstone.launch.recipe import Recipe, recipes_of, stage_recipes
from whetstone.report.metrics import Record, read_metrics
from whetstone.workflow.shipped import VERIFIER


def prove(recipe: Recipe) -> str:
    """The proofs in words. Raises UserError that names the one that fails."""
    accepted = 0
    # A verifier that is paid for its cases alone has none that are right here, and learns nothing.
    second = [each for name, each in recipes_of(recipe).items() if name == VERIFIER and recipe.flow]
    for stage in [*stage_recipes(recipe), *second]:
        folder, steps = stage.run_dir(), stage.trainer.steps
        records = _records(folder)
        train = [record for record in records if record["kind"] == "train"]
        _expect([r["step"] for r in train] == [*range(1, steps + 1)], folder, "each step is recorded once")
        _expect(all(r["loss/updates"] > 0 for r in train), folder, "every step made an update")
        accepted += sum(int(r.get("verdict/accepted", 0)) for r in train)
        weights = [_digest(folder / "checkpoints" / f"step-{step}") for step in range(steps + 1)]
        _expect(len(set(weights)) == steps + 1, folder, "every step changed the weights")
        if stage not in second:
            _evaluated(folder, [r for r in records if r["kind"] == "eval"], stage)
    _expect(accepted > 0, recipe.run_dir(), "a planted program was accepted")
    stages = f" in each of {len(recipe.stages)} stages" if recipe.stages else ""
    killed = "killed in step 2 and resumed" if recipe.flow is None else "a role killed and started again"
    return (
        f"{recipe.trainer.steps} steps{stages} changed the weights, {accepted} programs accepted, {killed}, "
        "evaluated before and after"
    )


def _records(folder: Path) -> list[Record]:
    beside = folder / "evaluations" / "records.jsonl"
    return read_metrics(folder / "metrics.jsonl") + (read_metrics(beside) if beside.exists() else [])


def _evaluated(folder: Path, records: list[dict[str, Any]], recipe: Recipe) -> None:
    """Each set was evaluated before the first step and after the last."""
    sets = [entry.title for entry in recipe.evaluation.sets]
    sets += ["train"] if recipe.evaluation.train_problems else []
    sets += ["heldout"] if recipe.data.heldout is not None else []
    for step in (0, recipe.trainer.steps):
        there = {key for record in records if record["step"] == step for key in record}
        missing = [name for name in sets if f"eval/{name}/pass@1" not in there]
        _expect(not missing, folder, f"an evaluation of step {step} on {', '.join(missing)}")


def _digest(checkpoint: Path) -> str:
    """Of the model's weights alone: the trainer's state beside them counts steps, so it always differs."""
    digest = hashlib.sha256()
    for file in sorted(checkpoint.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in sorted(tensors.keys()):
                digest.update(name.encode() + tensors.get_tensor(name).float().numpy().tobytes())
    return digest.hexdigest()


def _expect(held: bool, folder: Path, what: str) -> None:
    if not held:
        raise UserError(f"{folder}: the smoke run did not show that {what}")
