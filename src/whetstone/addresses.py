"""Addresses of services: who can reach one, and how it is written."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name other than localhost may be anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_port(host: str, port: int) -> str:
    """HOST:PORT, with brackets around a host that has colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
