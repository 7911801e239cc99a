"""``whetstone data``: the problem schema, and looking at, converting and validating problem sets."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from whetstone.cli import data_validate
from whetstone.data.builtin import SET_NAMES
from whetstone.data.dataset import load_problems
from whetstone.data.files import read_problems, write_problems
from whetstone.errors import UserError, did_you_mean
from whetstone.problem import (
    AssertTests,
    CallTests,
    Checker,
    InteractiveTests,
    Interactor,
    Problem,
    Program,
    StandardChecker,
    case_count,
    problem_schema,
)

_SET_HELP = f"a problem file (.jsonl, .jsonl.gz, .parquet), or one of {', '.join(SET_NAMES)}"


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "data",
        help="problem sets: schema, show, convert, validate",
        description="Look at problem sets, convert them, and find out whether their tests are right.",
        epilog="example: whetstone data validate builtin:train",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("schema", help="print the JSON Schema of a problem")
    show = actions.add_parser("show", help="list a set, or show one problem in full")
    show.add_argument("name", metavar="NAME_OR_FILE", help=_SET_HELP)
    show.add_argument("--id", help="the problem to show in full")
    convert = actions.add_parser("convert", help="write a set to a file; the endings decide the formats")
    convert.add_argument("source", metavar="SRC", help=_SET_HELP)
    convert.add_argument("target", metavar="DST", help="a .jsonl, .jsonl.gz or .parquet file")
    data_validate.add_action(actions)


def run(args: argparse.Namespace) -> int:
    """Run the verb. Status 0, or 1 when ``validate`` found a set that is not as meant."""
    if args.action == "schema":
        print(json.dumps(problem_schema(), indent=2))
        return 0
    if args.action == "show":
        return _show(args.name, args.id, Console())
    if args.action == "convert":
        return _convert(args.source, args.target)
    return data_validate.run(args)


def _show(name: str, problem_id: str | None, console: Console) -> int:
    problems = load_problems(name)
    if problem_id is None:
        console.print(_listing(name, problems, console.width))
        return 0
    by_id = {problem.id: problem for problem in problems}
    if problem_id not in by_id:
        hint = did_you_mean(problem_id, by_id)
        raise UserError(f"{name}: no problem {problem_id!r}{hint} (list them: whetstone data show {name})")
    console.print(_page(by_id[problem_id]))
    return 0


def _listing(name: str, problems: list[Problem], width: int) -> Table:
    cases = sum(case_count(problem) for problem in problems)
    table = Table(caption=Text(f"{name}: {len(problems)} problems, {cases} tests"), box=None, pad_edge=False)
    # The statement gives way on a narrow terminal: ids are there to be copied.
    left = width - max(len(problem.id) for problem in problems) - len("assert tests") - 6
    columns = ("id", "kind", "tests", "statement") if left >= 20 else ("id", "kind", "tests")
    for column in columns:
        table.add_column(column, no_wrap=True, justify="right" if column == "tests" else "left")
    for problem in problems:
        statement = textwrap.shorten(problem.statement, max(left, 1), placeholder="…")
        row = (Text(problem.id), _kind(problem), str(case_count(problem)), Text(statement))
        table.add_row(*row[: len(columns)])
    return table


def _page(problem: Problem) -> RenderableType:
    limits = problem.limits
    facts = f"{_kind(problem)} tests, {limits.cpu_s:g} s CPU, {limits.memory_mb:g} MB"
    meta = "".join(f", {key}: {value}" for key, value in problem.meta.items())
    parts: list[RenderableType] = [
        Text(problem.id, style="bold"),
        Text(facts + meta, style="dim"),
        Text("\n" + problem.statement + "\n"),
    ]
    if problem.starter:
        parts.append(_code("starter", Program(problem.language, problem.starter)))
    parts.append(_tests(problem))
    parts += [_code(f"reference {n}", program) for n, program in enumerate(problem.references)]
    parts += [_code(f"wrong {n}", program) for n, program in enumerate(problem.wrong)]
    if problem.checker is not None:
        parts.append(_decider("checker", problem.checker))
    if isinstance(problem.tests, InteractiveTests):
        parts.append(_decider("interactor", problem.tests.interactor))
    return Group(*parts)


def _decider(title: str, decider: Checker | Interactor) -> RenderableType:
    if isinstance(decider, StandardChecker):
        return Text(f"checker: {decider.name}")
    language, protocol = getattr(decider, "language", "python"), getattr(decider, "protocol", "")
    return _code(f"{title} ({protocol})" if protocol else title, Program(language, decider.source))


def _tests(problem: Problem) -> RenderableType:
    tests = problem.tests
    if isinstance(tests, AssertTests):
        code = tests.check or tests.unittest or "\n".join(tests.asserts or [])
        return _code("tests", Program("python", f"{tests.setup}\n{code}".strip("\n")))
    table = Table("input", "expected", title=f"compare: {problem.compare.mode}", title_justify="left")
    if isinstance(tests, CallTests):
        name = f"{tests.class_}().{tests.function}" if tests.class_ else tests.function
        table.title = None
        for case in tests.cases:
            if case.operations is not None:
                calls = [f"{o}{_json(a)}" for o, a in zip(case.operations, case.args, strict=True)]
                table.add_row(Text("\n".join(calls)), Text("\n".join(map(_json, case.expected))))
                continue
            values = [_json(a) for a in case.args] + [f"{k}={_json(v)}" for k, v in case.kwargs.items()]
            table.add_row(Text(f"{name}({', '.join(values)})"), Text(_json(case.expected)))
        return table
    if isinstance(tests, InteractiveTests):
        table = Table("input", "answer")
        for case in tests.cases:
            table.add_row(Text(case.input), Text(case.answer), end_section=True)
        return table
    for case in tests.cases:
        table.add_row(Text(case.input), Text(case.output), end_section=True)
    return table


def _code(title: str, program: Program) -> RenderableType:
    return Panel(Syntax(program.source.rstrip(), program.language), title=title, title_align="left")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _kind(problem: Problem) -> str:
    return str(problem.tests.__struct_config__.tag)


def _convert(source: str, target: str) -> int:
    # A file is streamed: a set of some gigabytes need not fit into memory.
    problems = load_problems(source) if source in SET_NAMES else read_problems(source)
    count = write_problems(target, problems)
    print(f"{target}: {count} problems, {Path(target).stat().st_size} bytes")
    return 0
