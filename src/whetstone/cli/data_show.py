"""``whetstone data schema`` and ``show``: the problem schema, a listing of a set, one problem in full."""

from __future__ import annotations

import argparse
import itertools
import json
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from whetstone.data.builtin import SET_NAMES
from whetstone.data.dataset import open_problems
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

SET_HELP = (
    "a dataset folder (FOLDER:train is one split), a problem file (.jsonl, .jsonl.gz, .parquet), "
    f"or one of {', '.join(SET_NAMES)}"
)
_MEASURED = 500


def add_actions(actions: Any) -> None:
    """Declare the actions."""
    actions.add_parser("schema", help="print the JSON Schema of a problem")
    show = actions.add_parser("show", help="list a set, or show one problem in full")
    show.add_argument("name", metavar="SET", help=SET_HELP)
    show.add_argument("--id", help="the problem to show in full")


def run_schema(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(problem_schema(), indent=2))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """List a set while it is read, or show one problem. Raises UserError for an id that is not in it."""
    console = Console()
    problems = open_problems(args.name)
    if args.id is None:
        _list(args.name, problems, console)
        return 0
    ids: list[str] = []
    for problem in problems:
        if problem.id == args.id:
            console.print(_page(problem))
            return 0
        ids.append(problem.id)
    hint = did_you_mean(args.id, ids)
    raise UserError(f"{args.name}: no problem {args.id!r}{hint} (list them: whetstone data show {args.name})")


def _list(name: str, problems: Iterator[Problem], console: Console) -> None:
    """A line for each problem; the first ones decide how wide the columns are."""
    first = list(itertools.islice(problems, _MEASURED))
    if not first:
        raise UserError(f"{name}: holds no problems")
    ids = max(len(problem.id) for problem in first)
    tests = max(len(str(case_count(problem))) for problem in first)
    # The statement gives way on a narrow terminal: ids are there to be copied.
    left = console.width - ids - tests - len("interactive") - 6
    count = cases = 0
    for problem in itertools.chain(first, problems):
        count += 1
        cases += case_count(problem)
        line = f"{problem.id:{ids}}  {_kind(problem):11}  {case_count(problem):{tests}}"
        if left >= 20:
            line += "  " + textwrap.shorten(problem.statement, left, placeholder="…")
        console.print(Text(line.rstrip()), soft_wrap=True)
    console.print(Text(f"{name}: {count} problems, {cases} tests", style="dim"), soft_wrap=True)


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
