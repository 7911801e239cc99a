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
    data_prepare.add_action(actions)
    data_import.add_action(actions)
    data_show.add_action(actions)
    data_validate.add_action(actions)
    add_package_actions(actions, "data")
    data_steps.add_actions(actions)
    data_difficulty.add_action(actions)
    data_convert.add_action(actions)
    data_build.add_action(actions)
