"""The token of a Ray cluster that ``whetstone cluster`` has started: Ray's processes refuse who lacks it."""

from __future__ import annotations

import os
from pathlib import Path

_CURRENT = Path("/tmp/ray/ray_current_cluster")
"""Where Ray writes the address of the cluster that this machine became part of last."""


def token_file(port: int) -> Path:
    """Where a machine keeps the token of the cluster whose head listens on ``port``; it may not exist."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "whetstone" / f"ray-{port}.token"


def token_variables(port: int) -> dict[str, str]:
    """What Ray is told in its environment to use that token."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file(port))}


def variables_for(address: str) -> dict[str, str]:
    """The same for the cluster at HOST:PORT (or the one that Ray finds), where its token is kept here."""
    if ":" not in address:
        try:
            address = os.environ.get("RAY_ADDRESS") or _CURRENT.read_text()
        except OSError:
            return {}
    port = address.rpartition(":")[2].strip()
    if not port.isdigit() or not token_file(int(port)).exists():
        return {}
    return token_variables(int(port))
