"""The tasks of a set of repositories as problems, for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.problem import NoTests, Problem
from whetstone.judge.repository.task import TASKS_FILE, read_tasks

FOLDER = "repository"
"""The key of ``Problem.meta`` with the folder of the set."""
SPLIT = "split"
"""The key of ``RepositoryTask.meta`` with the split; ``train`` without it."""


def repository_problems(name: str, splits: tuple[str, ...]) -> Iterator[tuple[str, Problem]] | None:
    """Return the split and the problem of each task of a set; None if ``name`` is no set of tasks.

    A set is a folder with tasks, or ``FOLDER:SPLIT``. A problem has the id and the statement of its task, and
    the folder: the environment reads the rest there. Raises UserError for an unknown split.
    """
    folder, split = Path(name), ""
    if not (folder / TASKS_FILE).is_file():
        path, _, split = name.rpartition(":")
        folder = Path(path)
        if not path or not (folder / TASKS_FILE).is_file():
            return None
        if split not in splits:
            raise UserError(f"{folder}: no split `{split}`{did_you_mean(split, splits)}")
    found = ((task.meta.get(SPLIT, splits[0]), task) for task in read_tasks(folder))
    return (
        (own, Problem(task.id, task.statement, NoTests(), source=task.source, meta={FOLDER: str(folder)}))
        for own, task in found
        if split in ("", own)
    )
