"""What stands behind a door: any service of ours that is asked over HTTP, the judge's or another."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Protocol

from whetstone.judge_service.settings import HostLimits


class Gauge(Protocol):
    """A number that goes up and down."""

    def inc(self) -> None:
        """One more."""
        ...

    def dec(self) -> None:
        """One less."""
        ...


class HostTelemetry(Protocol):
    """Who counts and logs requests."""

    @property
    def open_requests(self) -> Gauge:
        """How many are being answered."""
        ...

    def answered(self, endpoint: str, status: int, seconds: float, **more: Any) -> None:
        """One is over."""
        ...

    def say(self, event: str, **fields: Any) -> None:
        """A line of the log."""
        ...


class ServiceLog:
    """A line of JSON on standard error for what happens, unless ``log`` is off."""

    def __init__(self, *, log: bool = True) -> None:
        self._log = log

    def say(self, event: str, **fields: Any) -> None:
        """One line."""
        if self._log:
            line = {"time": round(time.time(), 3), "event": event, **fields}
            print(json.dumps(line, ensure_ascii=True), file=sys.stderr, flush=True)


class RequestCount:
    """How many requests are being answered."""

    def __init__(self) -> None:
        self.value = 0

    def inc(self) -> None:
        """One more."""
        self.value += 1

    def dec(self) -> None:
        """One less."""
        self.value -= 1


class RequestLog(ServiceLog):
    """Counts requests by endpoint and status, and logs those that failed and what else happens."""

    def __init__(self, *, log: bool = True) -> None:
        super().__init__(log=log)
        self.open_requests = RequestCount()
        self.requests: dict[str, int] = {}

    def answered(self, endpoint: str, status: int, seconds: float, **more: Any) -> None:
        """A request is over."""
        name = f"{endpoint} {status}"
        self.requests[name] = self.requests.get(name, 0) + 1
        if self.failed(endpoint, status):
            self.say("request", endpoint=endpoint, status=status, ms=round(seconds * 1000, 1), **more)

    def failed(self, endpoint: str, status: int) -> bool:
        """Whether the log names the request."""
        return status >= 400


class Host(Protocol):
    """A service, as the door and the server see it. ``draining``: it takes nothing in any more."""

    draining: bool
    held_bytes: int

    def watch(self) -> None:
        """The event loop that serves it runs: begin what runs beside requests."""
        ...

    @property
    def limits(self) -> HostLimits: ...
    @property
    def telemetry(self) -> HostTelemetry: ...
