"""``whetstone recipes``: those that ship, and one of them as a file to begin with."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from whetstone.errors import UserError, did_you_mean
from whetstone.shipped_recipes import about, recipe_file, shipped_names


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "recipes",
        description="The recipes that ship. `whetstone train NAME` runs one, `whetstone data build NAME` "
        "builds a data set by one; both take key=value.",
        epilog="example: whetstone recipes quickstart > mine.yaml",
    )
    parser.add_argument("name", nargs="?", help="print this one, a file to change")
    parser.add_argument("--data", action="store_true", help="those of data sets")
    parser.add_argument("--json", action="store_true", help="as JSON: name, file, about")


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    kind = "data" if args.data else ""
    names = shipped_names(kind)
    if args.name is not None:
        if args.name not in names:
            raise UserError(
                f"no recipe `{args.name}` ships{did_you_mean(args.name, names)} (`whetstone recipes"
                f"{' --data' if args.data else ''}` names them)"
            )
        sys.stdout.write(recipe_file(args.name, kind).read_text(encoding="utf-8"))
        return 0
    files = {name: recipe_file(name, kind) for name in names}
    if args.json:
        print(
            json.dumps([{"name": n, "file": str(f), "about": about(f)} for n, f in files.items()], indent=2)
        )
        return 0
    table = Table()
    table.add_column("recipe", no_wrap=True)  # to be copied
    table.add_column("what it is", overflow="fold")
    for name, file in files.items():
        table.add_row(name, escape(about(file)))
    Console().print(table)
    return 0
