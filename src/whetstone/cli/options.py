"""Options that several verbs share."""

from __future__ import annotations

import argparse
from typing import Any

from whetstone.outputs import REPLACE


def add_replace_option(parser: Any) -> None:
    """Declare ``--replace``; ``args.replace`` is for ``outputs.check_outputs``."""
    parser.add_argument(REPLACE, action="store_true", help="replace what is already at the output")


def add_recipe_options(parser: Any) -> None:
    """Declare the recipe, its overrides, and the process with which this one ends, if one started it."""
    parser.add_argument(
        "recipe", help="a YAML file with a section `flow`, or one that ships: async-quickstart"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="recipe keys to set, by dotted path"
    )
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
