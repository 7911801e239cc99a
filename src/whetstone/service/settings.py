"""Limits of the judge service, and defaults from environment variables. Imports neither torch
nor a server."""

from __future__ import annotations

import os

from whetstone.core.errors import UserError
from whetstone.core.http.settings import DEFAULT_PORT, Address, HostLimits

_MIB = 1 << 20


class ServiceLimits(HostLimits, frozen=True, kw_only=True):
    """Limits of the judge service.

    most_cases: the cases of one problem.
    most_memory_mb: the highest memory limit of a problem; None for no bound.
    most_waiting: the length of the queue; further requests are refused, with a time to retry.
    default_deadline_s, longest_deadline_s: bounds of the time until a request has its response.
    known_problem_bytes: the memory of all cached problems, in bytes.
    """

    most_cases: int = 10_000
    most_memory_mb: float | None = None
    most_waiting: int = 8192
    default_deadline_s: float = 600.0
    longest_deadline_s: float = 3600.0
    known_problem_bytes: int = 256 * _MIB


def from_environment() -> tuple[Address, float | None]:
    """Return the address and the memory limit of a program (MiB) that ScaleBox's deployments set.

    The variables are HOST, PORT, WORKERS and MAX_MEM, which is in KiB or ``unlimited``. Raises UserError for
    a value that is not a number.
    """
    host = os.environ.get("HOST") or Address().host
    port = _whole_number("PORT", DEFAULT_PORT)
    workers = _whole_number("WORKERS", 0)
    if os.environ.get("MAX_MEM", "unlimited") in ("", "unlimited"):
        return Address(host, port, workers), None
    kib = _whole_number("MAX_MEM", 0)
    if kib == 0:
        raise UserError("MAX_MEM=0 leaves no memory; give KiB for one program, or `unlimited`")
    return Address(host, port, workers), kib / 1024


def _whole_number(name: str, default: int) -> int:
    value = os.environ.get(name) or str(default)
    if not (value.isascii() and value.isdigit()):
        raise UserError(f"{name}={value} in the environment: expected a whole number")
    return int(value)
