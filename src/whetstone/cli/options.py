"""Options that several verbs share."""

from __future__ import annotations

from typing import Any

from whetstone.outputs import REPLACE


def add_replace_option(parser: Any) -> None:
    """Declare ``--replace``; ``args.replace`` is for ``outputs.check_outputs``."""
    parser.add_argument(REPLACE, action="store_true", help="replace what is already at the output")
