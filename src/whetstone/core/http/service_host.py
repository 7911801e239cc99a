"""The interface between an HTTP service and its server."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Protocol

from whetstone.core.http.settings import HostLimits


class Gauge(Protocol):
    """A number that rises and falls."""

    def inc(self) -> None:
        """Add one."""
        ...

    def dec(self) -> None:
        """Subtract one."""
        ...


class HostTelemetry(Protocol):
    """Counts and logs requests."""

    @property
    def open_requests(self) -> Gauge:
        """The number of requests that are being answered."""
        ...

    def answered(self, endpoint: str, status: int, seconds: float, **more: Any) -> None:
        """Record an answered request."""
        ...

    def say(self, event: str, **fields: Any) -> None:
        """Log an event."""
        ...


class ServiceLog:
    """Writes events as lines of JSON to standard error, unless ``log`` is off."""

    def __init__(self, *, log: bool = True) -> None:
        self._log = log

    def say(self, event: str, **fields: Any) -> None:
        """Write an event."""
        if self._log:
            line = {"time": round(time.time(), 3), "event": event, **fields}
            print(json.dumps(line, ensure_ascii=True), file=sys.stderr, flush=True)


class _RequestCount:
    """The number of requests that are being answered."""

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        """Add one."""
        self.value += 1

    def dec(self) -> None:
        """Subtract one."""
        self.value -= 1


class RequestLog(ServiceLog):
    """Counts requests by endpoint and status, and logs failed requests and other events."""

    def __init__(self) -> None:
        super().__init__()
        self.open_requests = _RequestCount()
        self.requests: dict[str, int] = {}

    def answered(self, endpoint: str, status: int, seconds: float, **more: Any) -> None:
        """Record an answered request."""
        name = f"{endpoint} {status}"
        self.requests[name] = self.requests.get(name, 0) + 1
        if self.failed(endpoint, status):
            self.say("request", endpoint=endpoint, status=status, ms=round(seconds * 1000, 1), **more)

    def failed(self, endpoint: str, status: int) -> bool:
        """Return whether the request is logged."""
        return status >= 400


class ServiceHost(Protocol):
    """A service, as its server sees it. ``draining``: it accepts no more requests."""

    draining: bool
    held_bytes: int

    def watch(self) -> None:
        """Start background tasks. Called when the event loop runs."""
        ...

    @property
    def limits(self) -> HostLimits: ...
    @property
    def telemetry(self) -> HostTelemetry: ...
