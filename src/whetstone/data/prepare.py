"""Import sources into one dataset. Every row becomes problems, or a decision with its reason.

Rows are read, converted and written one by one. The split of a problem depends only on its id and the seed,
so it does not change when sources are added.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Struct
from pydantic import BeforeValidator, Field

from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.problem import ENVIRONMENT_NAME, Problem
from whetstone.core.progress import Progress, Work
from whetstone.core.settings import Natural, NonEmpty, Section, checked
from whetstone.data.card import SourceRecord
from whetstone.data.dataset import DatasetWriter
from whetstone.data.decisions import ProblemDecision
from whetstone.data.sources.locate import LocatedFiles, SplitFiles, locate
from whetstone.data.sources.rows import Row
from whetstone.data.sources.source import DatasetSource, import_rows
from whetstone.data.sources.table import source_named

_ROWS_PER_NOTE = 20


class SourceRequest(Struct, frozen=True):
    """A source to import, from ``path``, or from the hub if it is None. Its problems name ``environment``."""

    source: DatasetSource
    path: Path | None = None
    revision: str | None = None
    environment: str = ""


SourceName = Annotated[str, checked(source_named)]
EnvironmentName = Annotated[str, Field(pattern=ENVIRONMENT_NAME)]


class ImportSettings(Section):
    """What is read from the sources, and how it is split."""

    splits: Annotated[
        tuple[NonEmpty, ...],
        Flag(
            "a split of the sources to read; repeatable (default: train where there is one, else all)",
            "NAME",
            repeat=True,
            name="split",
        ),
    ] = ()
    validation: Annotated[
        float, Field(ge=0, lt=1), Flag("share of the problems in the split `validation`", "SHARE")
    ] = 0.02
    seed: Annotated[int, Flag("seed of the choice for validation", "N")] = 0
    max_problems: Annotated[
        Natural, Flag("import only the first N problems of each source; 0 imports all", "N")
    ] = 0
    environment: Annotated[
        EnvironmentName | None,
        Flag(
            "the environment and Python in which programs for these problems run (default: the judge's)",
            "NAME",
        ),
    ] = None


class _SourceFiles(Section):
    """Where a source is read: from the hub, or from local files.

    revision: the branch, tag or commit on the hub; null is the newest.
    path: a local file or folder of the source, instead of the hub.
    environment: the environment and Python in which programs for its problems run; null is the plan's.
    """

    revision: NonEmpty | None = None
    path: NonEmpty | None = None
    environment: EnvironmentName | None = None


def _parse_sources(value: Any) -> Any:
    """Convert ``SOURCE[@REVISION][=PATH]`` arguments of a command line to a mapping. A file has the mapping
    itself."""
    if not isinstance(value, list):
        return value
    files: dict[str, _SourceFiles] = {}
    for word in cast("list[str]", value):
        place, given, path = word.partition("=")
        name, _, revision = place.partition("@")
        if given and not path:
            raise ValueError(f"{word}: give a file or folder after the =, or {name} alone for the hub")
        if revision and path:
            raise ValueError(
                f"{name}: a revision is of the hub, and the files are from {path}; leave one out"
            )
        if name in files:
            raise ValueError(f"source {name} is given twice; several files of it can lie in one folder")
        files[name] = _SourceFiles(revision=revision or None, path=path or None)
    return files


class PreparationPlan(ImportSettings):
    """The sources of a dataset, and how they are imported."""

    sources: Annotated[
        dict[SourceName, _SourceFiles],
        Field(min_length=1),
        BeforeValidator(_parse_sources),
        Flag("a source, its revision on the hub, and its files if here", "SOURCE", positional=True),
    ]

    def requests(self) -> list[SourceRequest]:
        """Return the sources to import."""
        return [
            SourceRequest(
                source_named(name),
                Path(at.path) if at.path else None,
                None if at.path else at.revision,
                at.environment or self.environment or "",
            )
            for name, at in self.sources.items()
        ]


def prepare(
    sources: Sequence[SourceRequest], plan: ImportSettings, out: Path, progress: Progress
) -> list[SourceRecord]:
    """Import all ``sources`` into the dataset folder ``out``, and return their records. The progress of a
    source counts in bytes, with a note of its rows.

    Raises UserError for a source that cannot be read or has another schema, and if ``out`` is not a dataset;
    nothing is written then.
    """
    with DatasetWriter(out) as writer:
        records = [_import(request, plan, writer, progress) for request in sources]
        writer.describe(records)
    return records


def split_of(problem_id: str, validation: float, seed: int) -> str:
    """Return ``validation`` for that share of ids, by a hash of seed and id; else ``train``."""
    # By the id, so that a problem stays in its split when the source grows.
    digest = hashlib.sha256(f"{seed}:{problem_id}".encode(errors="surrogatepass")).digest()
    return "validation" if int.from_bytes(digest[:8], "big") < validation * 2**64 else "train"


def _import(
    request: SourceRequest, plan: ImportSettings, writer: DatasetWriter, progress: Progress
) -> SourceRecord:
    source = request.source
    located = locate(source, request.path, revision=request.revision, splits=plan.splits)
    shown = progress.begin(source.name, sum(part.size for part in located.parts) or None, counted=False)
    with closing(_Import(source, located, writer, shown)) as rows:
        for problem in itertools.islice(rows.problems, plan.max_problems or None):
            if request.environment:
                problem = msgspec.structs.replace(problem, environment=request.environment)
            writer.add(problem, split_of(problem.id, plan.validation, plan.seed))
    if not rows.count:
        first = rows.first_drop
        why = f"; the first: {first.reason}, {first.detail}" if first else ""
        found = f"{rows.rows} rows gave no problem{why}" if rows.rows else "there are no rows in its files"
        raise UserError(f"{source.name}: {found}")
    progress.end(shown)
    return SourceRecord(
        name=source.name,
        title=source.title,
        licence=source.licence,
        hub_id=source.hub_id if located.commit else None,
        commit=located.commit,
        files=[file for part in located.parts for file in part.files],
        rows=rows.rows,
        problems=rows.count,
        first_only=plan.max_problems,
    )


class _Import:
    """The import of a source, part by part. Decisions go to the dataset; rows and problems are counted."""

    def __init__(
        self, source: DatasetSource, located: LocatedFiles, writer: DatasetWriter, shown: Work
    ) -> None:
        self.rows = self.count = 0
        self.first_drop: ProblemDecision | None = None
        self.problems = self._read_all(source, located, writer)
        self._shown = shown
        self._before = self._read = 0

    def close(self) -> None:
        """Stop reading, and downloading, if not all problems are needed."""
        self.problems.close()

    def _read_all(
        self, source: DatasetSource, located: LocatedFiles, writer: DatasetWriter
    ) -> Generator[Problem]:
        seen: set[str] = set()
        for part in located.parts:
            with closing(self._count_rows(part)) as rows:
                joined = source.join(rows, located.folder) if source.join else rows
                for result in import_rows(source, joined, split=part.split, seen=seen):
                    if isinstance(result, ProblemDecision):
                        self.first_drop = self.first_drop or result
                        writer.decide(result)
                    else:
                        self.count += 1
                        yield result
            self._before += part.size

    def _count_rows(self, part: SplitFiles) -> Generator[tuple[str, Row]]:
        for pair in part.read(self._set_size_read):
            self.rows += 1
            # A note for every row would cost more than the import of the row.
            if self.rows % _ROWS_PER_NOTE == 0:
                note = f"{self.rows:,} rows, {self.count:,} problems"
                self._shown.update(self._before + self._read, note)
            yield pair

    def _set_size_read(self, size: int) -> None:
        self._read = size
