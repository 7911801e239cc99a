"""Import sources into one dataset. Every row becomes problems, or a decision with its reason.

Each source is imported into a work folder next to the dataset. When all are finished, they are joined. A
killed run resumes with the first unfinished source, and its result has the same bytes. The split of a problem
depends only on its id and the seed, so it does not change when sources are added.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from msgspec import Struct
from pydantic import BeforeValidator, Field

from whetstone import __version__
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.core.outputs import GOES_ON, work_folder, write_file
from whetstone.core.problem import Problem
from whetstone.core.progress import Progress, Work
from whetstone.core.settings import Natural, NonEmpty, Section, checked
from whetstone.data.card import SourceRecord
from whetstone.data.dataset import DatasetWriter, check_destination
from whetstone.data.decisions import DecisionLog, ProblemDecision, read_decisions
from whetstone.data.files import read_problems, write_problems
from whetstone.data.sources.locate import LocatedFiles, SplitFiles, locate
from whetstone.data.sources.rows import Row
from whetstone.data.sources.source import DatasetSource, import_rows
from whetstone.data.sources.table import source_named

_ROWS_PER_NOTE = 20


class SourceRequest(Struct, frozen=True):
    """A source to import, from ``path``, or from the hub if it is None."""

    source: DatasetSource
    path: Path | None = None
    revision: str | None = None


SourceName = Annotated[str, checked(source_named)]


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


class _SourceFiles(Section):
    """Where a source is read: at a ``revision`` of the hub, or from local files at ``path``."""

    revision: NonEmpty | None = None
    path: NonEmpty | None = None


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
        Flag(
            "a source, its revision on the hub, and its files if here", "SOURCE[@REV][=PATH]", positional=True
        ),
    ]

    def requests(self) -> list[SourceRequest]:
        """Return the sources to import."""
        return [
            SourceRequest(source_named(name), Path(at.path))
            if at.path
            else SourceRequest(source_named(name), revision=at.revision)
            for name, at in self.sources.items()
        ]


class _Finished(Struct, frozen=True):
    """A finished import in the work folder: a digest of its request, and its record."""

    request_digest: str
    record: SourceRecord


def prepare(
    sources: Sequence[SourceRequest], plan: ImportSettings, out: Path, progress: Progress
) -> list[SourceRecord]:
    """Import all ``sources`` into the dataset folder ``out``, and return their records. The progress of a
    source counts in bytes, with a note of its rows.

    Raises UserError for a source that cannot be read or has another schema, and if ``out`` is not a dataset.
    Sources that were imported before the error are kept for the next run.
    """
    target = check_destination(out)
    with _work_folder(target) as work:
        records = [_import(request, plan, work, progress) for request in sources]
        progress.begin(f"writing {sum(record.problems for record in records):,} problems", counted=False)
        with DatasetWriter(target) as writer:
            writer.describe(records)
            for record in records:
                for decision in read_decisions(_file(work, record.name, "decisions.jsonl")):
                    writer.decide(decision)
                for problem in read_problems(_file(work, record.name, "parquet")):
                    writer.add(problem, split_of(problem.id, plan.validation, plan.seed))
        shutil.rmtree(work)
    return records


def split_of(problem_id: str, validation: float, seed: int) -> str:
    """Return ``validation`` for that share of ids, by a hash of seed and id; else ``train``."""
    # By the id, so that a problem stays in its split when the source grows.
    digest = hashlib.sha256(f"{seed}:{problem_id}".encode(errors="surrogatepass")).digest()
    return "validation" if int.from_bytes(digest[:8], "big") < validation * 2**64 else "train"


def _import(request: SourceRequest, plan: ImportSettings, work: Path, progress: Progress) -> SourceRecord:
    name = request.source.name
    finished_file = _file(work, name, "json")
    digest = _request_digest(request, plan)
    if (finished := _read_finished(finished_file)) is not None and finished.request_digest == digest:
        return finished.record
    # The note is removed first: without it, a killed run leaves no files that count as finished.
    finished_file.unlink(missing_ok=True)
    decisions = _file(work, name, "decisions.jsonl")
    decisions.unlink(missing_ok=True)
    located = locate(request.source, request.path, revision=request.revision, splits=plan.splits)
    shown = progress.begin(name, sum(part.size for part in located.parts) or None, counted=False)
    with (
        DecisionLog(decisions, way_out=GOES_ON) as log,
        closing(_Import(request.source, located, log, shown)) as rows,
    ):
        # Problems are written while the source is read, since a source may not fit in memory.
        problems = itertools.islice(rows.problems, plan.max_problems or None)
        count = write_problems(_file(work, name, "parquet"), problems)
    if not count:
        first = next(read_decisions(decisions), None)
        why = f"; the first: {first.reason}, {first.detail}" if first else ""
        raise UserError(f"{name}: {rows.rows} rows gave no problem{why}")
    record = SourceRecord(
        name=name,
        title=request.source.title,
        licence=request.source.licence,
        hub_id=request.source.hub_id if located.commit else None,
        commit=located.commit,
        files=[file for part in located.parts for file in part.files],
        rows=rows.rows,
        problems=count,
        first_only=plan.max_problems,
    )
    # Written last, since this note makes the other files count as finished.
    write_file(finished_file, [msgspec.json.encode(_Finished(digest, record))])
    progress.end(shown)
    return record


class _Import:
    """The import of a source, part by part. Decisions go to the log, and rows are counted."""

    def __init__(self, source: DatasetSource, located: LocatedFiles, log: DecisionLog, shown: Work) -> None:
        self.rows = 0
        self.problems = self._read_all(source, located, log)
        self._shown = shown
        self._count = 0
        self._before = self._read = 0

    def close(self) -> None:
        """Stop reading, and downloading, if not all problems are needed."""
        self.problems.close()

    def _read_all(self, source: DatasetSource, located: LocatedFiles, log: DecisionLog) -> Generator[Problem]:
        seen: set[str] = set()
        for part in located.parts:
            with closing(self._count_rows(part)) as rows:
                for result in import_rows(source, rows, split=part.split, seen=seen):
                    if isinstance(result, ProblemDecision):
                        log.add(result)
                    else:
                        self._count += 1
                        yield result
            self._before += part.size

    def _count_rows(self, part: SplitFiles) -> Generator[tuple[str, Row]]:
        for pair in part.read(self._set_size_read):
            self.rows += 1
            # A note for every row would cost more than the import of the row.
            if self.rows % _ROWS_PER_NOTE == 0:
                note = f"{self.rows:,} rows, {self._count:,} problems"
                self._shown.update(self._before + self._read, note)
            yield pair

    def _set_size_read(self, size: int) -> None:
        self._read = size


def _request_digest(request: SourceRequest, plan: ImportSettings) -> str:
    """Return a digest of an import. Another file, revision, split or version gives another digest."""
    path = request.path
    files = sorted(path.rglob("*")) if path is not None and path.is_dir() else [path] if path else []
    # Hashing large files would take long. Size and time are enough to see a change.
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    facts = [__version__, request.source.name, request.revision, list(plan.splits), plan.max_problems, stats]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


def _read_finished(file: Path) -> _Finished | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Finished)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _file(work: Path, name: str, ending: str) -> Path:
    return work / f"{name}.{ending}"


@contextmanager
def _work_folder(target: Path) -> Generator[Path]:
    """Yield the work folder next to the dataset, locked for this process."""
    work = target.with_name(f".{target.name}.prepare")
    with work_folder(work, target, "preparing"):
        try:
            yield work
        finally:
            # Without a finished source there is nothing to resume.
            if not any(work.glob("*.json")):
                shutil.rmtree(work, ignore_errors=True)
