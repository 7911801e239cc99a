"""``whetstone data``: from public datasets to problems whose tests are right. One file for each action."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from whetstone.cli import (
    data_build,
    data_checkers,
    data_convert,
    data_difficulty,
    data_prepare,
    data_show,
    data_steps,
    data_strengthen,
    data_validate,
)

_RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    **data_build.STEPS,
    "build": data_build.run,
    "sources": data_prepare.run_sources,
    "schema": data_show.run_schema,
    "show": data_show.run_show,
    "checkers": data_checkers.run,
}


def add_parser(subparsers: Any) -> None:
    """Declare the verb and its actions."""
    parser = subparsers.add_parser(
        "data",
        description="Turn public datasets into problems whose tests are right, and look at them. Every step "
        "reads a set and writes a new one, with a decision and its reason for everything that it drops.",
        epilog="example: whetstone data validate builtin:train",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    data_prepare.add_actions(actions)
    data_show.add_actions(actions)
    data_checkers.add_action(actions)
    data_validate.add_action(actions)
    data_strengthen.add_action(actions)
    data_steps.add_actions(actions)
    data_difficulty.add_action(actions)
    data_convert.add_action(actions)
    data_build.add_action(actions)


def run(args: argparse.Namespace) -> int:
    """Run the verb. Status 0, or 1 when ``validate`` found a set that is not as meant."""
    return _RUN[args.action](args)
