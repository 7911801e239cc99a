"""A flow behind a socket, until it is told to end. Ended in whatever way, it goes on from its log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from whetstone.flow.books import new_books
from whetstone.flow.desk import Desk
from whetstone.flow.file_log import FILE_BYTES, FileLog
from whetstone.flow.identity import Identity
from whetstone.flow.live import LiveFlow
from whetstone.flow.rules import Rules
from whetstone.flow.service.app import build_app
from whetstone.flow.service.host import FlowHost, FlowLimits, FlowTelemetry
from whetstone.flow.source import PromptSource
from whetstone.judge_service.serve import listen, server
from whetstone.judge_service.settings import Address

DEFAULT_PORT = 8090


def serve_flow(
    address: Address,
    rules: Rules,
    source: PromptSource[str],
    folder: Path,
    identity: Identity,
    *,
    limits: FlowLimits | None = None,
    stall_s: float = 60.0,
    file_bytes: int = FILE_BYTES,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
) -> None:
    """Serve until SIGTERM or SIGINT. ``folder`` is the log's; the same folder again goes on where it was.

    A log in which nothing has happened is removed at the end, and need not be of this run at the beginning.
    on_listening: told the host and the port.

    Raises UserError for an address that cannot be had, or that everybody could reach without a token, and for
    a folder that is in use, not of this run, or cannot be written.
    """
    address.check("the flow would serve")
    rules.check()
    telemetry = FlowTelemetry()
    listening = listen(address)
    try:
        log = FileLog(folder, identity.log_digest, file_bytes=file_bytes)
        if log.books is None:
            log.begin(new_books(rules.models))
        elif log.cut:
            telemetry.say("log_cut", bytes=log.cut)
        desk = Desk(rules, source, log, time.monotonic(), log.books)
        host, port = listening.getsockname()[:2]
        drawn = desk.books.drawn
        telemetry.say("listening", host=host, port=port, tokens=len(address.tokens), drawn=drawn)
        on_listening(host, port)
        flow = LiveFlow(desk, say=telemetry.say, stall_s=stall_s)
        logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of whoever hangs up
        behind = FlowHost(flow, identity, telemetry, limits)
        asyncio.run(server(build_app(behind, address.tokens), behind).serve([listening]))
        log.close()
        if desk.books.blank:
            log.remove()
    finally:
        listening.close()
        telemetry.say("ended")
