"""``whetstone data``: turn public datasets into problems with correct tests. Each action has its own file."""

from __future__ import annotations

from typing import Any

from whetstone.cli import (
    data_build,
    data_convert,
    data_difficulty,
    data_import,
    data_prepare,
    data_show,
    data_steps,
    data_validate,
)
from whetstone.cli.flags import add_commands
from whetstone.cli.package_commands import add_package_actions


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "data",
        help="",  # in `VERBS`
        description="Turn public datasets into problems with correct tests, and show them. Every step "
        "reads a set and writes a new one, with a decision and a reason for everything that it "
        "drops.",
        epilog="example: whetstone data validate builtin:train",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_commands(actions, data_prepare, data_import, data_show, data_validate)
    add_package_actions(actions, "data")
    add_commands(actions, data_steps, data_difficulty, data_convert, data_build)
