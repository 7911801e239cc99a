"""What stands behind the door of a flow: the flow, whose it is, its limits and its log."""

from __future__ import annotations

import asyncio
from typing import Any

from whetstone.flow.identity import Identity
from whetstone.flow.live import LiveFlow
from whetstone.judge_service.host import ServiceLog
from whetstone.judge_service.settings import HostLimits

_MIB = 1 << 20
_GONE = 499
_WAITS = frozenset({"/v1/take", "/v1/batch"})
"""Who drains leaves in the middle of these: that is no failure."""


class FlowLimits(HostLimits, frozen=True, kw_only=True):
    """What requests are held to: a body may hold many groups, and no program runs that would have to end."""

    most_body_bytes: int = 256 * _MIB
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


class FlowTelemetry(ServiceLog):
    """Counts requests by endpoint and status, and logs those that failed and what happens in the flow."""

    def __init__(self, *, log: bool = True) -> None:
        super().__init__(log=log)
        self.open_requests = _Count()
        self.requests: dict[str, int] = {}

    def answered(self, endpoint: str, status: int, seconds: float, **more: Any) -> None:
        """A request is over."""
        name = f"{endpoint} {status}"
        self.requests[name] = self.requests.get(name, 0) + 1
        if status >= 400 and not (status == _GONE and endpoint in _WAITS):
            self.say("request", endpoint=endpoint, status=status, ms=round(seconds * 1000, 1), **more)


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
