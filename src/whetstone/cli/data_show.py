"""``whetstone data show``: list a set, show one problem in full, or print the schema of problems."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from whetstone.cli.flags import command
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.problem import (
    AssertTests,
    CallTests,
    Checker,
    InteractiveTests,
    Interactor,
    NoTests,
    Problem,
    Program,
    StandardChecker,
    case_count,
    problem_schema,
)
from whetstone.core.settings import Section
from whetstone.data.builtin import SET_NAMES
from whetstone.data.case_inputs import call_text
from whetstone.data.dataset import open_problems, why_dropped
from whetstone.data.files import no_problems
from whetstone.data.sources.source import DatasetSource
from whetstone.data.sources.table import all_sources, source_named

SET_HELP = (
    "a dataset folder (FOLDER:train is one split), a problem file (.jsonl, .jsonl.gz, .parquet), "
    f"or one of {', '.join(SET_NAMES)}"
)
_ROWS_FOR_WIDTHS = 500


class _ShownSet(Section):
    """The set to show."""

    name: Annotated[
        str,
        Flag(
            f"{SET_HELP}; or `schema`, the JSON Schema of a problem; or `sources`, the public datasets",
            "SET",
            positional=True,
        ),
    ]
    id: Annotated[str | None, Flag("the problem, or the source, to show in full", "ID")] = None


@command(
    "show",
    help="list a set or the public datasets, show one problem in full, or print the schema of problems",
)
def show(shown: _ShownSet) -> int:
    """List a set while it is read, or show one problem. Raises UserError for an unknown id."""
    if shown.name == "schema":
        print(json.dumps(problem_schema(), indent=2))
        return 0
    if shown.name == "sources":
        show_sources(shown.id)
        return 0
    console = Console()
    problems = open_problems(shown.name)
    if shown.id is None:
        _list(shown.name, problems, console)
        return 0
    ids: list[str] = []
    for problem in problems:
        if problem.id == shown.id:
            console.print(_page(problem))
            return 0
        ids.append(problem.id)
    if drop := why_dropped(shown.name, shown.id):
        why = f"{drop.reason}: {drop.detail}" if drop.detail else drop.reason
        raise UserError(f"{shown.name}: {shown.id!r} was dropped by {drop.step}, because of {why}")
    hint = did_you_mean(shown.id, ids)
    raise UserError(
        f"{shown.name}: no problem {shown.id!r}{hint} (list them: whetstone data show {shown.name})"
    )


def _list(name: str, problems: Iterator[Problem], console: Console) -> None:
    """Print one line per problem. The first problems decide the widths of the columns."""
    # Only the first problems are kept: a set is printed while it is read.
    first = list(itertools.islice(problems, _ROWS_FOR_WIDTHS))
    if not first:
        raise no_problems(name)
    ids = max(len(problem.id) for problem in first)
    tests = max(len(str(case_count(problem))) for problem in first)
    # On a narrow terminal the statement is shortened, not the id: users copy ids.
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
    # The names that the messages of `data validate` have.
    parts += [_code(f"references[{n}]", program) for n, program in enumerate(problem.references)]
    parts += [_code(f"wrong[{n}]", program) for n, program in enumerate(problem.wrong)]
    if problem.checker is not None:
        parts.append(_checker_panel("checker", problem.checker))
    if isinstance(problem.tests, InteractiveTests):
        parts.append(_checker_panel("interactor", problem.tests.interactor))
    return Group(*parts)


def _checker_panel(title: str, decider: Checker | Interactor) -> RenderableType:
    if isinstance(decider, StandardChecker):
        return Text(f"checker: {decider.name}")
    language, protocol = getattr(decider, "language", "python"), getattr(decider, "protocol", "")
    return _code(f"{title} ({protocol})" if protocol else title, Program(language, decider.source))


def _tests(problem: Problem) -> RenderableType:
    tests = problem.tests
    if isinstance(tests, AssertTests):
        code = tests.check or tests.unittest or "\n".join(tests.asserts or [])
        return _code("tests", Program("python", f"{tests.setup}\n{code}".strip("\n")))
    if isinstance(tests, NoTests):
        return Text("no tests: the environment decides")
    table = Table("case", "input", "expected", title=f"compare: {problem.compare.mode}", title_justify="left")
    if isinstance(tests, CallTests):
        table.title = None if problem.compare.mode == "tokens" else table.title
        for number, case in enumerate(tests.cases, 1):
            expected = [case.expected] if case.operations is None else case.expected
            values = Text("\n".join(map(_json, expected)))
            table.add_row(str(number), Text(call_text(tests, case)), values)
        return table
    if isinstance(tests, InteractiveTests):
        table = Table("case", "input", "answer")
        for number, case in enumerate(tests.cases, 1):
            table.add_row(str(number), Text(case.input), Text(case.answer), end_section=True)
        return table
    for number, case in enumerate(tests.cases, 1):
        table.add_row(str(number), Text(case.input), Text(case.output), end_section=True)
    return table


def _code(title: str, program: Program) -> RenderableType:
    return Panel(Syntax(program.source.rstrip(), program.language), title=title, title_align="left")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _kind(problem: Problem) -> str:
    return str(problem.tests.__struct_config__.tag)


def show_sources(name: str | None) -> None:
    """List the sources, or describe the one with this name."""
    console = Console()
    if name:
        console.print(_source_page(source_named(name)), soft_wrap=True)
        return
    for source in all_sources():
        hub = f"{source.hub_id or 'not on the hub'} {(source.revision or '')[:12]}"
        text = Text.assemble((source.name, "bold"), "  ", source.title, "\n")
        text.append(f"    {hub.strip()}: {', '.join(source.columns)}\n", style="dim")
        console.print(text, end="", soft_wrap=True)
    console.print("\nDetails of a source: whetstone data show sources --id SOURCE", highlight=False)


def _source_page(source: DatasetSource) -> Text:
    facts = [
        ("on the hub", source.hub_id or "no; give its files"),
        ("known revision", source.revision or ("the newest is used" if source.hub_id else "")),
        ("licence", source.licence),
        *((f"split {split}", glob) for split, glob in source.files.items()),
        *((f"column {name}", meaning) for name, meaning in source.columns.items()),
        ("example", source.command_line),
    ]
    width = max(len(name) for name, _ in facts)
    text = Text.assemble((source.name, "bold"), "\n", source.title, "\n")
    for name, value in facts:
        if value:
            text.append(f"\n{name:{width}}  ", style="dim").append(value)
    return text
