"""``whetstone recipes``: list the shipped recipes, or print one as the start of a new file."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from msgspec import Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.cli.flags import command
from whetstone.core.errors import UserError, did_you_mean
from whetstone.core.flag import Flag
from whetstone.core.shipped_recipes import about, recipe_file, recipe_text, shipped_names


class _RecipeListing(Struct, frozen=True, kw_only=True):
    """The kind of the list."""

    name: Annotated[str | None, Flag("print this recipe, as a file to edit", "NAME", positional=True)] = None
    data: Annotated[bool, Flag("list the recipes of data sets")] = False
    benchmarks: Annotated[bool, Flag("list the benchmarks of `whetstone eval` and their data")] = False
    plans: Annotated[bool, Flag("list the plans of `whetstone eval --plan`")] = False
    json: Annotated[bool, Flag("print the recipes as JSON: name, file, about")] = False
    schema: Annotated[
        bool, Flag("print the JSON Schema of recipes, with --data that of pipelines, for editors and checks")
    ] = False


@command(
    "recipes",
    description="List the shipped recipes, or the benchmarks and plans of `whetstone eval`. `whetstone "
    "train NAME` runs a recipe, and `whetstone data build NAME` builds a data set with "
    "one. Both accept key=value.",
    epilog="example: whetstone recipes quickstart > mine.yaml",
)
def list_shipped(args: _RecipeListing) -> int:
    """List what ships with Whetstone, or print one recipe."""
    if args.benchmarks:
        _print_benchmarks()
    if args.plans:
        _print_plans()
    if args.benchmarks or args.plans:
        return 0
    kind = "data" if args.data else ""
    if args.schema:
        from whetstone.run.settings_schema import schema_text

        sys.stdout.write(schema_text(kind))
        return 0
    names = shipped_names(kind)
    if args.name is not None:
        if args.name not in names:
            raise UserError(
                f"there is no shipped recipe `{args.name}`{did_you_mean(args.name, names)} (`whetstone "
                f"recipes{' --data' if args.data else ''}` lists them)"
            )
        sys.stdout.write(recipe_text(args.name, kind))
        return 0
    files = {name: recipe_file(name, kind) for name in names}
    if args.json:
        print(
            json.dumps([{"name": n, "file": str(f), "about": about(f)} for n, f in files.items()], indent=2)
        )
        return 0
    table = Table()
    table.add_column("recipe", no_wrap=True)  # users copy the names
    table.add_column("description", overflow="fold")
    for name, file in files.items():
        # Escaped, because rich would read brackets in a recipe's comment as markup.
        table.add_row(name, escape(about(file)))
    Console().print(table)
    return 0


def _print_benchmarks() -> None:
    """Print the benchmarks by name: their data, and the tests that their prompts show."""
    from whetstone.evaluate.benchmarks import BENCHMARKS

    table = Table()
    # Names must stay on one line, so that they can be copied.
    table.add_column("benchmark", no_wrap=True)
    for column in ("--data", "the prompt shows"):
        table.add_column(column, overflow="fold")
    for name, entry in BENCHMARKS.items():
        table.add_row(name, escape(entry.data), escape(entry.shows))
    Console().print(table)


def _print_plans() -> None:
    from whetstone.evaluate.plan_file import shipped_plans

    table = Table("--plan", "what it measures")
    for name, title in shipped_plans().items():
        table.add_row(name, escape(title))
    Console().print(table)
