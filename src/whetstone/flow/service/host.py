"""What stands behind the door of a flow: the flow, whose it is, its limits and its log."""

from __future__ import annotations

import asyncio

from whetstone.flow.identity import Identity
from whetstone.flow.live import LiveFlow
from whetstone.judge_service.host import RequestLog
from whetstone.judge_service.settings import HostLimits

_MIB = 1 << 20
_GONE = 499
_WAITS = frozenset({"/v1/take", "/v1/batch"})
"""Who drains leaves in the middle of these: that is no failure."""


class FlowLimits(HostLimits, frozen=True, kw_only=True):
    """What requests are held to: a body may hold many groups, and no program runs that would have to end."""

    most_body_bytes: int = 256 * _MIB
    drain_s: float = 5.0


class FlowTelemetry(RequestLog):
    """Who hangs up while it waits is no failure."""

    def failed(self, endpoint: str, status: int) -> bool:
        """Whether the log names the request."""
        return super().failed(endpoint, status) and not (status == _GONE and endpoint in _WAITS)


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
