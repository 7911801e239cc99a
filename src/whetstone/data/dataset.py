"""Problem sets by name, and a dataset folder: problems in splits, and every decision that led to them.

A dataset folder holds ``train.parquet`` and ``validation.parquet``, ``decisions.jsonl``, and the data card
(``card.json``, ``card.html``). It is written beside its destination and renamed into place as a whole.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from whetstone.data.builtin import SET_NAMES, shipped_problems, subset
from whetstone.data.card import CARD_FILE, PAGE_FILE, Census, JourneyRecord, SourceRecord, read_card
from whetstone.data.card_page import write_card
from whetstone.data.decisions import Decision, DecisionLog, read_decisions
from whetstone.data.files import check_plain, file_format, read_problems, write_problems
from whetstone.errors import UserError, did_you_mean
from whetstone.outputs import check_outputs, explained, replacing, sync, unwritable
from whetstone.problem import Problem

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
    """The problems of a set, read while they are taken.

    A set is a dataset folder (all splits; ``FOLDER:train`` is one), a problem file, or one that ships (see
    ``builtin.SET_NAMES``). Raises UserError for an unknown name and for what cannot be read.
    """
    return (problem for _, problem in _with_splits(name_or_path))


def check_set(name_or_path: str | Path) -> None:
    """Raise UserError for a set that is not there, holds no problem, or whose first one cannot be read."""
    if next(open_problems(name_or_path), None) is None:
        raise UserError(f"{name_or_path}: holds no problems")


def load_problems(name_or_path: str | Path, *, max_problems: int = 0, seed: int = 0) -> list[Problem]:
    """The problems of ``open_problems`` in memory; a set without problems is a UserError.

    ``max_problems`` > 0 takes at most that many: a subset drawn by ``seed``, in the set's order.
    """
    problems = list(open_problems(name_or_path))
    if not problems:
        raise UserError(f"{name_or_path}: holds no problems")
    return subset(problems, max_problems, seed)


def is_dataset(path: str | Path) -> bool:
    """Whether there is a dataset folder at ``path``."""
    folder = Path(path)
    return (folder / DECISIONS_FILE).is_file() and (folder / f"{SPLITS[0]}.parquet").is_file()


def transform(
    source: str | Path, out: str | Path, step: Callable[[Iterator[Problem]], Iterable[Problem | Decision]]
) -> Counts:
    """Run ``step`` once over all problems of ``source`` and write what it yields to ``out``.

    ``step`` yields problems, in any order, and decisions; every problem that it reads it has to yield again
    (changed or not, under its id) or drop with a decision: anything else is a defect and raises
    AssertionError. A dataset folder gives a dataset folder, problems staying in their split and earlier
    decisions staying first. Another set gives a dataset folder, or, where ``out`` has the ending of a
    problem file, such a file and its decisions beside it, in ``NAME.decisions.jsonl``.
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
    decisions = _decisions_beside(Path(out))
    with replacing(decisions) as part, DecisionLog(part, shown=decisions) as log:
        ledger = _Ledger(_with_splits(source), log.add)
        write_problems(out, (problem for _, problem in ledger.run(step)))
    return ledger.counts()


def publish(source: Path, out: Path, journey: JourneyRecord) -> None:
    """Write the dataset folder ``source`` again as ``out``, with the journey that made it in its card."""
    with DatasetWriter(out, earlier=source) as writer:
        writer.tell(journey)
        for split, problem in _with_splits(source):
            writer.add(problem, split)


def check_destination(folder: Path) -> Path:
    """Where a dataset named ``folder`` is written. Raises UserError where it would replace anything else:
    a folder with a file that is not ours is never removed."""
    target = Path(os.path.realpath(folder))
    if target.exists() and not (target.is_dir() and {file.name for file in target.iterdir()} <= _FILES):
        raise UserError(f"{folder}: holds more than a dataset; name another output")
    return target


def check_step(
    source: str | Path,
    out: str | Path,
    *more: str | Path | None,
    inputs: Iterable[str | Path] = (),
    replace: bool,
) -> None:
    """Raise UserError where a step from ``source`` must not write ``out``: long steps ask before they begin.

    See ``outputs.check_outputs``; ``more`` are outputs beside ``out``, and ``inputs`` are read, too.
    """
    as_file = _names_a_file(Path(out))
    beside = _decisions_beside(Path(out)) if as_file else None
    check_outputs(out, beside, *more, inputs=[place_of(source), *inputs], replace=replace)
    if not as_file:
        check_destination(Path(out))


def place_of(name_or_path: str | Path) -> Path:
    """Where a set lies: a dataset folder, whichever split of it is named, or a file. A set that ships lies
    nowhere: its place does not exist."""
    return _folder_and_split(name_or_path)[0] or Path(name_or_path)


