"""``whetstone judge``: judge programs from a shell, many from files or one with all its cases."""

from __future__ import annotations

import argparse
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
from rich.text import Text

from whetstone.cli.judge_environment import add_action as add_environment_action
from whetstone.cli.judge_environment import run_environment
from whetstone.cli.judge_options import add_judge_options, judge_settings
from whetstone.cli.judge_rewards import add_action as add_rewards_action
from whetstone.cli.judge_rewards import run_rewards
from whetstone.cli.judge_serve import add_action as add_serve_action
from whetstone.cli.judge_serve import run_serve
from whetstone.cli.options import add_replace_option
from whetstone.data.files import read_problems
from whetstone.errors import UserError, did_you_mean
from whetstone.judge import Judge, Judgement, Verdict
from whetstone.judge.languages.table import language_of_file
from whetstone.outputs import check_outputs, replacing
from whetstone.problem import Problem, Program
from whetstone.progress import Progress
from whetstone.verdict import SHARED_INTERPRETER

_FIELDS = frozenset({"problem_id", "source", "language", "program", "id"})


@dataclass(frozen=True)
class _Line:
    """One program of a programs file."""

    problem: Problem
    program: Program
    id: str | int | None


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "judge",
        description="Run programs in isolation against the tests of problems. Status 0 when everything was "
        "judged, whatever the verdicts.",
        epilog="example: whetstone judge one problem.json program.py",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    many = actions.add_parser(
        "run",
        help="judge a file of programs; one JSON judgement a line, and a table of verdicts",
        description="Judge a file of programs. Each line of it is a JSON object with `problem_id`, `source` "
        "and `language` (default: the problem's), or with `program`, an object of these two; `id` is handed "
        "through.",
    )
    many.add_argument(
        "--problems", required=True, metavar="FILE", help="problems: .jsonl, .jsonl.gz, .parquet"
    )
    many.add_argument("--programs", required=True, metavar="FILE", help="programs, as JSON lines")
    many.add_argument(
        "--out",
        metavar="FILE",
        help="where judgements go: there when all are judged (default: to standard output, as they come)",
    )
    add_replace_option(many)
    many.add_argument("--workers", type=int, default=0, metavar="N", help="0 (default): one for each core")
    one = actions.add_parser("one", help="judge one program, and show each of its cases")
    one.add_argument("problem", metavar="PROBLEM.json", help="a problem in the published schema")
    one.add_argument("program", metavar="PROGRAM", help="the program's source; - reads standard input")
    one.add_argument(
        "--language",
        metavar="NAME",
        help="the program's language (default: by the file's ending; of standard input: the problem's)",
    )
    for action in (many, one):
        action.add_argument(
            "--stop-at-first-failure", action="store_true", help="run no case after one that failed"
        )
        action.add_argument("--max-cases", type=int, metavar="N", help="judge a seeded choice of N cases")
        action.add_argument("--subset-seed", type=int, default=0, metavar="SEED", help="which choice")
        add_judge_options(action)
    add_serve_action(actions)
    add_rewards_action(actions)
    add_environment_action(actions)


def run(args: argparse.Namespace) -> int:
    """Run the verb. Status 0 when everything was judged."""
    if args.action == "environment":
        return run_environment(args)
    if args.action == "serve":
        return run_serve(args)
    if args.action == "rewards":
        return run_rewards(args)
    if args.action == "one":
        return _run_one(args)
    check_outputs(args.out, inputs=[args.problems, args.programs], replace=args.replace)
    problems = {problem.id: problem for problem in read_problems(args.problems)}
    lines = list(_read_programs(Path(args.programs), problems))
    with (
        _judge(args, args.workers) as judge,
        _destination(args.out) as out,
    ):
        judgements = judge.judge_many((line.problem, line.program) for line in lines)
        counts = _write(out, lines, judgements)
    # The judgements may be on standard output: the table never is, so that a pipe gets JSON alone.
    console = Console(stderr=args.out is None)
    console.print(_summary(counts, len(lines), judge.isolation))
    return 0


def _judge(args: argparse.Namespace, workers: int) -> Judge:
    """The judge that the options ask for."""
    return Judge(
        workers,
        stop_at_first_failure=args.stop_at_first_failure,
        max_cases=args.max_cases,
        subset_seed=args.subset_seed,
        **judge_settings(args),
    )


def _read_programs(path: Path, problems: dict[str, Problem]) -> Iterator[_Line]:
    """The programs of a file. Raises UserError naming file, line and field."""
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
        raise UserError(f"{place}: `language` belongs beside `source`; `program` has its own")
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


def _run_one(args: argparse.Namespace) -> int:
    problem, name = _read_problem(Path(args.problem)), args.program
    try:
        source = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: {error}; give the program's source file") from None
    language = args.language or (problem.language if name == "-" else language_of_file(name).name)
    with _judge(args, 1) as judge:
        judgement = judge.judge(problem, Program(language, source))
    Console().print(_cases(judgement))
    return 0


def _read_problem(path: Path) -> Problem:
    """One problem: a JSON file of its own, or the only line of a problem file."""
    if path.suffix != ".json":
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


def _cases(judgement: Judgement) -> Table:
    """Each case, and the judgement beneath."""
    table = Table("case", "verdict", "CPU s", "wall s", "MiB", "reason", box=None, pad_edge=False)
    for case in judgement.cases:
        cost = (f"{case.cpu_s:.3f}", f"{case.wall_s:.3f}", f"{case.peak_bytes / (1 << 20):.0f}")
        table.add_row(str(case.index + 1), case.verdict.value, *cost, Text(case.reason))
    score = "none" if judgement.score is None else f"{judgement.score:.3f}"
    if judgement.unpaid == SHARED_INTERPRETER:
        score += ": a verdict reached in the program's own interpreter can be forged"
    said = f": {judgement.reason}" if judgement.reason and not judgement.cases else ""
    table.caption = Text(
        f"{judgement.verdict.value}{said} (score {score}, isolation: {judgement.isolation})", style="bold"
    )
    return table
