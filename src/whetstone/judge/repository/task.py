"""A repository task: a code base, a statement, what may be changed, and hidden tests that decide.

A set of tasks is a folder: ``tasks.jsonl`` and, for each base, ``bases/NAME.tar.gz``. The rows hold the
expected values of the tests and the reference. They are never shown to a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from whetstone.core.errors import UserError
from whetstone.core.problem import ENVIRONMENT_NAME, Limits
from whetstone.judge.repository.base import is_file_path
from whetstone.judge.repository.observations import ExpectedTest

TASKS_FILE, BASES_FOLDER = "tasks.jsonl", "bases"
# Files that configure Python or pytest. Those of the base count, wherever they are.
_CONFIGURATION = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"}
    | {"pyproject.toml", "setup.py", "sitecustomize.py", "usercustomize.py", "pytest.py"}
    | {"whetstone_observer.py"}
)
_SUFFIXES = (".pth", ".pyc", ".pyo")
_UNCHANGEABLE = _CONFIGURATION | {"__pycache__", ".git", ".pytest_cache", "sitecustomize", "usercustomize"}
_Path = Annotated[str, Meta(pattern=r"^(?!/)(?!.*(^|/)\.\.?(/|$))[^\0]+$", max_length=1000)]


class RepositoryTask(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One task.

    base: the name of the code base, whose archive the set contains. It has no hidden test.
    may_change: files and folders that a change may concern. Changes elsewhere are not graded.
    protected: files and folders inside of these that a change may not concern, such as tests.
    python_path: folders of the base that Python searches for modules, relative to it.
    environment: the environment of packages, which has pytest and not the package under test.
    plugins: the plug-ins of pytest that are loaded, by module. No other one is.
    tests: the sealed source of the test modules by their path.
    fail_to_pass, pass_to_pass: what a right change lets the tests observe. All of them decide.
    sealed: whether forged reports cannot pass all of ``fail_to_pass``, which begins with the tests that need
        values to be computed; otherwise a judgement has no score, unless the caller accepts that.
    limits: of one run of all tests.
    reference: new contents of files by path; None removes a file.
    """

    id: str
    statement: str
    base: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
    may_change: Annotated[list[_Path], Meta(min_length=1)]
    tests: Annotated[dict[_Path, str], Meta(min_length=1)]
    fail_to_pass: Annotated[list[ExpectedTest], Meta(min_length=1)]
    pass_to_pass: list[ExpectedTest] = field(default_factory=list[ExpectedTest])
    sealed: bool = False
    protected: list[_Path] = field(default_factory=list[str])
    python_path: list[str] = field(default_factory=lambda: ["."])
    environment: Annotated[str, Meta(pattern=ENVIRONMENT_NAME)] = "default"
    plugins: list[str] = field(default_factory=list[str])
    limits: Limits = field(default_factory=lambda: Limits(cpu_s=30.0))
    reference: dict[_Path, str | None] = field(default_factory=dict[str, str | None])
    source: str = ""
    meta: dict[str, str] = field(default_factory=dict[str, str])

    def may_be_changed(self, path: str) -> bool:
        """Return whether a change of this path is graded. A text that is no path of a file is not.

        A change of a folder above a test, such as its replacement by a link, is not.
        """
        if not is_file_path(path):
            return False
        parts = path.split("/")
        # A folder with the name of a configuration would remove the file of the base.
        if parts[-1].endswith(_SUFFIXES) or not _UNCHANGEABLE.isdisjoint(parts):
            return False
        closed = (*self.tests, *self.protected)
        if any(is_within(other, path) or is_within(path, other) for other in closed):
            return False
        return any(is_within(path, folder) for folder in self.may_change)

    def reference_change(self) -> dict[str, bytes | None]:
        """Return the reference as a grader takes a change."""
        return {path: None if text is None else text.encode() for path, text in self.reference.items()}


def is_within(path: str, folder: str) -> bool:
    """Return whether a relative path is a folder or below it. ``.`` contains every path."""
    return folder == "." or path == folder or path.startswith(f"{folder}/")


def read_tasks(folder: Path) -> Iterator[RepositoryTask]:
    """Read the tasks of a set. Raises UserError with the line of a malformed task."""
    file = folder / TASKS_FILE
    try:
        lines = file.open("rb")
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror}; a set of repository tasks is a folder with {TASKS_FILE}"
        ) from None
    with lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line, type=RepositoryTask)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise UserError(f"{file}, line {number}: {error}") from None


def base_archive(folder: Path, task: RepositoryTask) -> Path:
    """Return the archive of a task's base in a set."""
    return folder / BASES_FOLDER / f"{task.base}.tar.gz"
