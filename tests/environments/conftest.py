"""A set of one repository task, for the episodes of models and agents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments.repositories import only_problem, task_set
from whetstone.core.problem import Problem


@pytest.fixture(scope="module")
def folders() -> Iterator[tuple[Path, Path]]:
    """The folders of the set and of its packages."""
    with task_set() as made:
        yield made


@pytest.fixture
def problem(folders: tuple[Path, Path]) -> Problem:
    """The task as a problem."""
    return only_problem(folders[0])
