"""The data of a run's page: facts, result, panels and rollouts. `report` and `view` use the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whetstone.evaluate.manifest import flat_settings
from whetstone.report.charts import clock_of
from whetstone.report.panels import partner_panels, run_panels
from whetstone.report.reply_rows import case_rows, error_line
from whetstone.report.rollouts import RolloutRow
from whetstone.report.run_data import RunData, read_run, recipe_section, result_of
from whetstone.report.starts import read_notes, read_starts

# The folder names of second models.
PARTNERS = ("verifier",)
# The most characters of a prompt, reply or program on a page. The Parquet file has the full text.
MAX_TEXT = 20_000


def partners_of(folder: Path) -> dict[str, RunData]:
    """Return the other models that were trained together with the model of a run, by name. Their folders are
    in that of the run."""
    found = [path.parent for path in folder.glob("*/metrics.jsonl") if path.parent.name in PARTNERS]
    return {path.name: read_run(path, max_rollouts=0) for path in sorted(found)}


def run_page(run: RunData, partners: Mapping[str, RunData]) -> dict[str, Any]:
    """Return the data of the page of a run, without its rollouts."""
    return {
        "title": run.folder.resolve().name,
        "facts": run_facts(run),
        "notes": read_notes(run.folder),
        "starts": read_starts(run.folder),
        "recipe": flat_settings(run.recipe),
        "evaluations": result_of(run)["evaluations"],
        "finished": run.finished,
        "clocks": {"": clock_of(run.train)},
        "panels": run_panels(run),
        "partners": [{"name": name, "panels": partner_panels(run)} for name, run in partners.items()],
    }


def rollout_row(row: RolloutRow, inputs: Sequence[str] = ()) -> dict[str, Any]:
    """Return a rollout with its texts. ``inputs``: the inputs of all cases of its problem, if known."""
    rollout = row.rollout
    return {
        "step": rollout.step,
        "row": row.row,
        "group": row.group,
        "problem": rollout.problem_id,
        "prompt": _clip(rollout.prompt),
        "reply": _clip(rollout.reply),
        "dialogue": [(role, _clip(text)) for role, text in rollout.dialogue],
        "program": None if rollout.program is None else _clip(rollout.program),
        "program_length": None if rollout.program is None else len(rollout.program),
        "error_line": error_line(rollout.verdict, rollout.reason),
        "verdict": rollout.word,
        "reason": _clip(rollout.reason),
        "reward": rollout.reward,
        "above": row.above,
        "finish": rollout.finish_reason,
        "tokens": rollout.tokens,
        "versions": [rollout.version_min, rollout.version_max],
        "cases": case_rows(rollout.cases, _clip, inputs),
    }


def rollouts_note(run: RunData) -> str:
    """Return a note about which rollouts of a run the page contains."""
    if run.rollout_steps_read == run.rollout_steps_total and run.rollouts_total == len(run.rollouts):
        return f"All {len(run.rollouts)} replies of {run.rollout_steps_total} steps."
    return (
        f"{len(run.rollouts)} replies from {run.rollout_steps_read} of {run.rollout_steps_total} steps, "
        "evenly spread. --max-rollouts shows more; rollouts/*.parquet has all of them."
    )


def _clip(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n… {len(text) - MAX_TEXT} more characters are in the Parquet file"


def run_facts(run: RunData) -> list[tuple[str, str]]:
    """Return what a run was made of, each fact with its name."""
    trainer, data = run.section("trainer"), run.section("data")
    last = max((record["step"] for record in run.train), default=0)
    size = ""
    if "prompts_per_step" in trainer and "samples_per_prompt" in trainer:
        size = f"{trainer['prompts_per_step']} prompts × {trainer['samples_per_prompt']} replies"
    facts = [
        *recipe_facts(run.recipe).items(),
        ("steps", f"{last} of {trainer['steps']}" if "steps" in trainer else str(last)),
        ("a step", size),
        ("training problems", str(data.get("train") or "")),
        ("held-out problems", str(data.get("heldout") or "")),
        ("recorded", _recording_time(run)),
    ]
    return [(label, value) for label, value in facts if value]


def recipe_facts(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings by which people tell runs apart; missing ones are empty."""
    model, algorithm, trainer = (recipe_section(recipe, name) for name in ("model", "algorithm", "trainer"))
    return {
        "recipe": str(recipe.get("name") or ""),
        "model": _model(model),
        "algorithm": str(algorithm.get("preset") or ""),
        "learning rate": f"{float(trainer['lr']):.3g}" if "lr" in trainer else "",
        "seed": str(recipe.get("seed", "")),
    }


def _model(section: dict[str, Any]) -> str:
    scratch = section.get("scratch")
    if isinstance(scratch, dict):
        return f"from scratch, {scratch.get('layers', '?')} layers of {scratch.get('hidden_size', '?')}"
    return str(section.get("path") or "")


def _recording_time(run: RunData) -> str:
    if not (dates := run.dates()):
        return ""
    start, end = dates
    end_format = "%H:%M" if start.date() == end.date() else "%Y-%m-%d %H:%M"
    return f"{start:%Y-%m-%d %H:%M} – {end:{end_format}}"
