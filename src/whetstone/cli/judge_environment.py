"""``whetstone judge environment``: the packages that programs may import."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from whetstone.judge.environments.environment import DEFAULT, environment_named, named_environments

if TYPE_CHECKING:
    from rich.console import Console

_DESCRIPTION = """\
Programs may import the packages of one environment, and nothing else that is installed here. The default
one is what is installed beside Whetstone of the extra `programs` (pip install 'whetstone-rl[programs]');
others are made here, each a virtual environment of its own.
"""
_EPILOG = """\
examples:
  whetstone judge environment create data pandas scikit-learn matplotlib
  whetstone judge one problem.json program.py --environment data
"""


def add_environment_option(parser: Any) -> None:
    """The option that says which packages programs may import; ``args.environment``, empty by default."""
    parser.add_argument(
        "--environment",
        metavar="NAME",
        default="",
        help="the packages that programs may import: an environment's name, or the folder of a virtual "
        "environment (see: whetstone judge environment --help)",
    )


def add_action(actions: Any) -> None:
    """Declare the action and its own ones."""
    parser = actions.add_parser(
        "environment",
        help="the packages that programs may import: create, list, show, remove",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inner = parser.add_subparsers(dest="environment_action", metavar="ACTION", required=True)
    create = inner.add_parser("create", help="make one, and install packages into it with pip")
    create.add_argument("name", metavar="NAME")
    create.add_argument("packages", metavar="PACKAGE", nargs="+", help="as pip names it: `scipy==1.17.1`")
    inner.add_parser("list", help="those there are, with their packages")
    show = inner.add_parser("show", help="one with the versions of all that is in it")
    show.add_argument("name", metavar="NAME", nargs="?", default=DEFAULT)
    remove = inner.add_parser("remove", help="delete one")
    remove.add_argument("name", metavar="NAME")


def run_environment(args: argparse.Namespace) -> int:
    """Run the action."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from whetstone.judge.environments.made import create_environment, remove_environment

    console = Console()
    match args.environment_action:
        case "create":
            made = create_environment(args.name, args.packages)
            said = f"{made.label}: {len(made.versions)} packages; use it with --environment {args.name}"
            console.print(Text(said), soft_wrap=True)
        case "remove":
            remove_environment(args.name)
        case "show":
            _show(args.name, console)
        case _:
            table = Table("environment", "packages", "loaded ahead", box=None, pad_edge=False)
            for name in (DEFAULT, *named_environments()):
                found = environment_named(name)
                table.add_row(found.label, str(len(found.versions)), ", ".join(found.preload))
            console.print(table)
    return 0


def _show(name: str, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    found = environment_named(name)
    table = Table("package", "version", box=None, pad_edge=False)
    for package in sorted(found.versions, key=str.lower):
        table.add_row(package, found.versions[package])
    console.print(table)
    places = f" in {', '.join(found.folders)}" if found.folders else ""
    console.print(Text(f"{found.label}{places}"), soft_wrap=True)
    if found.preload:
        console.print(
            Text(f"loaded ahead for programs that import it: {', '.join(found.preload)}"), soft_wrap=True
        )
