"""``whetstone judge run``: judge a file of programs."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from rich.console import Console
from rich.table import Table

from whetstone.cli.judge_options import CaseFlags, Isolation, ProgramFiles, judge_of
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.outputs import check_outputs, replacing
from whetstone.core.problem import Problem, Program
from whetstone.core.progress import Progress
from whetstone.core.verdict import Judgement, Verdict
from whetstone.data.files import read_problems

_FIELDS = frozenset({"problem_id", "source", "language", "program", "id"})


@dataclass(frozen=True)
class _Line:
    """One program of a programs file."""

    problem: Problem
    program: Program
    id: str | int | None


def run_many(files: ProgramFiles, cases: CaseFlags, isolation: Isolation) -> int:
    """Run the action. Returns 0 if everything was judged."""
    check_outputs(files.out, inputs=[files.problems, files.programs], replace=files.replace)
    problems = {problem.id: problem for problem in read_problems(files.problems)}
    # All lines are checked before the first program runs.
    lines = list(_read_programs(Path(files.programs), problems))
    with (
        judge_of(isolation, cases, files.workers) as judge,
        _destination(files.out) as out,
    ):
        judgements = judge.judge_many((line.problem, line.program) for line in lines)
        counts = _write(out, lines, judgements)
    # The judgements may go to standard output. The table never does, so that a pipe gets JSON only.
    console = Console(stderr=files.out is None)
    console.print(_summary(counts, len(lines), judge.isolation))
    return 0


def _read_programs(path: Path, problems: dict[str, Problem]) -> Iterator[_Line]:
    """Read the programs of a file. Raises UserError that names file, line and field."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}; give a file of JSON lines") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UserError(f'{path}: no programs; a line is {{"problem_id": "…", "source": "…"}}')
    for number, line in lines:
        yield _read_line(f"{path}, line {number}", line, problems)


def _read_line(place: str, text: str, problems: dict[str, Problem]) -> _Line:
    try:
        parsed: Any = json.loads(text)
    except ValueError as error:
        raise UserError(f"{place}: not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise UserError(f"{place}: not a JSON object")
    entry = cast("dict[str, Any]", parsed)
    for name in entry:
        if name not in _FIELDS:
            raise UserError(f"{place}: unknown field `{name}`{did_you_mean(name, _FIELDS)}")
    problem_id = entry.get("problem_id")
    if not isinstance(problem_id, str):
        raise UserError(f"{place}: `problem_id` must be the id of a problem")
    if problem_id not in problems:
        hint = did_you_mean(problem_id, problems)
        raise UserError(f"{place}: `problem_id`: no problem {problem_id!r} in the problems file{hint}")
    if not isinstance(entry.get("id"), str | int | None):
        raise UserError(f"{place}: `id` must be a string or a number")
    problem = problems[problem_id]
    return _Line(problem, _program(place, entry, problem.language), entry.get("id"))


def _program(place: str, entry: dict[str, Any], default: str) -> Program:
    if ("source" in entry) == ("program" in entry):
        raise UserError(f"{place}: give exactly one of `source` and `program`")
    if "source" in entry:
        if not isinstance(entry["source"], str):
            raise UserError(f"{place}: `source` must be the program's text")
        language = entry.get("language", default)
        if not isinstance(language, str):
            raise UserError(f"{place}: `language` must be the name of a language (see: whetstone doctor)")
        return Program(language, entry["source"])
    if "language" in entry:
        raise UserError(f"{place}: `language` is for `source`; `program` has its own")
    try:
        return msgspec.convert(entry["program"], Program)
    except msgspec.ValidationError as error:
        raise UserError(f"{place}: `program`: {error}") from None


@contextlib.contextmanager
def _destination(name: str | None) -> Generator[IO[str]]:
    if name is None:
        yield sys.stdout
        return
    with replacing(name) as path, path.open("w", encoding="utf-8") as file:
        yield file


def _write(out: IO[str], lines: list[_Line], judgements: Iterable[Judgement]) -> Counter[Verdict]:
    """Write a JSON line for each judgement, show the progress, and count the verdicts."""
    counts: Counter[Verdict] = Counter()
    with Progress() as progress, progress.work("judging", len(lines)) as judging:
        for line, judgement in zip(lines, judgements, strict=True):
            row = {"problem_id": line.problem.id, "id": line.id, **msgspec.to_builtins(judgement)}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            counts[judgement.verdict] += 1
            judging.advance()
    return counts


def _summary(counts: Counter[Verdict], total: int, isolation: str) -> Table:
    table = Table("verdict", "programs", "share", box=None, pad_edge=False)
    for verdict in Verdict:
        if counts[verdict]:
            table.add_row(verdict.value, str(counts[verdict]), f"{counts[verdict] / total:.1%}")
    table.caption = f"{total} programs, isolation: {isolation}"
    return table
