"""``whetstone judge one``: judge one program, and show each of its cases."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from whetstone.cli.columns import hanging
from whetstone.cli.judge_options import judge_of
from whetstone.errors import UserError
from whetstone.judge.languages.table import language_of_file
from whetstone.problem import Problem, Program
from whetstone.verdict import SHARED_INTERPRETER, Judgement

_COLUMNS = ("case", "verdict", "CPU s", "wall s", "MiB")


def run_one(args: argparse.Namespace) -> int:
    """Run the action. Status 0 when the program was judged."""
    problem, name = _read_problem(Path(args.problem)), args.program
    try:
        source = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: {error}; give the program's source file") from None
    language = args.language or (problem.language if name == "-" else language_of_file(name).name)
    with judge_of(args, 1) as judge:
        judgement = judge.judge(problem, Program(language, source))
    for line in _lines(judgement, shutil.get_terminal_size().columns):
        print(line)
    return 0


def _read_problem(path: Path) -> Problem:
    """One problem: a JSON file of its own, or the only line of a problem file."""
    if path.suffix != ".json":
        from whetstone.data.files import read_problems

        problems = list(read_problems(path))
        if len(problems) != 1:
            raise UserError(f"{path}: {len(problems)} problems; give a file of one (or: whetstone judge run)")
        return problems[0]
    try:
        return msgspec.json.decode(path.read_bytes(), type=Problem)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a problem as JSON") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error} (the schema: whetstone data schema)") from None


def _lines(judgement: Judgement, width: int) -> Iterator[str]:
    """Each case, and the judgement beneath."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    reasons = ["reason"]
    for case in judgement.cases:
        cost = (f"{case.cpu_s:.3f}", f"{case.wall_s:.3f}", f"{case.peak_bytes / (1 << 20):.0f}")
        rows.append((str(case.index + 1), case.verdict.value, *cost))
        reasons.append(case.reason)
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, reason in zip(rows, reasons, strict=True):
        start = "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True))
        yield from hanging(start + "  ", reason, width)
    score = "none" if judgement.score is None else f"{judgement.score:.3f}"
    if judgement.unpaid == SHARED_INTERPRETER:
        score += ": a verdict reached in the program's own interpreter can be forged"
    said = f": {judgement.reason}" if judgement.reason and not judgement.cases else ""
    yield from hanging(
        "", f"{judgement.verdict.value}{said} (score {score}, isolation: {judgement.isolation})", width
    )
