"""``whetstone data`` in this process. Errors for users are raised, not printed."""

from __future__ import annotations

from pathlib import Path

from whetstone.cli.flags import bound_command
from whetstone.cli.main import parse_arguments


def whetstone_data(*argv: str | Path) -> int:
    return bound_command(parse_arguments(["data", *map(str, argv)]))()