class DatasetWriter:
    """Writes a dataset folder problem by problem. Use it as a context manager: leaving it renames the folder
    into place, leaving it by an exception (Ctrl-C) leaves what was there before.

    ``earlier`` is a dataset folder whose decisions come before the new ones, and whose sources are those of
    the data card; other sources are given to ``describe``. Raises UserError where ``folder`` exists and is no
    dataset folder: only one, without files of others, is ever replaced.
    """

    def __init__(self, folder: Path, *, earlier: Path | None = None) -> None:
        self.folder = check_destination(folder)
        self._seen: set[str] = set()
        self._census = Census()
        self._sources: list[SourceRecord] = []
        self._journey: JourneyRecord | None = None
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
            self._journey = card.journey if card else None
            if (earlier / DECISIONS_FILE).exists():
                for decision in read_decisions(earlier / DECISIONS_FILE):
                    self.decide(decision)
        self._writers = {split: RowWriter(self._part / f"{split}.parquet") for split in SPLITS}

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self._decisions.close()
            with explained(self.folder) if kind is None else suppress(OSError):
                for writer in self._writers.values():
                    writer.close()
            if kind is None:
                with explained(self.folder):
                    write_card(self._part, self._census.card(SPLITS, self._sources, self._journey))
                    _put_in_place(self._part, self.folder)
        finally:
            shutil.rmtree(self._part, ignore_errors=True)

    def describe(self, sources: Iterable[SourceRecord]) -> None:
        """Say for the data card where the problems came from."""
        self._sources = list(sources)

    def tell(self, journey: JourneyRecord) -> None:
        """Say for the data card which journey led here."""
        self._journey = journey

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

    def decide(self, decision: Decision) -> None:
        """Record a decision."""
        self._census.decide(decision)
        self._decisions.add(decision)


class _Ledger:
    """Holds a step to its duty: every problem it read comes out again or is dropped with a decision."""

    def __init__(self, problems: Iterator[tuple[str, Problem]], decide: Callable[[Decision], object]) -> None:
        self._problems = problems
        self._decide = decide
        self._open: dict[str, str] = {}
        self._read = self._kept = self._dropped = self._marked = 0

    def run(
        self, step: Callable[[Iterator[Problem]], Iterable[Problem | Decision]]
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
            lost = next(iter(self._open))
            raise AssertionError(f"a step lost {len(self._open)} problems without a decision, e.g. {lost!r}")

    def counts(self) -> Counts:
        return Counts(self._read, self._kept, self._dropped, self._marked)

    def _reading(self) -> Iterator[Problem]:
        for split, problem in self._problems:
            self._read += 1
            self._open[problem.id] = split
            yield problem

    def _close(self, problem_id: str) -> str:
        if problem_id not in self._open:
            raise AssertionError(f"a step gave {problem_id!r} twice, or made it up")
        return self._open.pop(problem_id)


def _with_splits(name_or_path: str | Path) -> Iterator[tuple[str, Problem]]:
    name = str(name_or_path)
    if name in SET_NAMES:
        return (("train", problem) for problem in shipped_problems(name))
    folder, split = _folder_and_split(name)
    if folder is not None:
        return _read_splits(folder, [split] if split else SPLITS)
    path = Path(name)
    if not path.exists() and (":" in name or "." not in path.name):
        known = ", ".join(SET_NAMES)
        raise UserError(
            f"no problem set `{name}`{did_you_mean(name, SET_NAMES)} "
            f"(known: {known}, or a file, or a dataset folder)"
        )
    if path.is_dir():
        raise UserError(
            f"{path}: no dataset folder: it holds neither {' nor '.join(f'{s}.parquet' for s in SPLITS)}"
        )
    return (("train", problem) for problem in read_problems(path))


def _folder_and_split(name_or_path: str | Path) -> tuple[Path | None, str]:
    """The dataset folder that is named, and the split after its colon, if any; (None, "") for other sets."""
    if is_dataset(name_or_path):
        return Path(name_or_path), ""
    folder, _, split = str(name_or_path).rpartition(":")
    if not folder or not is_dataset(folder):
        return None, ""
    if split not in SPLITS:
        raise UserError(f"{folder}: no split `{split}`{did_you_mean(split, SPLITS)}")
    return Path(folder), split


def _other_splits(folder: Path | None, split: str) -> Iterator[Decision]:
    """A step that reads one split leaves the problems of the others out: they are counted as such."""
    if folder is None or not split:
        return
    for other in SPLITS:
        if other != split:
            for _, problem in _read_splits(folder, [other]):
                detail = f"is in the split {other}"
                yield Decision(problem.id, "split", "drop", "other_split", detail, problem.source)


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


def _decisions_beside(out: Path) -> Path:
    return out.with_name(out.name.split(".")[0] + "." + DECISIONS_FILE)


def _part_folder(folder: Path) -> Path:
    """Where the folder is written; what a killed process of this machine left there is removed."""
    prefix = f".{folder.name}.{socket.gethostname()}."
    for left in folder.parent.glob(f"{prefix}*.part"):
        owner = left.name.removeprefix(prefix).removesuffix(".part")
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    return folder.with_name(f"{prefix}{os.getpid()}.part")


def _put_in_place(part: Path, folder: Path) -> None:
    for file in part.iterdir():
        sync(file)
    replaced = part.with_name(part.name + ".replaced")
    if folder.exists():
        folder.rename(replaced)
    part.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)
