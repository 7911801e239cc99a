"""The page behind a socket, until it is told to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from whetstone.judge_service.host import RequestLog
from whetstone.judge_service.serve import listen, server
from whetstone.judge_service.settings import Address
from whetstone.view.app import ViewHost, build_app
from whetstone.view.library import Library
from whetstone.view.places import check_roots

DEFAULT_PORT = 8070


def serve_view(
    address: Address,
    folders: Sequence[Path],
    role_lines: Callable[[Path], list[str]],
    *,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    role_lines: returns a line for each role of the run in a folder.
    on_listening: receives the host and the port.

    Raises UserError for folders with nothing to look at, an address that cannot be had, and one that
    everybody could reach without a token.
    """
    address.check("the page would show these folders to")
    check_roots(folders)
    host = ViewHost(Library(folders, role_lines), RequestLog())
    listening = listen(address)
    try:
        on_listening(*listening.getsockname()[:2])
        asyncio.run(server(build_app(host, address.tokens), host).serve([listening]))
    finally:
        listening.close()
