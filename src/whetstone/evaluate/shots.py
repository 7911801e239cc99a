"""Examples for few-shot prompts: from a benchmark's own tasks, LiveCodeBench's files, or any problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem
from whetstone.data.dataset import load_problems
from whetstone.environments.settings import Shot
from whetstone.evaluate.benchmarks import load_benchmark

# The tasks that Austin et al. 2021 show. The test set begins at 11.
MBPP_SHOTS = (2, 3, 4)

_LCB_FILES = ("func.json", "stdin.json")


class _Example(Struct):
    """An entry of LiveCodeBench's ``prompts/few_shot_examples/generation``."""

    question: str
    answer: str
    sample_code: str = ""


def read_shots(path: str) -> tuple[Shot, ...]:
    """Return the examples at ``path``: LiveCodeBench's folder of them, one of its files, or problems with
    references.

    Of the folder, the first example of each kind is used, as there. Problems are a file, a dataset folder or
    the name of a shipped set. Raises UserError for anything else.
    """
    place = Path(path)
    if all((place / name).is_file() for name in _LCB_FILES):
        return tuple(_examples(place / name)[0] for name in _LCB_FILES)
    if place.suffix == ".json" and place.is_file():
        return _examples(place)
    return tuple(shot_of(problem) for problem in load_problems(path))


def own_shots(benchmark: str, data: str | None) -> tuple[Shot, ...]:
    """Return the tasks ``MBPP_SHOTS`` of MBPP itself. Raises UserError for a benchmark without such tasks."""
    base = benchmark.partition(":")[0]
    if base not in {"mbpp", "mbpp-full"}:
        raise UserError(f"the prompt `mbpp-3shot` is for mbpp and mbpp-full, not for `{benchmark}`")
    by_task = {
        problem.meta.get("task_id"): problem for problem in load_benchmark(f"{base}:all", data).problems
    }
    if missing := [task for task in MBPP_SHOTS if task not in by_task]:
        raise UserError(f"{data or base}: has no task {missing[0]}, which `mbpp-3shot` shows")
    return tuple(shot_of(by_task[task]) for task in MBPP_SHOTS)


def shot_of(problem: Problem) -> Shot:
    """Return a problem with its first reference. Raises UserError for one without."""
    source = next((ref.source for ref in problem.references if ref.language == problem.language), None)
    if source is None:
        raise UserError(f"problem {problem.id!r} has no reference, so it is no example")
    starter = problem.starter or ""
    # The prompt already shows the starter, so the answer is only what follows it.
    answer = source.removeprefix(starter) if starter else source
    return Shot(statement=problem.statement, starter=starter, answer=answer.rstrip("\r\n"))


def _examples(file: Path) -> tuple[Shot, ...]:
    try:
        found = msgspec.json.decode(file.read_bytes(), type=list[_Example])
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"{file}: no list of examples with `question` and `answer`: {error}") from None
    if not found:
        raise UserError(f"{file}: contains no examples")
    return tuple(_shot(each) for each in found)


def _shot(example: _Example) -> Shot:
    values: dict[str, Any] = {
        "statement": example.question,
        "starter": example.sample_code,
        "answer": example.answer,
    }
    return Shot(**values)
