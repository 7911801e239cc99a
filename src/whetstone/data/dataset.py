"""Problem sets by name, and a dataset folder: problems in splits, and every decision that led to them.

A dataset folder holds ``train.parquet`` and ``validation.parquet``, ``decisions.jsonl``, and the data card
(``card.json``, ``card.html``). It is written to a temporary folder next to its destination and then renamed.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.outputs import check_outputs, explained, replacing, sync, unwritable
from whetstone.core.problem import Problem
from whetstone.data.builtin import SET_NAMES, shipped_problems, subset
from whetstone.data.card import CARD_FILE, PAGE_FILE, Census, PipelineRecord, SourceRecord, read_card
from whetstone.data.card_page import write_card
from whetstone.data.decisions import DecisionLog, ProblemDecision, read_decisions
from whetstone.data.files import check_plain, file_format, no_problems, read_problems, write_problems
from whetstone.data.repository_problems import repository_problems
from whetstone.judge.repository.task import TASKS_FILE

SPLITS = ("train", "validation")
DECISIONS_FILE = "decisions.jsonl"
_FILES = {DECISIONS_FILE, CARD_FILE, PAGE_FILE, *(f"{split}.parquet" for split in SPLITS)}


class Counts(Struct, frozen=True):
    """Problems that a step read, kept and dropped, and how many marks it made."""

    read: int
    kept: int
    dropped: int
    marked: int


def open_problems(name_or_path: str | Path) -> Iterator[Problem]:
    """Yield the problems of a set, reading lazily.

    A set is a dataset folder or a folder of repository tasks (all splits; ``FOLDER:train`` is one), a problem
    file, or one that ships (see ``builtin.SET_NAMES``). Raises UserError for an unknown name and for a file
    that cannot be read.
    """
    return (problem for _, problem in _with_splits(name_or_path))


def check_set(name_or_path: str | Path) -> None:
    """Raise UserError for a set that does not exist, is empty, or whose first problem cannot be read."""
    if next(open_problems(name_or_path), None) is None:
        raise no_problems(name_or_path)


def load_problems(name_or_path: str | Path, *, max_problems: int = 0, seed: int = 0) -> list[Problem]:
    """Return the problems of ``open_problems`` as a list. Raises UserError for an empty set.

    ``max_problems`` > 0 takes at most that many: a subset drawn by ``seed``, in the set's order.
    """
    problems = list(open_problems(name_or_path))
    if not problems:
        raise no_problems(name_or_path)
    return subset(problems, max_problems, seed)


def is_dataset(path: str | Path) -> bool:
    """Return whether there is a dataset folder at ``path``."""
    folder = Path(path)
    return (folder / DECISIONS_FILE).is_file() and (folder / f"{SPLITS[0]}.parquet").is_file()


def why_dropped(name_or_path: str | Path, problem_id: str) -> ProblemDecision | None:
    """Return the decision that dropped a problem from a set; None if none is recorded."""
    folder, _ = _folder_and_split(name_or_path)
    file = folder / DECISIONS_FILE if folder else _decisions_file(Path(name_or_path))
    decisions = read_decisions(file) if file.is_file() else ()
    return next((one for one in decisions if one.problem_id == problem_id and one.action == "drop"), None)


def transform(
    source: str | Path,
    out: str | Path,
    step: Callable[[Iterator[Problem]], Iterable[Problem | ProblemDecision]],
) -> Counts:
    """Run ``step`` once over all problems of ``source`` and write its results to ``out``.

    ``step`` yields problems, in any order, and decisions. It must yield every problem that it reads (changed
    or not, under its id) or drop it with a decision; otherwise AssertionError is raised. If the source is a
    dataset folder, so is the result. Problems stay in their split, and earlier decisions come first. Another
    set gives a dataset folder. If ``out`` has the extension of a problem file, it gives such a file, with its
    decisions in ``NAME.decisions.jsonl`` next to it.
    """
    check_step(source, out, replace=True)
    folder, split = _folder_and_split(source)
    if not _names_a_file(Path(out)):
        with DatasetWriter(Path(out), earlier=folder) as writer:
            for left_out in _other_splits(folder, split):
                writer.decide(left_out)
            ledger = _Ledger(_with_splits(source), writer.decide)
            for where, problem in ledger.run(step):
                writer.add(problem, where)
            return ledger.counts()
    decisions = _decisions_file(Path(out))
    with replacing(decisions) as part, DecisionLog(part, shown=decisions) as log:
        ledger = _Ledger(_with_splits(source), log.add)
        write_problems(out, (problem for _, problem in ledger.run(step)))
    return ledger.counts()


def publish(source: Path, out: Path, pipeline: PipelineRecord) -> None:
    """Write the dataset folder ``source`` to ``out``, with the pipeline that made it in its card."""
    with DatasetWriter(out, earlier=source) as writer:
        writer.tell(pipeline)
        for split, problem in _with_splits(source):
            writer.add(problem, split)


def check_destination(folder: Path) -> Path:
    """Return the destination of a dataset named ``folder``. Raises UserError if it would replace anything
    else: a folder with other files is never removed."""
    target = Path(os.path.realpath(folder))
    if target.exists() and not (target.is_dir() and {file.name for file in target.iterdir()} <= _FILES):
        raise UserError(f"{folder}: contains other files than a dataset's; name another output")
    return target


def check_step(
    source: str | Path,
    out: str | Path,
    *more: str | Path | None,
    inputs: Iterable[str | Path] = (),
    replace: bool,
) -> None:
    """Raise UserError if a step from ``source`` must not write ``out``. Long steps check this before they
    begin.

    See ``outputs.check_outputs``; ``more`` are further outputs, and ``inputs`` further inputs.
    """
    as_file = _names_a_file(Path(out))
    decisions_file = _decisions_file(Path(out)) if as_file else None
    check_outputs(out, decisions_file, *more, inputs=[place_of(source), *inputs], replace=replace)
    if not as_file:
        check_destination(Path(out))


def place_of(name_or_path: str | Path) -> Path:
    """Return the path of a set: the dataset folder of a split, or a file. The path of a set that ships does
    not exist."""
    return _folder_and_split(name_or_path)[0] or Path(name_or_path)


class DatasetWriter:
    """Writes a dataset folder problem by problem. Use it as a context manager: leaving it renames the folder
    into place, leaving it by an exception (Ctrl-C) keeps the previous folder.

    ``earlier`` is a dataset folder: its decisions precede the new ones, and its sources enter the data card.
    ``describe`` adds other sources. Raises UserError if ``folder`` exists and is not a dataset folder without
    other files: nothing else is ever replaced.
    """

    def __init__(self, folder: Path, *, earlier: Path | None = None) -> None:
        self.folder = check_destination(folder)
        self._seen: set[str] = set()
        self._census = Census()
        self._sources: list[SourceRecord] = []
        self._pipeline: PipelineRecord | None = None
        self._part = _part_folder(self.folder)
        try:
            self._open(earlier)
        except BaseException as error:
            shutil.rmtree(self._part, ignore_errors=True)
            if isinstance(error, OSError):
                raise unwritable(folder, error) from None
            raise

    def _open(self, earlier: Path | None) -> None:
        from whetstone.data.parquet import RowWriter

        self._part.mkdir(parents=True)
        self._decisions = DecisionLog(self._part / DECISIONS_FILE, shown=self.folder)
        if earlier is not None:
            card = read_card(earlier)
            self._sources = card.sources if card else []
            self._pipeline = card.pipeline if card else None
            if (earlier / DECISIONS_FILE).exists():
                for decision in read_decisions(earlier / DECISIONS_FILE):
                    self.decide(decision)
        self._writers = {split: RowWriter(self._part / f"{split}.parquet") for split in SPLITS}

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self._decisions.close()
            # After an error of the step, a failure to close files must not replace it.
            with explained(self.folder) if kind is None else suppress(OSError):
                for writer in self._writers.values():
                    writer.close()
            if kind is None:
                with explained(self.folder):
                    write_card(self._part, self._census.card(SPLITS, self._sources, self._pipeline))
                    _move_into_place(self._part, self.folder)
        finally:
            shutil.rmtree(self._part, ignore_errors=True)

    def describe(self, sources: Iterable[SourceRecord]) -> None:
        """Set the sources that the data card lists."""
        self._sources = list(sources)

    def tell(self, pipeline: PipelineRecord) -> None:
        """Set the pipeline that the data card describes."""
        self._pipeline = pipeline

    def add(self, problem: Problem, split: str = "train") -> None:
        """Add a problem to a split. Raises UserError for an id that was added before."""
        if split not in SPLITS:
            raise UserError(f"no split `{split}`{did_you_mean(split, SPLITS)} (splits: {', '.join(SPLITS)})")
        if problem.id in self._seen:
            raise UserError(
                f"{self.folder}: problem {problem.id!r} is given twice; every problem needs its own id"
            )
        check_plain(problem, f"{self.folder}: ")
        self._seen.add(problem.id)
        self._census.add(problem, split)
        with explained(self.folder):
            self._writers[split].add(problem)

    def decide(self, decision: ProblemDecision) -> None:
        """Record a decision."""
        self._census.decide(decision)
        self._decisions.add(decision)


class _Ledger:
    """Checks that a step yields every problem that it read or drops it with a decision."""

    def __init__(
        self, problems: Iterator[tuple[str, Problem]], decide: Callable[[ProblemDecision], object]
    ) -> None:
        self._problems = problems
        self._decide = decide
        self._open: dict[str, str] = {}
        self._read = self._kept = self._dropped = self._marked = 0

    def run(
        self, step: Callable[[Iterator[Problem]], Iterable[Problem | ProblemDecision]]
    ) -> Iterator[tuple[str, Problem]]:
        for result in step(self._reading()):
            if isinstance(result, Problem):
                self._kept += 1
                yield self._close(result.id), result
                continue
            if result.action == "drop":
                self._dropped += 1
                self._close(result.problem_id)
            self._marked += result.action == "mark"
            self._decide(result)
        if self._open:
            # A problem that disappears without a reason is a defect of the step, not of the data.
            missing_id = next(iter(self._open))
            raise AssertionError(
                f"a step lost {len(self._open)} problems without a decision, e.g. {missing_id!r}"
            )

    def counts(self) -> Counts:
        return Counts(self._read, self._kept, self._dropped, self._marked)

    def _reading(self) -> Iterator[Problem]:
        for split, problem in self._problems:
            self._read += 1
            self._open[problem.id] = split
            yield problem

    def _close(self, problem_id: str) -> str:
        if problem_id not in self._open:
            raise AssertionError(f"a step yielded {problem_id!r} twice, or without reading it")
        return self._open.pop(problem_id)


def _with_splits(name_or_path: str | Path) -> Iterator[tuple[str, Problem]]:
    name = str(name_or_path)
    if name in SET_NAMES:
        return (("train", problem) for problem in shipped_problems(name))
    folder, split = _folder_and_split(name)
    if folder is not None:
        return _read_splits(folder, [split] if split else SPLITS)
    if (tasks := repository_problems(name, SPLITS)) is not None:
        return tasks
    path = Path(name)
    if not path.exists() and (":" in name or "." not in path.name):
        known = ", ".join(SET_NAMES)
        raise UserError(
            f"no problem set `{name}`{did_you_mean(name, SET_NAMES)} "
            f"(known: {known}, or a file, or a dataset folder, or a folder of repository tasks)"
        )
    if path.is_dir():
        raise UserError(
            f"{path}: not a dataset folder: it has neither {' nor '.join(f'{s}.parquet' for s in SPLITS)}; "
            f"and no set of repository tasks: it has no {TASKS_FILE}"
        )
    return (("train", problem) for problem in read_problems(path))


def _folder_and_split(name_or_path: str | Path) -> tuple[Path | None, str]:
    """Return a dataset folder and the split after its colon, if any; (None, "") for other sets."""
    if is_dataset(name_or_path):
        return Path(name_or_path), ""
    folder, _, split = str(name_or_path).rpartition(":")
    if not folder or not is_dataset(folder):
        return None, ""
    if split not in SPLITS:
        raise UserError(f"{folder}: no split `{split}`{did_you_mean(split, SPLITS)}")
    return Path(folder), split


def _other_splits(folder: Path | None, split: str) -> Iterator[ProblemDecision]:
    """Yield drop decisions for the splits that a step on one split does not read."""
    if folder is None or not split:
        return
    for other in SPLITS:
        if other != split:
            for _, problem in _read_splits(folder, [other]):
                detail = f"is in the split {other}"
                yield ProblemDecision(problem.id, "split", "drop", "other_split", detail, problem.source)


def _read_splits(folder: Path, splits: Iterable[str]) -> Iterator[tuple[str, Problem]]:
    for split in splits:
        file = folder / f"{split}.parquet"
        if file.exists():
            for problem in read_problems(file):
                yield split, problem


def _names_a_file(out: Path) -> bool:
    try:
        file_format(out)
    except UserError:
        return False
    return not out.is_dir()


def _decisions_file(out: Path) -> Path:
    return out.with_name(out.name.split(".")[0] + "." + DECISIONS_FILE)


def _part_folder(folder: Path) -> Path:
    """Return the temporary folder; leftovers of a killed process of this machine are removed."""
    prefix = f".{folder.name}.{socket.gethostname()}."
    for leftover in folder.parent.glob(f"{prefix}*.part"):
        owner = leftover.name.removeprefix(prefix).removesuffix(".part")
        # The name has host and pid: on a shared file system, another machine's process may be alive.
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(leftover, ignore_errors=True)
    return folder.with_name(f"{prefix}{os.getpid()}.part")


def _move_into_place(part: Path, folder: Path) -> None:
    # After a power failure, the new name must not refer to files without their contents.
    for file in part.iterdir():
        sync(file)
    # A folder cannot be renamed over another. The old one is moved away first, and deleted last.
    replaced = part.with_name(part.name + ".replaced")
    if folder.exists():
        folder.rename(replaced)
    part.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)
