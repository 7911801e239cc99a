"""Make tasks of the rows of public sets, with local clones of their repositories.

Such a row names a repository, a commit, a patch and tests, and often an image for containers, which is not
needed. What the tests observe is recorded here, as for tasks that are made of packages.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
from msgspec import Meta, Struct, field

from whetstone.core.flag import Flag
from whetstone.data.sources.packed import unpack
from whetstone.data.sources.rows import local_files, read_rows
from whetstone.data.sources.source import Skip
from whetstone.judge.repository.base import base_name
from whetstone.judge.repository.observations import ExpectedTest
from whetstone.judge.repository.task import RepositoryTask
from whetstone_curation.repositories.making import (
    MOST_TESTS,
    MadeTask,
    Outcome,
    PackageRecord,
    TaskMaker,
    outcome_of,
)
from whetstone_curation.repositories.package_index import Unsuitable
from whetstone_curation.repositories.source_tree import SourceTree, read_local
from whetstone_curation.repositories.statements import ExpectedValues
from whetstone_curation.repositories.task_set import SetPlan


class ImportPlan(SetPlan, frozen=True, kw_only=True):
    """The rows and the clones."""

    rows: Annotated[str, Flag("a file or folder of rows: JSON Lines, JSON, Parquet", "ROWS", positional=True)]
    repositories: Annotated[str, Flag("the folder with clones, such as psf__requests", "FOLDER")]


_ID = r"^[^:\s]+\.py::"
_Test = Annotated[str, Meta(pattern=_ID)]


class ImportedRow(Struct, frozen=True, kw_only=True):
    """The columns of a row that count, by their names in SWE-bench. breaks: the patch makes the mistake, and
    the code without it is right."""

    repo: Annotated[str, Meta(pattern=r"^(?!.*\.\.)[\w.-]+/[\w.-]+$")]
    base_commit: Annotated[str, Meta(pattern="^([0-9a-f]{7,40}|HEAD)$")]
    problem_statement: Annotated[str, Meta(min_length=1)]
    patch: Annotated[str, Meta(min_length=1)]
    failing: Annotated[list[_Test], Meta(min_length=1)] = field(name="FAIL_TO_PASS")
    test_patch: str = ""
    passing: list[str] = field(name="PASS_TO_PASS", default_factory=list[str])
    license_name: str | None = None
    breaks: bool = False


class Format(NamedTuple):
    """How the rows of a public set differ from those of SWE-bench.

    marks: columns by which it is told. inside: where the record lies in a row. fixed: values of columns that
    it does not have.
    """

    marks: frozenset[str]
    inside: tuple[str, ...]
    fixed: dict[str, Any]


FORMATS = {
    "Nemotron": Format(
        frozenset({"responses_create_params"}), ("responses_create_params", "metadata", "instance_dict"), {}
    ),
    "SWE-bench, SWE-rebench": Format(frozenset({"base_commit", "test_patch"}), (), {}),
    # The clone is of the mirror that SWE-smith names. It has the right code.
    "SWE-smith": Format(
        frozenset({"repo", "image_name"}), (), {"base_commit": "HEAD", "test_patch": "", "breaks": True}
    ),
    "other": Format(frozenset(), (), {}),
}
_LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")


def read_imported(path: Path) -> dict[str, ImportedRow | str]:
    """Return the rows of a file or folder by their ids; for one that cannot be used, the reason.

    Raises UserError for a file that cannot be read.
    """
    found: dict[str, ImportedRow | str] = {}
    for place, record in read_rows(local_files(path)):
        kind = next(each for each in FORMATS.values() if each.marks <= record.keys())
        name = place
        try:
            for step in kind.inside:
                record = msgspec.convert(_unpacked(record.get(step), step), dict[str, Any])
            name = str(record.get("instance_id") or place)
            lists = {column: _tests(record, column) for column in _LISTS}
            fields = {column: value for column, value in (record | lists).items() if value is not None}
            row = msgspec.convert(fields | kind.fixed, ImportedRow)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            row = _refusal(str(error), record)
        except Skip as skip:
            row = _refusal(skip.detail, record)
        if name in found:
            name, row = place, f"another row has the id {name}"
        found[name] = row
    return found


def _unpacked(value: Any, column: str) -> Any:
    return unpack(value, column) if isinstance(value, str) and value.strip() else value or None


def _tests(record: Mapping[str, Any], column: str) -> Any:
    """Return the tests in a column, whose name may be in small letters. Logs of test runs leave other texts
    among those that pass, which are left out."""
    found = _unpacked(record.get(column, record.get(column.lower())), column)
    if not isinstance(found, list):
        return found
    names = [n.removeprefix("./") if isinstance(n, str) else n for n in cast("list[Any]", found)]
    return names if column == "FAIL_TO_PASS" else [n for n in names if not _is_other(n)]


def _is_other(name: object) -> bool:
    return isinstance(name, str) and re.match(_ID, name) is None


def _refusal(error: str, record: Mapping[str, Any]) -> str:
    """Return why a record is none that can be used, with the remedy."""
    image = record.get("docker_image") or record.get("image_name")
    if "_TO_PASS[" in error:
        return f"its tests have no ids of pytest: {error}; take rows in Python"
    if image and "base_commit" not in record:
        return f"{error}; its image {image} is not read: take rows with repository, commit and patches"
    return f"{error}; take rows with the columns of SWE-bench"


def make_imported(
    maker: TaskMaker, row: ImportedRow | str, repositories: Path, record: PackageRecord
) -> list[MadeTask]:
    """Return the task of a row. Raises Unsuitable with the reason if there is none."""
    if isinstance(row, str):
        raise Unsuitable(row)
    record.version, record.licence = row.base_commit, row.license_name or ""
    before, after = _trees(row, repositories)
    there = [name for name in row.passing if _module(name) in after.files]
    modules = dict.fromkeys(map(_module, [*row.failing, *there[:MOST_TESTS]]))
    if missing := [path for path in modules if path not in after.files]:
        raise Unsuitable(f"{missing[0]} is not there after its patches")
    tests = maker.record(msgspec.structs.replace(after, tests=[*modules]), record)
    hidden = set(map(_module, row.failing))
    base = {path: data for path, data in before.files.items() if path not in hidden}
    sealed = tests.sealed(tests.modules)
    outcome = _outcome(row, outcome_of(tests.modules, tests.run(base, sealed)))
    task = RepositoryTask(
        id=record.package,
        statement=row.problem_statement,
        base=base_name(base),
        may_change=sorted({path.partition("/")[0] for path in [*before.files, *after.files]}),
        tests=sealed,
        fail_to_pass=outcome.sealed,
        reference=_difference(before, after),
        source=f"{row.repo}@{row.base_commit}",
        meta={"licence": record.licence},
    )
    return [maker.graded(task, before, base, outcome)]


def _module(test: str) -> str:
    return test.partition("::")[0]


def _outcome(row: ImportedRow, seen: Outcome) -> Outcome:
    """Return the tests of a row. A test whose value the statement shows can be forged.

    Sealed tests have other parameters in their ids, so a function stands for its tests. Raises Unsuitable if
    one that should fail does not, or if no sealed test is left.
    """

    def named(tests: list[ExpectedTest], names: Iterable[str]) -> list[ExpectedTest]:
        functions = {name.partition("[")[0] for name in names}
        return [test for test in tests if test.id.partition("[")[0] in functions]

    for name in row.failing:
        if not named([*seen.sealed, *seen.forgeable], [name]):
            passes = named(seen.passing, [name])
            raise Unsuitable(
                f"{name} {'passes before' if passes else 'does not always pass after'} the patch"
            )
    hidden, shown = list[ExpectedTest](), list[ExpectedTest]()
    for test in named(seen.sealed, row.failing):
        (shown if ExpectedValues([test]).occur_in(row.problem_statement) else hidden).append(test)
    if not hidden:
        raise Unsuitable("its failing tests compare no value with a known one that the statement hides")
    forgeable = [*shown, *named(seen.forgeable, row.failing)]
    return Outcome(hidden, forgeable, named(seen.passing, [*row.failing, *row.passing]))


def _trees(row: ImportedRow, repositories: Path) -> tuple[SourceTree, SourceTree]:
    """Return the code of a row with its tests, before and after it is repaired."""
    names = (row.repo.replace("/", "__"), row.repo, row.repo.partition("/")[2])
    places = [repositories / f"{name}{ending}" for name in names for ending in ("", ".git")]
    clone = next((place for place in places if place.is_dir()), None)
    if clone is None:
        raise Unsuitable(f"no clone; git clone https://github.com/{row.repo} {places[0]}")
    with tempfile.TemporaryDirectory(prefix="whetstone-rows-") as folder:
        # The name tells the package: SWE-smith's are OWNER__NAME.COMMIT.
        place = Path(folder) / re.sub(r".*(?:/|__)|\.[0-9a-f]{8}$", "", row.repo)
        _git(Path(folder), "clone", "-q", "--shared", "--no-checkout", "--", str(clone.resolve()), place.name)
        _git(place, "checkout", "-q", "--detach", row.base_commit)
        for patch in filter(None, (row.test_patch, row.patch if row.breaks else "")):
            _apply(place, patch)
        before = read_local(place)
        _apply(place, row.patch, *(["-R"] if row.breaks else []))
        return before, read_local(place)


def _apply(place: Path, patch: str, *options: str) -> None:
    """Apply a patch, if need be without regard to line ends and spaces: sets lose those of its files, or add
    those of Windows. Raises Unsuitable."""
    command = ("apply", "--whitespace=nowarn", *options)
    try:
        _git(place, *command, "-", text=patch)
    except Unsuitable as error:
        try:
            _git(place, *command, "--ignore-whitespace", "-", text=patch.replace("\r\n", "\n"))
        except Unsuitable:
            raise error from None


def _git(place: Path, *arguments: str, text: str = "") -> None:
    """Run git without hooks. Raises Unsuitable."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", *arguments]
    told = f"{text}\n".encode()
    done = subprocess.run(command, cwd=place, input=told, capture_output=True, check=False)
    if done.returncode:
        error = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise Unsuitable(f"git {arguments[0]}: {error[:300]}")


def _difference(before: SourceTree, after: SourceTree) -> dict[str, str | None]:
    """Return the new contents of files by path; None for those that are gone."""
    changed = {path: data for path, data in after.files.items() if before.files.get(path) != data}
    try:
        texts = {path: data.decode() for path, data in changed.items()}
    except UnicodeDecodeError:
        raise Unsuitable("its patch changes a file that is no text") from None
    return {**texts, **dict.fromkeys(path for path in before.files if path not in after.files)}
