"""``whetstone status``: what the roles of a run do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "status",
        description="Say what each role of a run does: what it waits for, since when, on which prompts it "
        "works, by which weights. A token of the flow's is in WHETSTONE_FLOW_TOKEN.",
        epilog="example: whetstone status runs/async-quickstart",
    )
    parser.add_argument("run", help="the folder of a run")
    parser.add_argument("--flow", metavar="URL", help="of its flow (default: where it was started last)")


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from whetstone.launch.roles.status import status_lines

    for line in status_lines(Path(args.run), args.flow):
        print(line)
    return 0
