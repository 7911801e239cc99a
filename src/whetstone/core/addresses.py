"""Addresses of services: whether other machines can reach one, whether by a proxy, and its text form."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address. False for any name except localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # Any other name may resolve to an address that other machines reach.
        return host == "localhost"


def may_use_proxy(url: str) -> bool:
    """Return whether the variables for proxies, such as HTTP_PROXY, concern an address.

    They do not for this machine and for private addresses. Clusters set them for the internet, and mostly
    without NO_PROXY.
    """
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_private
    except ValueError:
        return host != "localhost"


def host_port(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around a host that contains colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
