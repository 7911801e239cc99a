"""The problems of a smoke run: a few problems of the recipe, or simple tasks in the schema of its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.dataset import load_problems
from whetstone.data.files import write_problems
from whetstone.data.pipeline import Pipeline, load_pipeline
from whetstone.data.sources.rows import read_rows
from whetstone.data.sources.source import import_rows
from whetstone.data.sources.table import source_named
from whetstone.evaluate.benchmarks import BENCHMARKS
from whetstone.evaluate.plan_file import PlannedBenchmark
from whetstone.run.recipe import Recipe
from whetstone.testing.smoke.tasks import known_programs_for, write_rows

Build = Callable[[str, Sequence[str], str], None]
"""Runs ``whetstone data build`` for a pipeline file, with overrides, into a folder."""

_TRAIN, _HELDOUT = 4, 2
_MAX_CHARACTERS = {
    "program": 200,
    "statement": 600,
}  # in characters; longer ones may not fit into the tokens of a smoke run
_HELD_OUT_SHARE = "0.4"


@dataclass(frozen=True)
class SmokeSets:
    """``data`` has values for the recipe's section, and ``problems`` are those to train on and the held-out
    ones. For each set of the evaluation, ``benchmarks`` has the file and ``measured`` the problems."""

    data: dict[str, Any]
    problems: list[Problem]
    benchmarks: dict[str, Path]
    measured: dict[str, list[Problem]]


def smoke_sets(recipe: Recipe, folder: Path, build: Build) -> SmokeSets:
    """Make the problem sets in ``folder``. Raises UserError for a source without rows for smoke runs."""
    data, problems = _sets_from_pipeline(recipe, folder, build) or _sets_from_problems(recipe, folder)
    # The references of the planted problems must be accepted, so a machine with a broken judge fails here.
    data |= {"max_problems": 0, "references": {"sample": _TRAIN, "accepted": 1.0}}
    benchmarks: dict[str, Path] = {}
    measured: dict[str, list[Problem]] = {}
    for entry in recipe.evaluation.sets:
        measured[entry.title] = list(islice(_benchmark(entry, folder), _HELDOUT))
        benchmarks[entry.title] = folder / f"{entry.title}.jsonl"
        write_problems(benchmarks[entry.title], measured[entry.title])
    return SmokeSets(data, problems, benchmarks, measured)


def _sets_from_pipeline(
    recipe: Recipe, folder: Path, build: Build
) -> tuple[dict[str, Any], list[Problem]] | None:
    """Build the recipe's pipeline from the tasks. None if it does not start with a public source."""
    pipeline = load_pipeline(recipe.data.build) if recipe.data.build else None
    if recipe.data.build is None or pipeline is None or pipeline.prepare is None:
        return None
    held_out = recipe.data.heldout is not None and recipe.data.heldout.endswith(":validation")
    out = folder / "set"
    build(recipe.data.build, _overrides(pipeline, folder, held_out), str(out))
    data: dict[str, Any] = {"train": f"{out}:train"}
    problems = load_problems(out)
    if held_out:
        data["heldout"] = f"{out}:validation"
    elif recipe.data.heldout is not None:
        chosen, held_out_problems = _sets_from_problems(recipe, folder)
        data["heldout"] = chosen["heldout"]
        problems += held_out_problems
    return data, problems


def _overrides(pipeline: Pipeline, folder: Path, held_out: bool) -> list[str]:
    assert pipeline.prepare is not None
    overrides = [
        f"prepare.sources.{source}.path={write_rows(source, folder)}" for source in pipeline.prepare.sources
    ]
    return [*overrides, f"prepare.validation={_HELD_OUT_SHARE}"] if held_out else overrides


def _sets_from_problems(recipe: Recipe, folder: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Take a few short problems from the recipe's own sets, or from the set that its pipeline starts with."""
    data: dict[str, Any] = {"build": None}
    pipeline = load_pipeline(recipe.data.build) if recipe.data.build else None
    names = {"train": pipeline.start if pipeline and pipeline.start else recipe.data.train}
    if recipe.data.heldout is not None:
        names["heldout"] = "builtin:heldout" if pipeline else recipe.data.heldout
    taken: list[Problem] = []
    for split, count in (("train", _TRAIN), ("heldout", _HELDOUT)):
        if name := names.get(split):
            known = {problem.id for problem in taken}
            usable = (p for p in load_problems(name) if p.id not in known and _is_short(p, recipe))
            problems = list(islice(usable, count))
            if not problems:
                raise UserError(
                    f"{name}: no short problem has a reference, and a smoke run needs one as a reply"
                )
            data[split] = str(folder / f"{split}.jsonl")
            write_problems(data[split], problems)
            taken += problems
    return data, taken


def _is_short(problem: Problem, recipe: Recipe) -> bool:
    wanted = recipe.data.difficulty
    programs = known_programs_for(problem)
    return (
        bool(programs)
        and max(map(len, programs)) <= _MAX_CHARACTERS["program"]
        and len(problem.statement) <= _MAX_CHARACTERS["statement"]
        and (not wanted or problem.meta.get("difficulty") in wanted)
    )


def _benchmark(entry: PlannedBenchmark, folder: Path) -> Iterable[Problem]:
    source = BENCHMARKS[entry.benchmark.split(":")[0]].source
    if source is None:
        return load_problems(entry.data or "")
    rows = read_rows([write_rows(source, folder)])
    return (item for item in import_rows(source_named(source), rows) if isinstance(item, Problem))
