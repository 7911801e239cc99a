"""``whetstone judge one``: judge one program, and show each of its cases."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from whetstone.cli.judge_options import CaseFlags, Isolation, OneProgram, judge_of
from whetstone.cli.parser import hanging_lines
from whetstone.core.errors import UserError
from whetstone.core.problem import Problem, Program
from whetstone.core.verdict import SHARED_INTERPRETER, Judgement, Verdict
from whetstone.judge.languages.table import language_of_file

_COLUMNS = ("case", "verdict", "CPU s", "wall s", "MiB")
# Exit statuses. 2 is invalid input.
_REJECTED, _NO_VERDICT = 1, 3


def run_one(files: OneProgram, cases: CaseFlags, isolation: Isolation) -> int:
    """Run the action. Returns 0 if the program was accepted, 1 if it was not, 3 if there is no verdict."""
    problem, name = _read_problem(Path(files.problem)), files.program
    try:
        source = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: {error}; give the program's source file") from None
    language = files.language or (problem.language if name == "-" else language_of_file(name).name)
    with judge_of(isolation, cases, 1) as judge:
        judgement = judge.judge(problem, Program(language, source))
    if files.json:
        print(msgspec.json.encode(judgement).decode())
    else:
        for line in _lines(judgement, shutil.get_terminal_size().columns):
            print(line)
    if judgement.verdict is Verdict.JUDGE_ERROR:
        return _NO_VERDICT
    return 0 if judgement.accepted else _REJECTED


def _read_problem(path: Path) -> Problem:
    """Read one problem: a JSON file, or a problem file with a single line."""
    if path.suffix != ".json":
        from whetstone.data.files import read_problems

        problems = list(read_problems(path))
        if len(problems) != 1:
            count = f"{len(problems)} problems" if path.stat().st_size else "the file is empty"
            raise UserError(f"{path}: {count}; give a file with one problem, or use `whetstone judge run`")
        return problems[0]
    try:
        text = path.read_bytes()
        if not text.strip():
            raise UserError(f"{path}: the file is empty; give a problem as JSON")
        return msgspec.json.decode(text, type=Problem)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a problem as JSON") from None
    except msgspec.ValidationError as error:
        from whetstone.data.explain import explain

        raise UserError(f"{path}: {explain(error)} (the schema: whetstone data show schema)") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error} (the schema: whetstone data show schema)") from None


def _lines(judgement: Judgement, width: int) -> Iterator[str]:
    """Yield a line for each case, and the judgement below them."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    reasons = ["reason"]
    for case in judgement.cases:
        cost = (f"{case.cpu_s:.3f}", f"{case.wall_s:.3f}", f"{case.peak_bytes / (1 << 20):.0f}")
        rows.append((str(case.index + 1), case.verdict.value, *cost))
        reasons.append(case.reason)
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, case_reason in zip(rows, reasons, strict=True):
        start = "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True))
        yield from hanging_lines(start + "  ", case_reason, width)
    score = "none" if judgement.score is None else f"{judgement.score:.3f}"
    if judgement.unpaid == SHARED_INTERPRETER:
        score += ": a verdict in the program's own interpreter can be forged"
    reason = f": {judgement.reason}" if judgement.reason and not judgement.cases else ""
    yield from hanging_lines(
        "", f"{judgement.verdict.value}{reason} (score {score}, isolation: {judgement.isolation})", width
    )
