"""Programs whose correctness is known: from the set itself, from mutants, and from a file of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program

ProgramOrigin = Literal["reference", "wrong", "submission", "mutant"]


class LabelledProgram(Struct, frozen=True):
    """A program, whether it is correct, and where the label comes from."""

    name: str
    program: Program
    correct: bool
    origin: ProgramOrigin


class GivenPrograms(Struct):
    """Programs of a problem that a user gives: correct ones, wrong ones, and those without a label."""

    correct: list[Program] = []
    wrong: list[Program] = []
    unlabelled: list[Program] = []


class _Row(Struct, frozen=True):
    """One line of a file of labelled programs."""

    problem_id: str
    source: str
    correct: bool | None = None
    language: str = "python"


def read_submissions(path: str | Path) -> dict[str, list[LabelledProgram]]:
    """Return the programs of a JSON Lines file by the id of their problem.

    A line has ``problem_id``, ``source``, ``correct`` and, for other languages than Python, ``language``.
    Raises UserError for a file that cannot be read and for a line that is not of this form.
    """
    found: dict[str, list[LabelledProgram]] = {}
    for number, row in _rows(path, "problem_id, source and correct (true or false)"):
        if row.correct is None:
            raise UserError(f'{path}, line {number}: has no label; add "correct": true or false')
        program = Program(row.language, row.source)
        labelled = LabelledProgram(f"line {number}", program, row.correct, "submission")
        found.setdefault(row.problem_id, []).append(labelled)
    return found


def read_programs(path: str | Path) -> dict[str, GivenPrograms]:
    """Return the programs of a JSON Lines file by the id of their problem.

    The lines are those of ``read_submissions``, but ``correct`` may be missing. Raises UserError.
    """
    found: dict[str, GivenPrograms] = {}
    for _, row in _rows(path, "problem_id, source and, if it is known, correct (true or false)"):
        programs = found.setdefault(row.problem_id, GivenPrograms([], [], []))
        kinds = {True: programs.correct, False: programs.wrong, None: programs.unlabelled}
        kinds[row.correct].append(Program(row.language, row.source))
    return found


def _rows(path: str | Path, fields: str) -> Iterator[tuple[int, _Row]]:
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line, type=_Row)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UserError(f"{path}, line {number}: {error}; a line has {fields}") from None


def labelled_programs(
    problem: Problem, submissions: Mapping[str, Sequence[LabelledProgram]]
) -> Iterator[LabelledProgram]:
    """Yield the references, the known wrong programs and the submissions of a problem."""
    for number, program in enumerate(problem.references):
        yield LabelledProgram(f"references[{number}]", program, True, "reference")
    for number, program in enumerate(problem.wrong):
        yield LabelledProgram(f"wrong[{number}]", program, False, "wrong")
    yield from submissions.get(problem.id, ())
