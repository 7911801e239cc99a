"""A set with one repository task, and episodes of it with scripted models."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.environments.scripted import TOKENIZER, Says, played
from tests.environments.tools_of_tests import call_text
from tests.judge.repository_tasks import BASE, REFERENCE, TESTS, make_task, pytest_environment
from whetstone.core.problem import Problem, Program
from whetstone.core.sample import Sample
from whetstone.core.settings import read_settings
from whetstone.core.verdict import Judgement
from whetstone.data.dataset import load_problems
from whetstone.environments.runner import open_environment
from whetstone.environments.settings import EnvironmentSection
from whetstone.judge.repository.base import pack_base
from whetstone.judge.repository.grader import RepositoryGrader
from whetstone.judge.repository.task import RepositoryTask

CONVERT = "src/roman/convert.py"
SUBMIT = call_text("submit", {})
REPAIR = call_text("edit", {"path": CONVERT, "search": "number > value", "replace": "number >= value"})


class NoJudge:
    """The judge of programs, of which repository tasks only take the isolation tier."""

    minimum_tier = "restricted"

    async def judge(self, problem: Problem, program: Program, **options: Any) -> Judgement:
        raise AssertionError("no program is judged")


@contextmanager
def task_set(tests: str = TESTS, **changes: Any) -> Generator[tuple[Path, Path]]:
    """Yield the folder of a set with the task `roman`, and the folder of its environment of packages."""
    with pytest.MonkeyPatch.context() as patch:
        # A workspace has a /tmp of its own, which hides what is below ours.
        patch.setattr(tempfile, "tempdir", "/var/tmp")
        with pytest_environment() as packages, tempfile.TemporaryDirectory(prefix="whetstone-test-") as name:
            with RepositoryGrader(str(packages)) as grader:
                task = make_task(grader, tests={"tests/test_roman.py": tests})
            reference = {path: data and data.decode() for path, data in REFERENCE.items()}
            task = msgspec.structs.replace(task, id="roman", reference=reference, **changes)
            write_set(Path(name), [task])
            yield Path(name), packages


def write_set(folder: Path, tasks: Sequence[RepositoryTask]) -> None:
    """Write tasks whose base is that of `roman`."""
    (folder / "bases").mkdir(exist_ok=True)
    (folder / "bases" / f"{tasks[0].base}.tar.gz").write_bytes(pack_base(BASE))
    (folder / "tasks.jsonl").write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))


def section(
    packages: Path, *, kind: str = "repository", chat: bool = True, **options: Any
) -> EnvironmentSection:
    """The settings of an environment with these options."""
    values = {"kind": kind, "chat": chat, "options": {"packages": str(packages), "workers": 1, **options}}
    return read_settings(EnvironmentSection, values)


def in_turn_of(replies: Sequence[str]) -> Says:
    """An engine that says one reply after the other, in one conversation."""
    said = iter(replies)
    return Says(lambda text, index: next(said))


def play(
    settings: EnvironmentSection, problem: Problem, *replies: str, engine: Any = None, **more: Any
) -> Sample:
    """The sample of one episode with these replies. The environment is closed at the end."""

    async def run() -> Sample:
        async with open_environment(settings) as environment:
            model = engine or in_turn_of(replies)
            group = await played(environment, model, problem, judge=NoJudge(), tokenizer=TOKENIZER, **more)
            return group.samples[-1]

    return asyncio.run(run())


def results_of(sample: Sample) -> list[str]:
    """What the model read after its replies."""
    return [text for role, text in sample.dialogue if role == "tool"]


def only_problem(folder: Path) -> Problem:
    """The problem of a set with one task."""
    [problem] = load_problems(folder)
    return problem
