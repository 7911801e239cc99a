"""``whetstone judge environment``: the packages that programs may import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Struct

from whetstone.cli.flags import command
from whetstone.core.errors import UserError
from whetstone.core.flag import Flag
from whetstone.judge.environments.environment import DEFAULT, environment_named, named_environments

if TYPE_CHECKING:
    from rich.console import Console

_DESCRIPTION = """\
Programs may import the packages of one environment and no other installed package. The default environment
has the installed packages of the extra `programs`, which `whetstone doctor` tells how to install. Other
environments are made here; each is a separate virtual environment. With --python, programs run under another
version of CPython, which must be installed: in PATH, or by uv or pyenv.
"""
_EPILOG = """\
examples:
  whetstone judge environment create data pandas scikit-learn matplotlib
  whetstone judge environment create py312 --python 3.12 numpy
  whetstone judge one problem.json program.py --environment py312
"""


class _EnvironmentAction(Struct, frozen=True, kw_only=True):
    """The action, the environment and its packages."""

    action: Annotated[
        Literal["create", "list", "show", "remove"],
        Flag(
            "create: make one, and install packages into it with pip; list: list all with the number of "
            "their packages; show: show one with its versions; remove: delete one",
            positional=True,
        ),
    ]
    name: Annotated[
        str | None, Flag("the environment (default for show: default)", "NAME", positional=True)
    ] = None
    packages: Annotated[
        tuple[str, ...], Flag("a package as for pip: `scipy==1.17.1`", "PACKAGE", positional=True)
    ] = ()
    python: Annotated[
        str,
        Flag(
            "for create: the version of Python, or an interpreter's path (default: Whetstone's own)",
            "VERSION",
        ),
    ] = ""


@command(
    "environment",
    help="the packages that programs may import: create, list, show, remove",
    description=_DESCRIPTION,
    epilog=_EPILOG,
)
def run_environment(options: _EnvironmentAction) -> int:
    """Run the action. Raises UserError for a missing name or missing packages."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from whetstone.judge.environments.made import create_environment, remove_environment

    if options.action in ("create", "remove") and options.name is None:
        raise UserError(f"NAME is missing: whetstone judge environment {options.action} NAME")
    if (options.action == "create") != bool(options.packages or options.python):
        raise UserError(
            "PACKAGE and --python are for `create`, which needs one of them: `create NAME PACKAGE …`"
        )
    console, name = Console(), options.name or DEFAULT
    match options.action:
        case "create":
            created = create_environment(name, options.packages, options.python)
            line = f"{created.label}: {len(created.versions)} packages; use it with --environment {name}"
            console.print(Text(line), soft_wrap=True)
        case "remove":
            remove_environment(name)
        case "show":
            _show(name, console)
        case _:
            table = Table("environment", "packages", "preloaded", box=None, pad_edge=False)
            for each in (DEFAULT, *named_environments()):
                try:
                    found = environment_named(each)
                except UserError as error:
                    table.add_row(each, "", Text(str(error), style="red"))
                    continue
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
            Text(f"preloaded for programs that import it: {', '.join(found.preload)}"), soft_wrap=True
        )
