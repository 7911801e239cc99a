"""``whetstone view``: a local page over runs, evaluations and data sets."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "view",
        description="Serve a page, to this machine alone unless --host says otherwise, that shows the runs, "
        "evaluations and data sets in folders, live while they are written: curves, verdicts, every rollout "
        "and reply, what each role of a run waits for. It only reads.",
        epilog="example: whetstone view runs",
    )
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="FOLDER",
        help="a run, an evaluation, or a folder of them (default: runs)",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=int, default=8070, metavar="N", help="default: 8070; 0 takes a free one"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="the tokens of those who may look, one a line; needed to listen beyond this machine. A browser "
        "asks for one as the password, of any user",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until told to end."""
    from whetstone.addresses import host_port
    from whetstone.judge_service.settings import Address, read_tokens
    from whetstone.view.serve import serve_view

    tokens = read_tokens(args.token_file) if args.token_file else ()
    serve_view(
        Address(args.host, args.port, tokens=tokens),
        [Path(folder) for folder in args.folders or ["runs"]],
        _role_lines,
        on_listening=lambda host, port: print(f"http://{host_port(host, port)}/", flush=True),
    )
    return 0


def _role_lines(run: Path) -> list[str]:
    """A line for each role of a run; none for a run without a flow, which is one process."""
    from whetstone.launch.roles.status import role_lines
    from whetstone.launch.roles.told import flow_url_of

    return [] if flow_url_of(run) is None else role_lines(run, None)
