"""Commands of optional packages. Without its package, a command rejects every use and names the package."""

from __future__ import annotations

from typing import Any

from whetstone.core.errors import UserError
from whetstone.core.optional_packages import PACKAGE_OF_COMMAND, load_command


def add_package_actions(actions: Any, verb: str) -> None:
    """Declare the actions of a verb that belong to optional packages."""
    for name in PACKAGE_OF_COMMAND:
        if name.startswith(f"{verb}."):
            add_package_command(actions, name)


def add_package_command(subparsers: Any, name: str) -> None:
    """Declare a command of ``PACKAGE_OF_COMMAND``, for ``bound_command``."""
    try:
        declare = load_command(name)
    except UserError as error:
        _add_missing(subparsers, name, error)
    else:
        declare(subparsers)


def _add_missing(subparsers: Any, name: str, error: UserError) -> None:
    """Declare a command that accepts all arguments and fails with ``error``."""
    # The options of the missing package are unknown. No argument begins with a null character, so none of
    # them counts as an option here.
    parser = subparsers.add_parser(
        name.rpartition(".")[2],
        help=f"needs the package {PACKAGE_OF_COMMAND[name]}",
        add_help=False,
        prefix_chars="\0",
    )
    parser.add_argument("arguments", nargs="*")

    def not_installed() -> int:
        raise error

    parser.set_defaults(command=not_installed)
