"""What stands behind the door of a flow: the flow, whose it is, its limits and its log."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from msgspec import Struct

from whetstone.flow.identity import Identity
from whetstone.flow.live import LiveFlow

_MIB = 1 << 20


class FlowLimits(Struct, frozen=True, kw_only=True):
    """What requests are held to; see the judge's ``Limits``."""

    most_body_bytes: int = 256 * _MIB
    most_held_bytes: int = 1024 * _MIB
    head_s: float = 30.0
    most_head_bytes: int = 64 << 10
    body_silence_s: float = 30.0
    write_silence_s: float = 60.0
    drain_s: float = 5.0


class _Count:
    """How many requests are being answered."""

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        """One more."""
        self.value += 1

    def dec(self) -> None:
        """One less."""
        self.value -= 1


class FlowTelemetry:
    """Counts requests by endpoint and status, and logs those that failed and what happens in the flow."""

    def __init__(self, *, log: bool = True) -> None:
        self._log = log
        self.open_requests = _Count()
        self.requests: dict[str, int] = {}

    def answered(self, endpoint: str, status: int, seconds: float, **more: Any) -> None:
        """A request is over."""
        name = f"{endpoint} {status}"
        self.requests[name] = self.requests.get(name, 0) + 1
        if status >= 400:
            self.say("request", endpoint=endpoint, status=status, ms=round(seconds * 1000, 1), **more)

    def say(self, event: str, **fields: Any) -> None:
        """One line of JSON on standard error."""
        if self._log:
            line = {"time": round(time.time(), 3), "event": event, **fields}
            print(json.dumps(line, ensure_ascii=True), file=sys.stderr, flush=True)


class FlowHost:
    """See the module's text, and ``judge_service.host.Host``."""

    def __init__(
        self, flow: LiveFlow, identity: Identity, telemetry: FlowTelemetry, limits: FlowLimits | None = None
    ) -> None:
        self.flow, self.identity, self.telemetry = flow, identity, telemetry
        self.limits = limits or FlowLimits()
        self.draining = False
        self.held_bytes = 0
        self._ticking: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Have the flow look after its leases, from now on."""
        self._ticking = asyncio.get_running_loop().create_task(self.flow.run())
