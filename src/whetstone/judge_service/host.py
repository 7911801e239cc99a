"""What stands behind a door: any service of ours that is asked over HTTP, the judge's or another."""

from __future__ import annotations

from typing import Any, Protocol


class Gauge(Protocol):
    """A number that goes up and down."""

    def inc(self) -> None:
        """One more."""
        ...

    def dec(self) -> None:
        """One less."""
        ...


class HostLimits(Protocol):
    """What requests are held to; see ``settings.Limits``."""

    @property
    def most_body_bytes(self) -> int: ...
    @property
    def most_held_bytes(self) -> int: ...
    @property
    def head_s(self) -> float: ...
    @property
    def most_head_bytes(self) -> int: ...
    @property
    def body_silence_s(self) -> float: ...
    @property
    def write_silence_s(self) -> float: ...
    @property
    def drain_s(self) -> float: ...


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
