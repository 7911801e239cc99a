"""An evaluation's folder: the manifest from the start, each reply when it is judged, the result at the end.

While an evaluation runs, ``samples.jsonl`` only grows, with one line per reply. So a kill loses only the
replies in flight. At the end it is sorted by problem. The next evaluation with the same manifest reuses
finished replies. A failed reply, or one without a verdict or a reward, is not finished.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.outputs import GOES_ON, LineLog, check_outputs, unwritable, write_file
from whetstone.environments.prompt import Prompt
from whetstone.evaluate.manifest import resumable_differences
from whetstone.evaluate.results import EVALUATION_FILE, Evaluation, SampleResult

SAMPLES_FILE = "samples.jsonl"
MANIFEST_FILE = "manifest.json"
PROMPTS_FILE = "prompts.jsonl"
# The usage is stored apart from the result, which does not depend on it.
USAGE_FILE = "usage.json"


class _KeptPrompt(Struct, frozen=True):
    """A line of prompts.jsonl."""

    problem_id: str
    prompt: Prompt


_DECODER = msgspec.json.Decoder(SampleResult)


class EvaluationFolder:
    """A folder that one evaluation at a time writes. A context manager.

    ``manifest`` is plain JSON values. On entry unfinished replies are dropped, with ``restart`` all of them.
    Raises UserError when the folder cannot be written, is in use, or contains an evaluation with another
    manifest.
    """

    def __init__(self, path: str | Path, manifest: dict[str, Any], *, restart: bool = False) -> None:
        self.path = Path(path)
        self.manifest = manifest
        self._restart = restart
        self._lock = -1
        self._samples: LineLog | None = None

    def __enter__(self) -> EvaluationFolder:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # The folder itself is locked, so that no lock file remains in it.
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._restart:
                for name in (EVALUATION_FILE, MANIFEST_FILE, SAMPLES_FILE, USAGE_FILE, PROMPTS_FILE):
                    (self.path / name).unlink(missing_ok=True)
            else:
                self._check_manifest()
            manifest = msgspec.json.format(msgspec.json.encode(self.manifest), indent=1)
            write_file(self.path / MANIFEST_FILE, [manifest + b"\n"])
            # Unfinished replies are removed here, since the file is only appended to from now on.
            write_file(self.path / SAMPLES_FILE, self._finished_lines())
            self._samples = LineLog(self.path / SAMPLES_FILE, way_out=GOES_ON)
        except BaseException as error:
            self._close()
            if isinstance(error, BlockingIOError):
                raise UserError(f"{self.path}: another `whetstone eval` is writing there") from None
            if isinstance(error, OSError):
                raise unwritable(self.path, error, _ELSEWHERE) from None
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def finished(self) -> Iterator[SampleResult]:
        """Return the replies that earlier runs have finished."""
        return read_samples(self.path)

    def add(self, sample: SampleResult) -> None:
        """Append a reply. Appended replies survive a kill of the process."""
        assert self._samples is not None
        self._samples.append(msgspec.json.encode(sample) + b"\n")

    def keep_prompts(self, prompts: Iterable[tuple[str, Prompt]]) -> None:
        """Store the prompt of each problem, by its id."""
        lines = (msgspec.json.encode(_KeptPrompt(name, prompt)) + b"\n" for name, prompt in prompts)
        write_file(self.path / PROMPTS_FILE, lines)

    def finish(self, evaluation: Evaluation) -> None:
        """Sort the replies by problem, and write evaluation.json."""
        write_file(self.path / SAMPLES_FILE, self._ordered_lines([p.id for p in evaluation.problems]))
        evaluation.save(self.path)

    def _close(self) -> None:
        if self._samples is not None:
            self._samples.close()
        if self._lock >= 0:
            # Closing the descriptor releases the lock.
            os.close(self._lock)
        self._samples, self._lock = None, -1

    def _check_manifest(self) -> None:
        place = self.path / MANIFEST_FILE
        if not place.exists():
            if (self.path / SAMPLES_FILE).exists() or (self.path / EVALUATION_FILE).exists():
                raise UserError(f"{self.path}: contains an evaluation without a manifest; {_WAY_OUT}")
            return
        try:
            earlier = msgspec.json.decode(place.read_bytes(), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UserError(f"{place}: not written by `whetstone eval` ({error}); {_WAY_OUT}") from None
        # Replies of another model or prompt must not be counted together.
        changed = resumable_differences(earlier, self.manifest)
        if changed:
            raise UserError(f"{self.path}: contains another evaluation: {'; '.join(changed)}. {_WAY_OUT}")

    def _finished_lines(self) -> Iterator[bytes]:
        """Yield the lines of finished replies, each (problem, index) once, without torn lines."""
        seen: set[tuple[str, int]] = set()
        for line in _lines(self.path / SAMPLES_FILE):
            try:
                sample = _DECODER.decode(line)
            except msgspec.MsgspecError:
                continue
            # Replies without a result are dropped, so that they are requested again.
            if sample.has_result and (sample.problem_id, sample.index) not in seen:
                seen.add((sample.problem_id, sample.index))
                yield line

    def _ordered_lines(self, order: Sequence[str]) -> Iterator[bytes]:
        ranks = {name: rank for rank, name in enumerate(order)}
        # Only positions are sorted, since all replies may not fit into memory.
        places: list[tuple[int, int, int]] = []
        with (self.path / SAMPLES_FILE).open("rb") as file:
            offset = 0
            for line in file:
                sample = _DECODER.decode(line)
                places.append((ranks[sample.problem_id], sample.index, offset))
                offset += len(line)
            for _, _, offset in sorted(places):
                file.seek(offset)
                yield file.readline()


def check_files(folder: Path, inputs: Iterable[str]) -> None:
    """Raise UserError if an evaluation in ``folder`` would overwrite a file that it reads."""
    files = (folder / name for name in (MANIFEST_FILE, SAMPLES_FILE, EVALUATION_FILE))
    check_outputs(*files, inputs=[name for name in inputs if Path(name).is_file()], replace=True)


def holds(folder: Path, manifest: dict[str, Any]) -> bool:
    """Return whether the folder contains an evaluation, finished or not, with exactly this manifest."""
    return (folder / MANIFEST_FILE).exists() and read_manifest(folder) == manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest in a folder; empty if there is no readable one."""
    try:
        return msgspec.json.decode((folder / MANIFEST_FILE).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


_ELSEWHERE = "name another folder with --out"
_WAY_OUT = "give --restart to begin it anew, or another folder with --out"


def read_samples(folder: str | Path) -> Iterator[SampleResult]:
    """Yield the replies in a folder, one by one. Raises UserError with the number of an invalid line."""
    place = Path(folder) / SAMPLES_FILE
    if not place.exists():
        raise UserError(f"{place}: No such file; give the --out folder of `whetstone eval`")
    for number, line in enumerate(_lines(place), 1):
        try:
            yield _DECODER.decode(line)
        except msgspec.MsgspecError as error:
            raise UserError(f"{place}, line {number}: not written by `whetstone eval`: {error}") from None


def read_prompts(folder: str | Path) -> dict[str, Prompt]:
    """Return the prompt of each problem, by id; empty for an evaluation of an older version
    without prompts."""
    place = Path(folder) / PROMPTS_FILE
    try:
        kept = [msgspec.json.decode(line, type=_KeptPrompt) for line in _lines(place)]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserError(f"{place}: not written by `whetstone eval`: {error}") from None
    return {each.problem_id: each.prompt for each in kept}


def _lines(place: Path) -> Iterator[bytes]:
    """Yield the complete lines of the file; none if there is no file."""
    try:
        with place.open("rb") as file:
            # A kill during a write leaves a last line without its end.
            yield from (line for line in file if line.endswith(b"\n"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{place}: cannot be read: {error.strerror or error}") from None


class EvaluationUsage(Struct, frozen=True):
    """The usage of an evaluation over all its runs.

    tokens: written tokens, as counted by the writer of the replies, without failed attempts.
    prompt_tokens: read tokens, once for each reply; None if not counted.
    seconds: wall-clock time of finished and interrupted runs.
    """

    tokens: int
    prompt_tokens: int | None
    seconds: float

    @property
    def line(self) -> str:
        """The usage as text."""
        read = "" if self.prompt_tokens is None else f" and {self.prompt_tokens:,} read"
        return f"{self.tokens:,} tokens written{read} in {_duration(self.seconds)}"


def add_seconds(folder: Path, seconds: float) -> float:
    """Add the time of a run to that in an evaluation's folder, and return the sum."""
    total = seconds_in(folder) + seconds
    write_file(folder / USAGE_FILE, [msgspec.json.encode({"seconds": round(total, 3)}) + b"\n"])
    return total


def seconds_in(folder: Path) -> float:
    """Return the time of all runs of an evaluation's folder, in seconds."""
    try:
        return msgspec.json.decode((folder / USAGE_FILE).read_bytes(), type=dict[str, float])["seconds"]
    except FileNotFoundError:
        return 0.0
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise UserError(f"{folder / USAGE_FILE}: not written by `whetstone eval`: {error}") from None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
